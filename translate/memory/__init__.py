"""Memory planning: which ops run row by row, their order, and the buffers in the arena."""

SPEED, MEMORY = "speed", "memory"
"""Optimization goals of a lowering."""
