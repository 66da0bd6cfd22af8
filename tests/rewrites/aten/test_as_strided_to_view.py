"""AsStridedToView: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.decompositions import views
from stepwell.translate.lowerings.lowering import step

test_as_strided_to_view = cases(
    views,
    """
as-strided-to-view: overlapping windows -> refused: overlap
    %y = aten.as_strided.default(%x: f32[6], [5, 2], [1, 1])
as-strided-to-view: a transposition -> refused: reorder
    %y = aten.as_strided.default(%x: f32[2, 3], [3, 2], [1, 3])
as-strided-to-view: a part of the operand -> refused: skip
    %y = aten.as_strided.default(%x: f32[6], [2, 2], [2, 1])
as-strided-to-view: an offset -> refused: offset
    %y = aten.as_strided.default(%x: f32[6], [2, 2], [2, 1], 2)
as-strided-to-view: a computed operand has no known strides -> refused: memory format
    %a = aten.permute.default(%x: f32[2, 3], [1, 0])
    %y = aten.as_strided.default(%a, [6], [1])
as-strided-to-view: computed of what is permuted -> refused: memory format
    %t = aten.permute.default(%x: f32[2, 3], [1, 0])
    %a = aten.neg.default(%t)
    %y = aten.as_strided.default(%a, [6], [1])
as-strided-to-view: a product -> refused: memory format
    %t = aten.permute.default(%x: f32[2, 3], [1, 0])
    %a = aten.matmul.default(%t, %x)
    %y = aten.as_strided.default(%a, [9], [1])
as-strided-to-view: an elementwise result lies as its operands -> aten.neg.default, aten.add.Tensor, aten.view.default
    %n = aten.neg.default(%x: f32[2, 3])
    %a = aten.add.Tensor(%n, %x)
    %y = aten.as_strided.default(%a, [6], [1])
as-strided-to-view: a new tensor of one long axis is dense in any format -> aten.mean.dim
    %a = aten.mean.dim(%x: f32[1, 3, 4, 4], [2, 3], true)
    %y = aten.as_strided.default(%a, [1, 3, 1, 1], [3, 1, 3, 3])
as-strided-to-view: a copy in row major order is read as it lies -> aten.permute.default, aten.contiguous.default, aten.view.default
    %t = aten.permute.default(%x: f32[2, 3], [1, 0])
    %a = aten.contiguous.default(%t)
    %y = aten.as_strided.default(%a, [6], [1])
""",
)


LATE = 'tensor<?xf32, #stepwell.shape<["n"]>>'
NEAR_MISSES = {
    "of a symbolic operand": (LATE, "[2, 2], [2, 1]", "tensor<2x2xf32>", "symbolic"),
    "to a symbolic shape": ("tensor<5xf32>", "[%n], [1]", LATE, "symbolic"),
    "with strides of run time": ("tensor<9xf32>", "[2], [%n]", "tensor<2xf32>", "the strides or"),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_no_view(name: str, refused: Any, method_of_n: Any):
    given, how, made, reason = NEAR_MISSES[name]
    more = ', !stepwell.int<"n">' if "%n" in how else ""
    call = f"%y = aten.as_strided.default(%x, {how}) : ({given}{more}) -> {made}"
    refused(method_of_n(f"%x: {given}", call, gives=made), step(views.as_strided_to_view), reason)
