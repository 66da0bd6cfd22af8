"""Legalization: lower an op to a node of XNNPACK."""
