"""Rewrites of mixtures of experts: layers that route each token to a few of several MLPs."""
