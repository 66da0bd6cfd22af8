"""Importing this module registers the interpreter's rule of every TOSA operator."""

from stepwell.dialects.tosa.meaning import (
    arithmetic,
    block_scaled,
    control,
    convolution,
    custom,
    movement,
    pooling,
    quantized,
    reductions,
    shapes,
)

__all__ = [
    "arithmetic",
    "block_scaled",
    "control",
    "convolution",
    "custom",
    "movement",
    "pooling",
    "quantized",
    "reductions",
    "shapes",
]
