"""Layouts, what is read, and which nodes make a delegate."""
