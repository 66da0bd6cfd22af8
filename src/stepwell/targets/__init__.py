"""Targets by name: each has a pipeline, emitters and an engine."""
