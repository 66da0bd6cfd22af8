"""Reproducers of failing passes, and their reduction."""
