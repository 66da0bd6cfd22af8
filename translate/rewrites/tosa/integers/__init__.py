"""Legalization of quantized layers to integer operators and RESCALE."""
