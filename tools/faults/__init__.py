"""Faults of other tools, each a function that fails while the tool has the fault.

The code before the first fault of a file is shared by its faults; none of it is stepwell's.
"""
