"""Lowerings of ops that index or order elements."""
