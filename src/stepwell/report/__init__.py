"""What a lowering did, and what to change in a model so that less is left to kernels."""
