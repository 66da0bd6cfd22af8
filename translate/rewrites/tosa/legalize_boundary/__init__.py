"""Legalize a program for a TOSA profile: integer types, value ranges, and the types of inputs and
results.
"""
