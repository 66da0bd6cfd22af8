"""Lowerings that are functions: an op's arguments go in, an expression of a target's ops comes out.

`lowering.py` has the engine; a folder a target holds its values (`values.py`), which compute like
numbers, and a file for each family of ops.
"""
