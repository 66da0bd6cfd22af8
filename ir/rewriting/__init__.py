"""Rewrites, what drives them, pipelines, and what happened on the way."""
