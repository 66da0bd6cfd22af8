"""Lowerings of operations between casts to CMSIS-NN's integer kernels."""
