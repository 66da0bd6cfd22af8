"""List the lowerings of quantized ATen ops to CMSIS-NN, in the order in which they are tried."""

from __future__ import annotations

from stepwell.translate.lowerings.cmsis import borders, carried, elementwise, layers, pooling
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.cmsis import COMPOSE_TABLES, FoldHardSigmoid

TO_CMSIS = (
    FoldHardSigmoid(),
    *(rule() for family in (layers, pooling, carried, elementwise) for rule in family.RULES),
    step(borders.pad),
    COMPOSE_TABLES,
)
"""Layers are first: a function of a layer's result alone is a table."""
