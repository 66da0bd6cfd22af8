"""SinkDequantize: beyond its documented example, and what it leaves alone."""

from typing import Any

from rewrite_cases import cases

from stepwell.translate.rewrites.quant.sink_dequantize import (
    SinkDequantize,
    SinkDequantizeAlongAxis,
)

test_sink_dequantize = cases(
    SinkDequantize,
    SinkDequantizeAlongAxis,
    """
sink-dequantize: a concatenation of equal scales moves integers -> quant.scast, quant.scast, aten.cat.default, quant.scast, quant.dcast
    %ar = quant.dcast(%a: i8<0.5:3>[4])
    %br = quant.dcast(%b: i8<0.5:3>[4])
    %y = aten.cat.default([%ar, %br])
sink-dequantize: a concatenation of different scales moves reals -> unchanged
    %ar = quant.dcast(%a: i8<0.5:3>[4])
    %br = quant.dcast(%b: i8<0.25>[4])
    %y = aten.cat.default([%ar, %br])
sink-dequantize: an operand that was never quantized moves as a real -> unchanged
    %ar = quant.dcast(%a: i8<0.5:3>[4])
    %n = aten.neg.default(%b: f32[4])
    %y = aten.cat.default([%ar, %n])
sink-dequantize: all parts of a split are dequantized -> quant.scast, aten.split.Tensor, quant.scast, quant.dcast, quant.scast, quant.dcast
    %ar = quant.dcast(%a: i8<0.5:3>[4])
    %p, %y = aten.split.Tensor(%ar, 2)
sink-dequantize: dropout in training computes -> unchanged
    %ar = quant.dcast(%a: i8<0.5:3>[4])
    %y = aten.dropout.default(%ar, 0.0, true)
sink-dequantize-along-axis: scales along an axis follow nothing else -> refused: follow a permutation only
    %ar = quant.dcast(%a: i8<:0, {0.5, 0.25}>[2, 3])
    %y = aten.view.default(%ar, [6])
sink-dequantize-along-axis: one scale for all is no business of scales along an axis -> unchanged
    %ar = quant.dcast(%a: i8<0.5:3>[4])
    %y = aten.view.default(%ar, [2, 2])
""",
)


def test_scales_along_an_axis_follow_its_permutation(apply: Any):
    done = apply(
        """
        %ar = quant.dcast(%a: i8<:0, {0.5, 0.25}>[2, 3])
        %y = aten.t.default(%ar)
        """,
        SinkDequantizeAlongAxis(),
    )
    assert "f32:1, {0.5, 0.25}" in done.text
