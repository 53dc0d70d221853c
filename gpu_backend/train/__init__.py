"""Training of the T1 pair: corpus, tokenizer, target, drafter, each a stage that goes on later."""
