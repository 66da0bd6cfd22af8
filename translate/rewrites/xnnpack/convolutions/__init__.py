"""Convolutions that are computed faster in another form."""
