"""Layouts, ports and the order in which operators run."""
