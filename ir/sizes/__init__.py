"""Symbolic sizes: integer expressions over symbols, their text and their ranges."""
