"""Quantizers by name, sensitivity analysis and post-training recovery."""
