"""Emit Cortex-M programs as C without a runtime."""
