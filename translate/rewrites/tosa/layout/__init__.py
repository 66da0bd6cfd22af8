"""Rewrites that place, merge and remove reshapes and transposes between TOSA operators."""
