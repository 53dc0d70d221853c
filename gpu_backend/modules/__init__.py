"""Target and drafter on the paged kernels, their weights, and the plain references they are compared with."""
