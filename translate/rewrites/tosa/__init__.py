"""aten → tosa: one rewrite per family of ops, then the transposes they left are cancelled."""

from __future__ import annotations

from typing import Any

from stepwell.ir.rewriting import Rewrite
from stepwell.translate.rewrites.tosa.compose_byte_functions import ComposeByteFunctions
from stepwell.translate.rewrites.tosa.fold_quantised_constant import FoldQuantisedConstant
from stepwell.translate.rewrites.tosa.hoist_rescale_over_maximum import HoistRescaleOverMaximum
from stepwell.translate.rewrites.tosa.hoist_reshape_over_slice import HoistReshapeOverSlice
from stepwell.translate.rewrites.tosa.lower_cast import LowerCast
from stepwell.translate.rewrites.tosa.lower_cumsum import LowerCumsum
from stepwell.translate.rewrites.tosa.lower_curve import LowerCurve
from stepwell.translate.rewrites.tosa.lower_elementwise import (
    LowerClamp,
    LowerDivision,
    LowerElementwise,
    LowerGelu,
    LowerOfNumbers,
    LowerWhere,
    SpellOutElementwise,
)
from stepwell.translate.rewrites.tosa.lower_fold import LowerFold
from stepwell.translate.rewrites.tosa.lower_function import LowerFunction
from stepwell.translate.rewrites.tosa.lower_indices import LowerArgmax, LowerGather, LowerScatter
from stepwell.translate.rewrites.tosa.lower_int8 import INT8
from stepwell.translate.rewrites.tosa.lower_int8_reduction import LowerInt8Reduction
from stepwell.translate.rewrites.tosa.lower_int8_softmax import LowerInt8Softmax
from stepwell.translate.rewrites.tosa.lower_int16_function import LowerInt16Function
from stepwell.translate.rewrites.tosa.lower_int16_scale import LowerInt16Scale
from stepwell.translate.rewrites.tosa.lower_layout import (
    LowerConcat,
    LowerExpand,
    LowerFlip,
    LowerPad,
    LowerPermute,
    LowerReshape,
    LowerSlice,
)
from stepwell.translate.rewrites.tosa.lower_mxfp import (
    LowerMxConv2d,
    LowerMxLinear,
    LowerMxQuantize,
)
from stepwell.translate.rewrites.tosa.lower_power import LowerPower
from stepwell.translate.rewrites.tosa.lower_products import (
    LowerBmm,
    LowerConvolution,
    LowerLinear,
)
from stepwell.translate.rewrites.tosa.lower_reductions import (
    LowerPooling,
    LowerReduction,
    LowerSoftmax,
)
from stepwell.translate.rewrites.tosa.lower_remainder import LowerRemainder
from stepwell.translate.rewrites.tosa.merge_layout import MergeReshapes, MergeTransposes
from stepwell.translate.rewrites.tosa.remove_mx_recast import RemoveMxRecast
from stepwell.translate.rewrites.tosa.simplify_transpose import SimplifyTranspose
from stepwell.translate.rewrites.tosa.sink_reshape import SinkReshape
from stepwell.translate.rewrites.tosa.sink_transpose import SinkTranspose
from stepwell.translate.rewrites.tosa.sink_transpose_through_reshape import (
    SinkTransposeThroughReshape,
)
from stepwell.translate.rewrites.tosa.split_gelu import SplitGelu
from stepwell.translate.rewrites.tosa.split_layer_norm import SplitLayerNorm
from stepwell.translate.rewrites.tosa.widen_halves import WidenHalves
from stepwell.translate.rewrites.xnnpack.decompose_group_norm import DecomposeGroupNorm

SPLIT: tuple[Rewrite[Any], ...] = (
    WidenHalves(),
    SplitLayerNorm(),
    DecomposeGroupNorm(),
    SplitGelu(),
)
"""Norms and activations written as arithmetic whose constants can join a layer's weights."""

TO_TOSA: tuple[Rewrite[Any], ...] = (
    LowerMxLinear(),
    LowerMxConv2d(),
    LowerMxQuantize(),
    LowerLinear(),
    LowerBmm(),
    LowerConvolution(),
    LowerPooling(),
    LowerReduction(),
    LowerSoftmax(),
    LowerGelu(),
    LowerClamp(),
    LowerDivision(),
    LowerWhere(),
    LowerElementwise(),
    SpellOutElementwise(),
    LowerPower(),
    LowerFunction(),
    LowerCurve(),
    LowerCumsum(),
    LowerRemainder(),
    LowerOfNumbers(),
    LowerFold(),
    LowerReshape(),
    LowerPermute(),
    LowerSlice(),
    LowerConcat(),
    LowerExpand(),
    LowerPad(),
    LowerFlip(),
    LowerGather(),
    LowerScatter(),
    LowerArgmax(),
    LowerCast(),
)
"""Every lowering; their anchors do not overlap."""

LAYOUT: tuple[Rewrite[Any], ...] = (
    MergeTransposes(),
    MergeReshapes(),
    SinkTranspose(),
    SinkTransposeThroughReshape(),
    SimplifyTranspose(),
    HoistReshapeOverSlice(),
    SinkReshape(),
    RemoveMxRecast(),
)
"""What cancels the transposes between NCHW and NHWC."""

INTEGERS: tuple[Rewrite[Any], ...] = (
    FoldQuantisedConstant(),
    LowerInt16Scale(),
    *INT8,
    LowerInt8Reduction(),
    LowerInt8Softmax(),
    LowerInt16Function(),
)
"""Quantised layers as integers."""

FEWER_INTEGERS: tuple[Rewrite[Any], ...] = (ComposeByteFunctions(), HoistRescaleOverMaximum())
"""The same integers by fewer operators."""
