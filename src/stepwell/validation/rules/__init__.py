"""Verify that the pattern and the replacement of a rule compute the same values."""
