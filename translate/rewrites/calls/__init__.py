"""Calls taken apart: composite operators, loops, what a Python function does when traced."""
