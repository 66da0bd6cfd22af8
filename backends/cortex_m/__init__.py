"""Cortex-M programs that call CMSIS-NN."""
