"""Rewrites to TOSA, one file each; `layout/order.py` lists their groups and order."""
