"""Rewrites of block-scaled (MX) layers."""
