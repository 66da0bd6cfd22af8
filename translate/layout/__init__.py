"""Layout assignment: an engine that chooses the axis order of every value globally.

A target provides a table (`Layouts`): which of its ops is a transpose, which ops may run in another
axis order, what a transpose costs, and how an op is rebuilt. The rest is axis maps and a minimum
cut.
"""
