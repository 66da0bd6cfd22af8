"""The pass pipeline to OpenVINO: one literal tuple."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from stepwell.backends.executorch.decompose import DecomposeForKernels
from stepwell.dialects.aten.registry import of_overload
from stepwell.integrations.openvino.lowerings import elementwise, layers, movement, quantized
from stepwell.integrations.openvino.partition import (
    AllocateOutputs,
    GivePortsAnAxis,
    PartitionOpenvino,
)
from stepwell.ir.rewriting.cleanup import RemoveDeadCode, ShareCommonSubexpressions
from stepwell.ir.rewriting.legalization import Legalize, ThenCanonicalize, ThenDecompose
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import GreedyRewrites, NamedPass
from stepwell.pipelines.xnnpack import GATHER_STRIDES, PLAIN_FORM
from stepwell.translate.canonicalize.pipeline import COPIES, FOLD_WEIGHTS, NOOPS, SHAPES
from stepwell.translate.decompositions.conversion import ConversionTarget
from stepwell.translate.decompositions.traced import DECOMPOSITIONS
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.attention.recognize_attention import recognize_attention
from stepwell.translate.rewrites.calls.decompose_composites import (
    DecomposeComposites,
    composite_function,
    decomposition_of,
)
from stepwell.translate.rewrites.calls.recorded_calls import FunctionOf
from stepwell.translate.rewrites.constants.fold_constants import FoldConstants
from stepwell.translate.rewrites.quant import CANCEL_CASTS, TYPES
from stepwell.translate.rewrites.xnnpack.quantized.leftover_casts import UNTYPE

TO_OPENVINO = tuple(rule() for family in (layers, movement, elementwise) for rule in family.RULES)
"""Every lowering."""
TARGET = ConversionTarget("openvino", TO_OPENVINO)


@cache
def _piece_function(overload: Any, is_root: bool = False) -> Callable[..., Any] | None:
    """Return PyTorch's decomposition of an operator without a lowering, or None."""
    if overload.namespace == "aten" and of_overload(overload) in TARGET.native:
        return None
    if overload in DECOMPOSITIONS:
        return DECOMPOSITIONS[overload]
    if overload.namespace == "prims":
        return getattr(overload, "impl_aten", None)
    return composite_function(overload, is_root) or decomposition_of(overload)


@dataclass(frozen=True)
class DecomposeRest(DecomposeComposites):
    """Decompose operators without a lowering by PyTorch's own decompositions."""

    name: ClassVar[str] = "decompose-rest-for-openvino"
    function_of: FunctionOf = _piece_function


OPENVINO = Pipeline(
    "openvino",
    (
        GreedyRewrites("transforms", (*COPIES, *TARGET.phase("transforms"))),
        GreedyRewrites("normalize", (*PLAIN_FORM, GATHER_STRIDES)),
        GreedyRewrites("type-quantization", TYPES),
        NamedPass("share-types", ShareCommonSubexpressions()),
        GreedyRewrites("lower-quantized", tuple(rule() for rule in quantized.RULES)),
        GreedyRewrites("untype", (*(rule() for rule in UNTYPE), *CANCEL_CASTS)),
        GreedyRewrites("fold-weights", FOLD_WEIGHTS),
        step(recognize_attention),
        GreedyRewrites("decompose", TARGET.phase("decompose")),
        GreedyRewrites("arrange", (*NOOPS, *SHAPES)),
        Legalize(
            "legalize",
            (
                *TO_OPENVINO,
                ThenDecompose(),
                DecomposeComposites(),
                ThenDecompose("then-decompose-rest"),
                DecomposeRest(),
                ThenDecompose("then-decompose-for-kernels"),
                DecomposeForKernels(),
                ThenCanonicalize(),
                FoldConstants(),
                *TARGET.phase("parts"),
                *PLAIN_FORM,
            ),
        ),
        NamedPass("share-operators", ShareCommonSubexpressions()),
        PartitionOpenvino(),
        GivePortsAnAxis(),
        AllocateOutputs(),
        RemoveDeadCode(),
    ),
)
