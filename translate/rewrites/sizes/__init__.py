"""Sizes that are open until a program runs."""
