"""Decompositions of ops that XNNPACK has no node for into nodes that it has."""
