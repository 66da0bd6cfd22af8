"""Layout as an engine: in which order of axes every value is held, decided at once.

A target is a table (`Layouts`): which of its ops is a transpose, which may work in another order of
axes, what a transpose costs and how an op is rebuilt. The rest is axis maps and one minimum cut.
"""
