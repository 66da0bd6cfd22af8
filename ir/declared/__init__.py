"""The declarations of ops: families, types, semantics, numerics, bounds."""
