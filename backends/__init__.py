"""Readers, emitters and runners of artifacts."""
