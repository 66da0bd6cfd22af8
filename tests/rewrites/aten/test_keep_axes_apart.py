"""Attention from images and axes that stay apart: beyond their documented examples, and what they leave alone."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.attention.attend_from_image import attend_from_image
from stepwell.translate.rewrites.sizes.keep_axes_apart import keep_axes_apart


@pytest.mark.parametrize(
    "call",
    [
        "permute.default(%r, [0, 2, 1])",
        "layer_norm.default(%r, [4], none, none, 1.0e-5, false)",
        "gelu.default(%r)",
        "add.Tensor(%r, %r)",
        "mul.Tensor(%r, %v: f32[4])",
        "rms_norm.default(%r, [4])",
        "erf.default(%r)",
    ],
)
def test_the_merge_sinks_below(call: str, apply: Any) -> None:
    text = f"%r = aten.view.default(%x: f32[1, h, w, 4], [1, -1, 4]); %y = aten.{call}"
    done = apply(text, step(keep_axes_apart))
    assert done.count == 1
    *_, last, _ = done.program.module.walk()
    views = [op for op in done.program.module.walk() if op.name == "aten.view.default"]
    assert len(views) == 1 and str(views[0].results[0].type) == str(last.results[0].type)


test_keep_axes_apart = cases(step(keep_axes_apart), step(attend_from_image))("""
keep-axes-apart: along the places -> unchanged
    %r = aten.view.default(%x: f32[1, h, w, 4], [1, -1, 4])
    %z = aten._softmax.default(%r, 1, false); %y = aten.neg.default(%z)
keep-axes-apart: next to other rows -> unchanged
    %r = aten.view.default(%x: f32[1, h, w, 4], [1, -1, 4])
    %z = aten._softmax.default(%r, 1, false); %u = aten.add.Tensor(%r, %z)
    %y = aten.neg.default(%u)
keep-axes-apart: a number for each place -> unchanged
    %r = aten.view.default(%x: f32[1, h, w, 4], [1, -1, 4])
    %z = aten._softmax.default(%r, 1, false); %c = aten.slice.Tensor(%z, 2, 0, 1, 1)
    %u = aten.mul.Tensor(%r, %c); %y = aten.neg.default(%u)
keep-axes-apart: a merge of one symbolic size -> unchanged
    %r = aten.view.default(%x: f32[1, h, 3, 4], [1, -1, 4]); %y = aten.gelu.default(%r)
attend-from-image: a mask of places -> refused: a mask selects
    %q = aten.view.default(%x: f32[1, h, w, 4], [1, 1, -1, 4])
    %y = aten.scaled_dot_product_attention.default(%q, %k: f32[1, 1, n, 4], %k, none, 0.0, true)
""")


test_attend_from_image = cases(step(attend_from_image))("""
one head needs no slices -> applied once; omits aten.slice
    %q = aten.view.default(%x: f32[1, h, w, 4], [1, 1, -1, 4])
    %y = aten.scaled_dot_product_attention.default(%q, %k: f32[1, 1, n, 4], %k)
""")
