"""Layouts, reshapes and transposes between operators."""
