"""The report of a lowering, and advice on model changes that leave fewer ops to kernels."""
