"""Axis maps: the correspondence between the axes of an op's operands and those of its results."""
