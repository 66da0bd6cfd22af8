"""Costs: estimated, measured, compared, and held to a budget."""
