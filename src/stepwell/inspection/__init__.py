"""Inspection of lowered programs: reports, explanations, pages and the playground."""
