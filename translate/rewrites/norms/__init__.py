"""Norms and variances."""
