"""Ops taken apart before they become operators."""
