"""Lowerings as functions: from an op's arguments to an expression of a target's operations.

`lowering.py` has the engine. Each target has a folder with its values (`values.py`), which overload
Python's operators, and a file for each family of ops.
"""
