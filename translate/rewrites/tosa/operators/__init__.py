"""Legalization: lower an op to operators of TOSA."""
