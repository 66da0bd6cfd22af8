"""Ops that XNNPACK has no node for, as expressions of those it has."""
