"""A rectifier passes a positive scale where convolutions behind take in what then follows it."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.rewrites.layers.fold_affine_into_layer import FoldAffineIntoLayer
from stepwell.translate.rewrites.xnnpack.expressions import rectify_before_scale

X, Y, C = "tensor<1x4x5x5xf32>", "tensor<1x4x5x5xf32>", "tensor<4x1x1xf32>"
WEIGHTS = [
    f'%g = stepwell.weight <"g#positive"> "parameter" : {C}',
    f'%b = stepwell.weight <"b"> "parameter" : {C}',
    '%w = stepwell.weight <"w"> "parameter" : tensor<4x4x1x1xf32>',
    '%k = stepwell.weight <"k"> "parameter" : tensor<4x4x3x3xf32>',
]
PRODUCT = f"%s = aten.mul.Tensor(%x, %g) : ({X}, {C}) -> {X}"
SUM = f"%a = aten.add.Tensor(%s, %b) : ({X}, {C}) -> {X}"
RELU = f"%r = aten.relu.default(%a) : ({X}) -> {X}"
AFFINE = (*WEIGHTS, PRODUCT, SUM, RELU)


def layer(gives: str, padding: int = 0, of: str = "r", transposed: str = "false") -> str:
    """A convolution of one pixel, or of three by three with padding 1."""
    weight, size = ("%k", 3) if padding else ("%w", 1)
    rest = f"[1, 1], [{padding}, {padding}], [1, 1], {transposed}, [0, 0], 1"
    types = f"({X}, tensor<4x4x{size}x{size}xf32>) -> {Y}"
    return f"%{gives} = aten.convolution.default(%{of}, {weight}, none, {rest}) : {types}"


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


@pytest.mark.parametrize("first", [0, 1])
def test_before_padding_the_factor_alone_goes_in(first: int, apply: Any, method: Any) -> None:
    both = f"%y = aten.mul.Tensor(%p, %q) : ({Y}, {Y}) -> {Y}"
    layers = layer("p", first), layer("q", 1 - first)
    text = method(f"%x: {X}", *AFFINE, *layers, both, gives=Y)
    done = apply(text, rectify_before_scale, FoldAffineIntoLayer())
    assert done.ops()[:2] == ["aten.add.Tensor", "aten.relu.default"]
    assert done.ops()[2:] == ["aten.convolution.default"] * 2 + ["aten.mul.Tensor"]


def test_a_factor_too_small_to_divide_by_stays(programs: Any, method: Any) -> None:
    text = method(
        f"%x: {X}", *(line.replace("g#positive", "g") for line in AFFINE), layer("y"), gives=Y
    )
    program, _ = programs(text)
    program.weights.get("g").fill_(1e-43)
    history = History()
    assert run_rewrites(program, [rule() for rule in rectify_before_scale.RULES], history) == 0
    refusal, *_ = history.refusals.values()
    assert "too small" in refusal.reason


@pytest.mark.parametrize("value", ["s", "a"])
def test_a_value_that_is_read_before_the_rectifier_stays(
    value: str, refused: Any, method: Any
) -> None:
    both = f"%y = aten.mul.Tensor(%{value}, %p) : ({X}, {Y}) -> {Y}"
    text = method(f"%x: {X}", *AFFINE, layer("p"), both, gives=Y)
    refused(text, rectify_before_scale, "before it is rectified")
