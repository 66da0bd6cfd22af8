"""Folding of per-channel scales and shifts along axis maps into the weights of layers.

A product or a sum with a constant per channel (`constants.py`) is followed along its axis through
ops that move whole channels, to a layer whose weights can absorb it. These layers are in a table
(`layers.py`); a target adds rows for layers of its own.
"""
