"""From quantised ATen ops to CMSIS-NN's operators."""

from stepwell.translate.rewrites.cmsis.operators.explain_floats import ExplainFloats
from stepwell.translate.rewrites.cmsis.operators.fold_hard_sigmoid import FoldHardSigmoid
from stepwell.translate.rewrites.cmsis.operators.fold_kernel_sum import BiasForm, FoldKernelSum
from stepwell.translate.rewrites.cmsis.operators.lower_arithmetic import LowerArithmetic
from stepwell.translate.rewrites.cmsis.operators.lower_boundary import LowerBoundary
from stepwell.translate.rewrites.cmsis.operators.lower_convolution import LowerConvolution
from stepwell.translate.rewrites.cmsis.operators.lower_linear import LowerLinear
from stepwell.translate.rewrites.cmsis.operators.lower_matmul import LowerMatmul
from stepwell.translate.rewrites.cmsis.operators.lower_mean import LowerMean
from stepwell.translate.rewrites.cmsis.operators.lower_movement import LowerPad, LowerPermute
from stepwell.translate.rewrites.cmsis.operators.lower_pooling import LowerPooling
from stepwell.translate.rewrites.cmsis.operators.lower_softmax import LowerSoftmax
from stepwell.translate.rewrites.cmsis.operators.lower_transposed_convolution import (
    LowerTransposedConvolution,
)
from stepwell.translate.rewrites.cmsis.operators.tabulate import Tabulate
from stepwell.translate.rewrites.cmsis.placing import merge_movement
from stepwell.translate.rewrites.cmsis.placing.absorb_flatten import AbsorbFlatten
from stepwell.translate.rewrites.cmsis.placing.assign_layouts import AssignLayouts
from stepwell.translate.rewrites.cmsis.placing.integer_ports import IntegerPorts, Io
from stepwell.translate.rewrites.cmsis.placing.order_operators import OrderOperators
from stepwell.translate.rewrites.cmsis.placing.relabel_ports import RelabelInput, RelabelOutput
from stepwell.translate.rewrites.cmsis.placing.slice_as_part import SliceAsPart
from stepwell.translate.rewrites.cmsis.placing.state_target import StateTarget

_MERGES = {rule.name: rule() for rule in merge_movement.RULES}
_COMPOSE_TABLES = _MERGES["compose-tables"]
MERGE_TRANSPOSES = tuple(rule for name, rule in _MERGES.items() if "transpose" in name)
"""Transposes that meet each other or a constant, or move nothing."""
MERGE_VIEWS = tuple(_MERGES[name] for name in ("merge-views", "remove-view"))
"""Views that meet."""

TO_CMSIS = (
    FoldHardSigmoid(),
    LowerLinear(),
    LowerMatmul(),
    LowerConvolution(),
    LowerTransposedConvolution(),
    LowerPooling(),
    LowerMean(),
    LowerSoftmax(),
    LowerArithmetic(),
    LowerPad(),
    Tabulate(),
    _COMPOSE_TABLES,
)
"""One rewrite for each family of ops; together they say what the library can run."""

__all__ = [
    "MERGE_TRANSPOSES",
    "MERGE_VIEWS",
    "TO_CMSIS",
    "AbsorbFlatten",
    "AssignLayouts",
    "BiasForm",
    "ExplainFloats",
    "FoldHardSigmoid",
    "FoldKernelSum",
    "IntegerPorts",
    "Io",
    "LowerArithmetic",
    "LowerBoundary",
    "LowerConvolution",
    "LowerLinear",
    "LowerMatmul",
    "LowerMean",
    "LowerPad",
    "LowerPermute",
    "LowerPooling",
    "LowerSoftmax",
    "LowerTransposedConvolution",
    "OrderOperators",
    "RelabelInput",
    "RelabelOutput",
    "SliceAsPart",
    "StateTarget",
    "Tabulate",
]
