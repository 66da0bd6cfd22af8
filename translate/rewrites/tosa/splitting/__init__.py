"""Decompositions of ops before they are lowered to operators."""
