"""Convolutions that another form computes faster."""
