"""Rewrites of convolutions to forms that XNNPACK computes faster."""
