"""Real pools in device memory, and the kernels that read and write them."""
