"""Readers, emitters and runners of what devices run."""
