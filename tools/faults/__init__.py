"""Faults of other tools, each a function that fails while the tool has it.

What stands in front of the first fault of a file is what its faults call; nothing is stepwell's.
"""
