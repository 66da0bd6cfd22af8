"""Costs: estimates, measurements, comparisons and budgets."""
