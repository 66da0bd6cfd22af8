"""Legalization to a target's profile: integer types, value ranges, and the boundary."""
