"""Legalization of quantized layers and casts to nodes."""
