"""Lowerings of aten ops to other aten ops, for whichever target has the others."""
