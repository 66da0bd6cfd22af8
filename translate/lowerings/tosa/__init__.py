"""Lowerings of ATen operations to TOSA operators, a file for each family."""
