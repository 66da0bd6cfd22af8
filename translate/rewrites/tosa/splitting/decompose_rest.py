"""Decompose an operator without a lowering to TOSA by PyTorch's own decomposition.

PyTorch has a table of functions that compute an operator from others, and tests each against the
kernel. An operator with a lowering is never decomposed: its lowering gives better reasons for a
refusal. Operators that draw random numbers, or whose result size depends on data, are not
decomposed and are reported.

Before:
    %y = aten.signbit.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xi1>
After:
    %0 = aten.lt.Scalar(%x, 0) : (tensor<2x3xf32>) -> tensor<2x3xi1>
    %1 = aten.reciprocal.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %2 = aten.lt.Scalar(%1, 0) : (tensor<2x3xf32>) -> tensor<2x3xi1>
    %y = aten.logical_or.default(%0, %2) : (tensor<2x3xi1>, tensor<2x3xi1>) -> tensor<2x3xi1>
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import torch

from stepwell.dialects.aten.registry import of_overload
from stepwell.ir.compat.torch.torch_private import schema_of
from stepwell.ir.rewriting.rewrite import anchors_of
from stepwell.translate.decompositions import floats
from stepwell.translate.decompositions.traced import DECOMPOSITIONS
from stepwell.translate.lowerings.lowering import is_step
from stepwell.translate.rewrites.calls.decompose_composites import (
    DecomposeComposites,
    composite_function,
    decomposition_of,
)
from stepwell.translate.rewrites.calls.recorded_calls import FunctionOf
from stepwell.translate.rewrites.calls.traced_calls import INTO_ITSELF
from stepwell.translate.rewrites.tosa.layout.order import DECOMPOSE, TO_TOSA

BEYOND = frozenset(
    (
        torch.Tag.nondeterministic_seeded,
        torch.Tag.dynamic_output_shape,
        torch.Tag.data_dependent_output,
    )
)
"""Tags of operators that TOSA cannot express: random numbers, data-dependent sizes."""


def piece_function(overload: Any, is_root: bool = False) -> Callable[..., Any] | None:
    """Return PyTorch's decomposition of an operator without a lowering, or None.

    An operator that a lowering refuses is also decomposed here, if possible.
    """
    composed = DECOMPOSITIONS.get(overload)
    if overload.namespace == "prims":
        return composed or getattr(overload, "impl_aten", None)
    if overload.namespace != "aten":
        return composed
    if _is_lowered(overload) and not (composed and is_root):
        return None
    writes = schema_of(overload).name.endswith("_functional")  # For an operator that writes.
    if writes or BEYOND & {*overload.tags}:
        return None
    if composed is not None:
        return composed
    function = composite_function(overload, is_root) or decomposition_of(overload)
    is_reference = function is not None and function.__module__.startswith("torch._refs")
    return (
        None if is_reference and not is_root else function
    )  # Reference implementations call each other recursively.


NO_LOWERING = "it has no lowering"


def absence(overload: Any, pieces: str = "") -> str:
    """Return why an operator without a lowering cannot be expressed in TOSA, as far as PyTorch
    knows.

    Args:
        overload: the operator.
        pieces: why PyTorch's own decomposition was not used, if it was tried.
    """
    if torch.Tag.nondeterministic_seeded in overload.tags:
        return "TOSA draws no random numbers"
    if BEYOND & {*overload.tags}:
        return "what it gives is as large as its data say, and TOSA's shapes are known ahead"
    if "view_as_complex" in overload.name():
        return "TOSA has no complex numbers: give their parts (`torch.view_as_real`)"
    if "fft" in overload.name() or _is_lowered(overload):  # TOSA has two transforms, of images.
        return NO_LOWERING
    if pieces == INTO_ITSELF or piece_function(overload, True) is None:
        return "TOSA has no operator for it, and PyTorch computes it by no others"
    return (
        f"TOSA has no operator for it, nor for what PyTorch computes it by: {pieces}"
        if pieces
        else NO_LOWERING
    )


@cache
def _is_lowered(overload: Any) -> bool:
    return of_overload(overload) in {
        cls
        for rewrite in (*DECOMPOSE, *TO_TOSA)
        # This rewrite does not lower an operator to TOSA.
        if not is_step(rewrite, floats.widen_rounded_halves)
        for cls in anchors_of(rewrite) or ()
    }


@dataclass(frozen=True)
class DecomposeRest(DecomposeComposites):
    """Decompose operators without a lowering, composite or not."""

    name: ClassVar[str] = "decompose-rest"
    function_of: FunctionOf = piece_function
