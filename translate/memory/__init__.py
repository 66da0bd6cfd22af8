"""Memory planning: the ops that run row by row, their order, and buffers in the arena."""

SPEED, MEMORY = "speed", "memory"
"""Optimization goals of a lowering."""
