"""Quantized ATen ops → CMSIS-NN: the lowerings of each family, which are all that the library runs."""

from __future__ import annotations

from stepwell.translate.lowerings.cmsis import borders, carried, elementwise, layers, pooling
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.cmsis import COMPOSE_TABLES, FoldHardSigmoid

TO_CMSIS = (
    FoldHardSigmoid(),
    step(layers.linear),
    step(layers.matmul),
    step(layers.convolution),
    step(layers.transposed_convolution),
    step(pooling.pooling),
    step(pooling.mean),
    step(pooling.extreme_of_axis),
    step(pooling.maximum),
    step(carried.pick),
    step(carried.nearest),
    step(carried.compare),
    step(elementwise.softmax),
    step(elementwise.arithmetic),
    step(borders.pad),
    step(elementwise.tabulate),
    COMPOSE_TABLES,
)
"""Layers are first: a function of a layer's result alone is a table."""
