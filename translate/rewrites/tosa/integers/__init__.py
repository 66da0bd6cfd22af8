"""Quantised layers as integers and RESCALE."""
