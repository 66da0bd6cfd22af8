"""What XNNPACK holds: floats of one type, in at most six axes, whose sizes are known."""

import re
from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.decompositions import norms
from stepwell.translate.lowerings.lowering import Lowering
from stepwell.translate.rewrites.documentation import (
    examples_of,
    module_of,
    rewrites_of,
)
from stepwell.translate.rewrites.xnnpack.nodes.lower_clamp import RULES as CLAMPS
from stepwell.translate.rewrites.xnnpack.nodes.lower_elementwise import RULES as ELEMENTWISE

OF_FLOATS = (
    "xnnpack.convolutions",
    "xnnpack.images",
    "xnnpack.nodes.lower_clamp",
    "xnnpack.nodes.lower_elementwise",
    "xnnpack.nodes.lower_shape",
    "xnnpack.nodes.lower_softmax",
    "xnnpack.products",
    "xnnpack.reductions",
)


@pytest.mark.parametrize("name", OF_FLOATS)
def test_doubles_stay_where_they_are(name: str, refused: Any):
    module = module_of(name)
    held = rewrites_of(module)
    held = held if issubclass(held[0], Lowering) else held[:1]
    for rewrite, (before, _) in zip(held, examples_of(module), strict=False):
        refused(re.sub(r"xf32\b", "xf64", before), rewrite(), "float64")


test_what_nodes_hold = cases(
    norms,
    ELEMENTWISE,
    CLAMPS,
    """
decompose-layer-norm: norms of doubles -> refused: float64
    %y = aten.layer_norm.default(%x: f64[2, 4], [4], none, none, 1e-06)
decompose-group-norm: norms of doubles -> refused: float64
    %y = aten.group_norm.default(%x: f64[2, 4, 3], 2, none, none, 1e-05)
lower-unary: a tensor that no node holds -> refused: rank 7
    %y = aten.abs.default(%x: f32[1, 1, 1, 1, 1, 1, 4])
lower-unary: a tensor that no node holds -> refused: a dimension is 0
    %y = aten.abs.default(%x: f32[2, 0])
lower-unary: a tensor that no node holds -> refused: not known
    %y = aten.abs.default(%x: f32[?, 4]) -> f32[?, 4]
lower-unary: a tensor that no node holds -> refused: not int32
    %y = aten.abs.default(%x: i32[2, 4])
lower-unary: six axes a named size and halves are held -> xnnpack.abs
    - %y = aten.abs.default(%x: f32[1, 1, 1, 1, 2, 4])
    - %y = aten.abs.default(%x: f32[s0, 4])
    - %y = aten.abs.default(%x: f16[2, 4])
lower-sum: floats of two kinds do not meet -> refused: cast one
    %y = aten.add.Tensor(%x: f32[2, 4], %h: f16[2, 4])
lower-clamp: a number of run time is no field -> refused: only at run time
    %n = aten.sym_size.int(%x: f32[s0, 4], 0)
    %y = aten.clamp.default(%x, %n)
""",
)
