"""Decomposition of calls: composite operators, loops, and traced Python functions."""
