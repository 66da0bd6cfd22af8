"""The rule verifier: the pattern and the replacement of a rule compute the same values."""
