"""Quantized layers and casts as nodes."""
