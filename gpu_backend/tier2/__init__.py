"""Tier T2: SmolLM2-135M-Instruct out of a wheel, which holds it as GGUF, in the layout of HF; and where it is kept."""
