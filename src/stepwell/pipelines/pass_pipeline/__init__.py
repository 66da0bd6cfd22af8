"""Passes of pipelines: names, ordering constraints, stages, and the textual form."""
