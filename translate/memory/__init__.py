"""Memory as an engine: what runs row by row, in what order, and what stands in the arena."""

SPEED, MEMORY = "speed", "memory"
"""What a lowering may be optimized for."""
