"""Convolutions that another form computes sooner."""
