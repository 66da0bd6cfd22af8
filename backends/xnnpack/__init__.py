"""XNNPACK delegates: the payload inside a .pte."""
