"""A rectifier passes a positive scale where convolutions behind take in what then follows it."""

from typing import Any

import pytest
from rewrite_cases import cases
from rewrite_runs import program_of

from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.rewrites.layers.fold_affine_into_layer import FoldAffineIntoLayer
from stepwell.translate.rewrites.xnnpack.expressions import rectify_before_scale

AFFINE = """
    %s = aten.mul.Tensor(%x: f32[1, 4, 5, 5], %g: weight "g#positive" f32[4, 1, 1])
    %a = aten.add.Tensor(%s, %b: weight f32[4, 1, 1]); %r = aten.relu.default(%a)
"""
PIXELS = "aten.convolution.default(%r, %w: weight f32[4, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)"
PADDED = "aten.convolution.default(%r, %k: weight f32[4, 4, 3, 3], none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)"


test_rectify_before_scale = cases(rectify_before_scale, FoldAffineIntoLayer)("""
a norm before a rectifier is one maximum -> aten.maximum.default, aten.convolution.default
    %s = aten.mul.Tensor(%x: f32[1, 4, 5, 5], %g: weight "g#positive" f32[4, 1, 1])
    %a = aten.add.Tensor(%s, %b: weight f32[4, 1, 1]); %r = aten.relu.default(%a)
    %y = aten.convolution.default(%r, %w: weight f32[4, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
""")


test_rectify_before_scale_alone = cases(rectify_before_scale)("""
a factor that is not positive -> refused: not positive
    %s = aten.mul.Tensor(%x: f32[1, 4, 5, 5], %g: weight "g#zeros" f32[4, 1, 1])
    %a = aten.add.Tensor(%s, %b: weight f32[4, 1, 1]); %r = aten.relu.default(%a)
    %y = aten.convolution.default(%r, %w: weight f32[4, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
a rectified value that others read -> refused: aten.add.Tensor reads
    %s = aten.mul.Tensor(%x: f32[1, 4, 5, 5], %g: weight "g#positive" f32[4, 1, 1])
    %a = aten.add.Tensor(%s, %b: weight f32[4, 1, 1]); %r = aten.relu.default(%a)
    %p = aten.convolution.default(%r, %w: weight f32[4, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.add.Tensor(%r, %p)
a transposed convolution takes nothing -> refused: transposed
    %s = aten.mul.Tensor(%x: f32[1, 4, 5, 5], %g: weight "g#positive" f32[4, 1, 1])
    %a = aten.add.Tensor(%s, %b: weight f32[4, 1, 1]); %r = aten.relu.default(%a)
    %y = aten.convolution.default(%r, %w: weight f32[4, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], true, [0, 0], 1)
what is no scale and shift -> unchanged
    - %r = aten.relu.default(%x: f32[1, 4, 5, 5])
      %y = aten.convolution.default(%r, %w: weight f32[4, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    - %a = aten.add.Tensor(%x: f32[1, 4, 5, 5], %b: weight f32[4, 1, 1]); %r = aten.relu.default(%a)
      %y = aten.convolution.default(%r, %w: weight f32[4, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
""")


@pytest.mark.parametrize(("one", "other"), [(PIXELS, PADDED), (PADDED, PIXELS)])
def test_before_padding_the_factor_alone_goes_in(one: str, other: str, apply: Any) -> None:
    text = f"{AFFINE}; %p = {one}; %q = {other}; %y = aten.mul.Tensor(%p, %q)"
    done = apply(text, rectify_before_scale, FoldAffineIntoLayer())
    assert done.ops()[:2] == ["aten.add.Tensor", "aten.relu.default"]
    assert done.ops()[2:] == ["aten.convolution.default"] * 2 + ["aten.mul.Tensor"]


def test_a_factor_too_small_to_divide_by_stays() -> None:
    program = program_of(f"{AFFINE}; %y = {PIXELS}".replace(' "g#positive"', ""))
    program.weights.get("g").fill_(1e-43)
    history = History()
    assert run_rewrites(program, [rule() for rule in rectify_before_scale.RULES], history) == 0
    refusal, *_ = history.refusals.values()
    assert "too small" in refusal.reason


@pytest.mark.parametrize("value", ["%s", "%a"])
def test_a_value_that_is_read_before_the_rectifier_stays(value: str, refused: Any) -> None:
    text = f"{AFFINE}; %p = {PIXELS}; %y = aten.mul.Tensor({value}, %p)"
    refused(text, rectify_before_scale, "before it is rectified")
