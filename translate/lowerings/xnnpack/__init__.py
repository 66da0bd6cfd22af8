"""Lowerings of ATen operations to XNNPACK's nodes."""
