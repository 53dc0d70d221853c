"""How others pack a block drafter: each packaging's keys in the terms of one, with what of it is refused by name."""
