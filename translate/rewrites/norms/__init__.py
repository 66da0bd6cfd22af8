"""Rewrites of norms and variances."""
