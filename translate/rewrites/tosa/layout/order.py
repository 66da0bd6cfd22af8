"""aten → tosa: one rewrite per family of ops, then the remaining transposes are cancelled."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from stepwell.ir.rewriting.rewrite import GreedyRewrites, NamedPass, Rewrite, Step
from stepwell.translate.decompositions.conversion import ConversionTarget
from stepwell.translate.lowerings.lowering import is_step, step
from stepwell.translate.lowerings.tosa import (
    block_scaled,
    casts,
    curves,
    discrete,
    elementwise,
    factories,
    functions,
    movement,
    pooling,
    powers,
    products,
    reductions,
    resizing,
    transforms,
)
from stepwell.translate.lowerings.tosa.indexed import indices, orders, patterns, scatters
from stepwell.translate.lowerings.tosa.integers import distributions as int_distributions
from stepwell.translate.lowerings.tosa.integers import elementwise as int_elementwise
from stepwell.translate.lowerings.tosa.integers import functions as int_functions
from stepwell.translate.lowerings.tosa.integers import layers as int_layers
from stepwell.translate.lowerings.tosa.integers import reductions as int_reductions
from stepwell.translate.rewrites.mxfp.remove_mx_recast import RemoveMxRecast
from stepwell.translate.rewrites.tosa.integers.absorb_pad import AbsorbPad, PadAfterReshape
from stepwell.translate.rewrites.tosa.integers.choose_stored_integers import ChooseStoredIntegers
from stepwell.translate.rewrites.tosa.integers.compose_byte_functions import ComposeByteFunctions
from stepwell.translate.rewrites.tosa.integers.fold_quantized_constant import FoldQuantizedConstant
from stepwell.translate.rewrites.tosa.integers.hoist_rescale_over_maximum import (
    HoistRescaleOverMaximum,
)
from stepwell.translate.rewrites.tosa.layout import merge_layout, sink_reshape
from stepwell.translate.rewrites.tosa.layout.assign_layouts import AssignLayouts
from stepwell.translate.rewrites.tosa.layout.hoist_reshape_over_slice import HoistReshapeOverSlice
from stepwell.translate.rewrites.tosa.layout.simplify_transpose import SimplifyTranspose
from stepwell.translate.rewrites.tosa.legalize_boundary import type_integers
from stepwell.translate.rewrites.tosa.operators.select_by_not import SelectByNot


def each(*families: ModuleType) -> tuple[Rewrite[Any], ...]:
    """Return the lowerings that these modules define, in order, without those of special phases."""
    return tuple(rule() for family in families for rule in family.RULES if not rule.phases)


TO_TOSA: tuple[Rewrite[Any], ...] = each(
    block_scaled,
    products,
    pooling,
    discrete,
    elementwise,
    powers,
    functions,
    curves,
    reductions,
    resizing,
    factories,
    transforms,
    patterns,
    movement,
    indices,
    scatters,
    orders,
    casts,
)
"""Every lowering; lowerings with the same anchors take different element types."""

TOSA = ConversionTarget("tosa", TO_TOSA)
DECOMPOSE = TOSA.phase("decompose")
"""Decompositions of operators that TOSA lacks; norms and activations as arithmetic.

The constants of this arithmetic can be folded into a layer's weights.
"""

MEETING: tuple[Rewrite[Any], ...] = (*each(merge_layout), SelectByNot())
"""Merge consecutive transposes and reshapes, or remove them."""

LAYOUT: tuple[Rewrite[Any], ...] = (
    *MEETING,
    SimplifyTranspose(),
    HoistReshapeOverSlice(),
    *each(sink_reshape),
    RemoveMxRecast(),
)
"""Merge adjacent layout operators, around `AssignLayouts`."""


def layouts(*merges: Rewrite[Any]) -> tuple[Step, ...]:
    """Place transposes by a minimum cut, twice; adjacent ones are merged before and between."""
    return (
        GreedyRewrites("merge-layouts", MEETING),
        NamedPass("place-layouts-first", AssignLayouts()),
        GreedyRewrites("merge-layouts-between", MEETING),
        NamedPass("place-layouts-again", AssignLayouts()),
        GreedyRewrites("layout", merges),
    )


LAYERS = (
    *(type_integers, int_functions, int_layers),
    *(int_elementwise, int_reductions, int_distributions),
)
INTEGERS: tuple[Rewrite[Any], ...] = (
    FoldQuantizedConstant(),
    *each(*LAYERS),
    ChooseStoredIntegers(),
)
"""Lower quantized layers to integers."""


def integers_on_npu(rows: int_layers.Rows) -> tuple[Rewrite[Any], ...]:
    """Return the lowerings to integers for an NPU, which keep a linear layer's rows on one axis.

    They include lowerings that NPUs run faster. `HoistRescaleOverMaximum` is omitted: it makes a
    maximum int32, and a U55 has REDUCE_MAX of bytes only.
    """
    npu = tuple(rule() for family in LAYERS for rule in family.RULES if "npu" in rule.phases)
    linear = int_layers.int8_linear
    return (*npu, *(step(linear, rows=rows) if is_step(r, linear) else r for r in INTEGERS))


FEWER_INTEGERS: tuple[Rewrite[Any], ...] = (
    ComposeByteFunctions(),
    HoistRescaleOverMaximum(),
    PadAfterReshape(),
    AbsorbPad(),
)
"""Compute the same integers with fewer operators."""
