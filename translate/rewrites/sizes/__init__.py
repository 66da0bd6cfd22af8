"""Rewrites of dynamic sizes."""
