"""What programs are made of: engines, pools, workers, prompts, and how often each of them comes."""
