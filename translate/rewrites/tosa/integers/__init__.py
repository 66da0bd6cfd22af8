"""Quantized layers as integers and RESCALE."""
