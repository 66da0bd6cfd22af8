"""Targets by name: a pipeline, emitters and an engine each."""
