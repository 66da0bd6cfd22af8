"""Fourier transforms and complex numbers, as products of floats."""
