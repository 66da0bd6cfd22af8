"""Rewrites of linear layers, convolutions and pools: canonical forms, and folding into weights."""
