"""Slices, joins, paddings and writes: which elements are taken, and where they go."""
