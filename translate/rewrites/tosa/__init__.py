"""Rewrites to TOSA, one file each; `order.py` says which run together, in which order."""
