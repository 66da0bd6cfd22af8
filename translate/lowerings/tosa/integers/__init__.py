"""Lowerings of operations between casts to TOSA's integer operators."""
