"""Rewrites, their drivers, pipelines, and the record of what was applied."""
