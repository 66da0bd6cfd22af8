"""Decompositions of ATen operations into other ATen operations, shared by all targets."""
