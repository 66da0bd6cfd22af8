"""Quantised layers and casts as nodes."""
