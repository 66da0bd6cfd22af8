"""Axis maps: which axis of which operand each axis of a result corresponds to."""
