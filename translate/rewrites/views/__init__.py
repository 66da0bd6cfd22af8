"""Rewrites of views, permutations and broadcasts."""
