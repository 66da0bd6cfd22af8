"""Constants in front of a convolution and behind it go into its weights, if nothing else sees them."""

from typing import Any

import pytest

from stepwell.translate.rewrites.layers.fold_affine_into_layer import FoldAffineIntoLayer
from stepwell.translate.rewrites.layers.fold_constant_into_layer import (
    FoldBiasIntoLayer,
    FoldScaleIntoLayer,
)

X, Y, C = "tensor<1x4x5x5xf32>", "tensor<1x6x5x5xf32>", "tensor<4x1x1xf32>"
G = f'%g = stepwell.weight <"g"> "parameter" : {C}'
B = f'%b = stepwell.weight <"b"> "parameter" : {C}'
SCALE = f"%s = aten.mul.Tensor(%x, %g) : ({X}, {C}) -> {X}"
SHIFT = f"%a = aten.add.Tensor(%x, %b) : ({X}, {C}) -> {X}"
BOTH = f"{SCALE}\n  %a = aten.add.Tensor(%s, %b) : ({X}, {C}) -> {X}"
W = "tensor<6x4x1x1xf32>"
WEIGHT = f'%w = stepwell.weight <"w"> "parameter" : {W}'
BIAS = '%c = stepwell.weight <"c"> "parameter" : tensor<6xf32>'


def convolution(of: str, gives: str, bias: str = "none", *, to: str = Y, more: str = "") -> str:
    """A pointwise convolution; `more` replaces what stands behind the bias."""
    more = more or "[1, 1], [0, 0], [1, 1], false, [0, 0], 1"
    types = f"{X}, {W}" + (", tensor<6xf32>" if bias != "none" else "")
    return f"%{gives} = aten.convolution.default(%{of}, %w, {bias}, {more}) : ({types}) -> {to}"


ONLY = ["aten.convolution.default"]


def test_the_bias_takes_the_shift_too(apply: Any, method: Any) -> None:
    text = method(f"%x: {X}", G, B, WEIGHT, BIAS, BOTH, convolution("a", "y", "%c"), gives=Y)
    assert apply(text, FoldAffineIntoLayer()).ops() == ONLY


def test_each_group_reads_its_own_channels(apply: Any, method: Any) -> None:
    w = "tensor<6x2x3x3xf32>"
    layer = f"%y = aten.convolution.default(%a, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 2) : ({X}, {w}) -> tensor<1x6x3x3xf32>"
    weight = f'%w = stepwell.weight <"w"> "parameter" : {w}'
    text = method(f"%x: {X}", G, B, weight, BOTH, layer, gives="tensor<1x6x3x3xf32>")
    assert apply(text, FoldAffineIntoLayer()).ops() == ONLY


def test_one_factor_for_all_channels_passes_padding(apply: Any, method: Any) -> None:
    padded = "[1, 1], [1, 1], [1, 1], false, [0, 0], 1"
    to = "tensor<1x6x7x7xf32>"
    g = '%g = stepwell.weight <"g"> "parameter" : tensor<1xf32>'
    scale = f"%s = aten.mul.Tensor(%x, %g) : ({X}, tensor<1xf32>) -> {X}"
    layer = convolution("s", "y", to=to, more=padded)
    done = apply(method(f"%x: {X}", g, WEIGHT, scale, layer, gives=to), FoldAffineIntoLayer())
    assert done.ops() == ONLY


def test_two_convolutions_take_the_same_shift(apply: Any, method: Any) -> None:
    layers = [convolution("a", "k"), convolution("a", "l")]
    both = f"%y = aten.mul.Tensor(%k, %l) : ({Y}, {Y}) -> {Y}"
    text = method(f"%x: {X}", B, WEIGHT, SHIFT, *layers, both, gives=Y)
    done = apply(text, FoldAffineIntoLayer())
    assert done.ops() == [*ONLY, *ONLY, "aten.mul.Tensor"]


def test_a_factor_that_is_read_beside_the_sum_stays(apply: Any, method: Any) -> None:
    layer = convolution("a", "k")
    both = f"%y = aten.cat.default([%k, %s], 1) : ({Y}, {X}) -> tensor<1x10x5x5xf32>"
    gives = "tensor<1x10x5x5xf32>"
    text = method(f"%x: {X}", G, B, WEIGHT, BOTH, layer, both, gives=gives)
    done = apply(text, FoldAffineIntoLayer())
    assert done.ops() == ["aten.mul.Tensor", *ONLY, "aten.cat.default"]


def test_a_shift_under_padding_stays(refused: Any, method: Any) -> None:
    to = "tensor<1x6x7x7xf32>"
    layer = convolution("a", "y", to=to, more="[1, 1], [1, 1], [1, 1], false, [0, 0], 1")
    text = method(f"%x: {X}", B, WEIGHT, SHIFT, layer, gives=to)
    refused(text, FoldAffineIntoLayer(), "pads")


def test_a_value_that_others_read_stays(refused: Any, method: Any) -> None:
    both = f"%y = aten.cat.default([%a, %k], 1) : ({X}, {Y}) -> tensor<1x10x5x5xf32>"
    text = method(
        f"%x: {X}", B, WEIGHT, SHIFT, convolution("a", "k"), both, gives="tensor<1x10x5x5xf32>"
    )
    refused(text, FoldAffineIntoLayer(), "aten.cat.default reads")


def test_a_product_that_is_a_filter_too_stays(refused: Any, method: Any) -> None:
    x, w = "tensor<2x2x1x1xf32>", "tensor<2x1x1xf32>"
    weight = f'%g = stepwell.weight <"g"> "parameter" : {w}'
    scale = f"%s = aten.mul.Tensor(%x, %g) : ({x}, {w}) -> {x}"
    layer = f"%y = aten.convolution.default(%s, %s, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : ({x}, {x}) -> {x}"
    refused(method(f"%x: {x}", weight, scale, layer, gives=x), FoldAffineIntoLayer(), "reads")


def test_a_transposed_convolution_keeps_its_input(refused: Any, method: Any) -> None:
    w = '%w = stepwell.weight <"w"> "parameter" : tensor<4x4x1x1xf32>'
    layer = f"%y = aten.convolution.default(%s, %w, none, [1, 1], [0, 0], [1, 1], true, [0, 0], 1) : ({X}, tensor<4x4x1x1xf32>) -> {X}"
    refused(method(f"%x: {X}", G, w, SCALE, layer, gives=X), FoldAffineIntoLayer(), "transposed")


@pytest.mark.parametrize(
    ("held", "given", "reason"),
    [
        (BIAS, f", %w: {W}", "weight is computed"),
        (WEIGHT, ", %c: tensor<6xf32>", "bias is computed"),
    ],
)
def test_weights_known_only_at_run_time_take_nothing_in(
    held: str, given: str, reason: str, refused: Any, method: Any
) -> None:
    layer = convolution("a", "y", "%c")
    text = method(f"%x: {X}{given}", B, held, SHIFT, layer, gives=Y)
    refused(text, FoldAffineIntoLayer(), reason)


@pytest.mark.parametrize(
    "line",
    [
        "%a = aten.add.Tensor(%x, %b, alpha=2) : (X, tensor<4x1x1xf32>) -> X",
        "%a = aten.mul.Tensor(%x, %r) : (X, tensor<5x5xf32>) -> X",
        "%a = aten.mul.Tensor(%x, %x) : (X, X) -> X",
        "%a = aten.neg.default(%x) : (X) -> X",
    ],
)
def test_what_is_no_constant_of_channels_stays(line: str, refused: Any, method: Any) -> None:
    r = '%r = stepwell.weight <"r"> "parameter" : tensor<5x5xf32>'
    line = line.replace("X", X)
    text = method(f"%x: {X}", B, r, WEIGHT, line, convolution("a", "y"), gives=Y)
    refused(text, FoldAffineIntoLayer())


def test_a_constant_that_widens_what_it_scales_stays(refused: Any, method: Any) -> None:
    x, g = "tensor<1x1x5x5xf32>", "tensor<4x1x1xf32>"
    scale = f"%s = aten.mul.Tensor(%x, %g) : ({x}, {g}) -> {X}"
    text = method(f"%x: {x}", G, WEIGHT, scale, convolution("s", "y"), gives=Y)
    refused(text, FoldAffineIntoLayer())


D = "tensor<6x1x1xf32>"


def behind(line: str) -> Any:
    return FoldScaleIntoLayer() if "mul." in line else FoldBiasIntoLayer()


BEHIND = f'%d = stepwell.weight <"d"> "parameter" : {D}'


@pytest.mark.parametrize("bias", ["none", "%c"])
@pytest.mark.parametrize(
    "line",
    [
        f"mul.Tensor(%k, %d) : ({Y}, {D}) -> {Y}",
        f"add.Tensor(%d, %k) : ({D}, {Y}) -> {Y}",
        f"mul.Scalar(%k, 0.5) : ({Y}) -> {Y}",
        f"add.Scalar(%k, 3) : ({Y}) -> {Y}",
    ],
)
def test_a_constant_behind_goes_in(line: str, bias: str, apply: Any, method: Any) -> None:
    layer = convolution("x", "k", bias)
    text = method(f"%x: {X}", WEIGHT, BIAS, BEHIND, layer, f"%y = aten.{line}", gives=Y)
    assert apply(text, behind(line)).ops() == ONLY


def test_a_convolution_that_is_read_without_the_constant_stays(refused: Any, method: Any) -> None:
    scale = f"%s = aten.mul.Tensor(%k, %d) : ({Y}, {D}) -> {Y}"
    both = f"%y = aten.add.Tensor(%k, %s) : ({Y}, {Y}) -> {Y}"
    text = method(f"%x: {X}", WEIGHT, BEHIND, convolution("x", "k"), scale, both, gives=Y)
    refused(text, FoldScaleIntoLayer(), "without the factor")


@pytest.mark.parametrize(
    ("held", "given", "reason"),
    [
        (BIAS, f", %w: {W}", "weight is computed"),
        (WEIGHT, ", %c: tensor<6xf32>", "bias is computed"),
    ],
)
def test_weights_known_only_at_run_time_take_nothing_behind(
    held: str, given: str, reason: str, refused: Any, method: Any
) -> None:
    scale = f"%y = aten.mul.Tensor(%k, %d) : ({Y}, {D}) -> {Y}"
    layer = convolution("x", "k", "%c")
    text = method(f"%x: {X}{given}", held, BEHIND, layer, scale, gives=Y)
    refused(text, FoldScaleIntoLayer(), reason)


def test_a_transposed_convolution_keeps_what_stands_behind(refused: Any, method: Any) -> None:
    w = '%w = stepwell.weight <"w"> "parameter" : tensor<4x4x1x1xf32>'
    layer = f"%k = aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [1, 1], true, [0, 0], 1) : ({X}, tensor<4x4x1x1xf32>) -> {X}"
    scale = f"%y = aten.mul.Tensor(%k, %g) : ({X}, {C}) -> {X}"
    text = method(f"%x: {X}", G, w, layer, scale, gives=X)
    refused(text, FoldScaleIntoLayer(), "transposed")


@pytest.mark.parametrize(
    "line",
    [
        "add.Tensor(%k, %d, alpha=2) : (Y, tensor<6x1x1xf32>) -> Y",
        "mul.Tensor(%k, %r) : (Y, tensor<5x5xf32>) -> Y",
        "mul.Tensor(%k, %k) : (Y, Y) -> Y",
    ],
)
def test_other_products_and_sums_behind_stay(line: str, refused: Any, method: Any) -> None:
    r = '%r = stepwell.weight <"r"> "parameter" : tensor<5x5xf32>'
    line = "%y = aten." + line.replace("Y", Y)
    text = method(f"%x: {X}", r, WEIGHT, BEHIND, convolution("x", "k"), line, gives=Y)
    refused(text, behind(line))


def test_a_constant_behind_another_op_stays(refused: Any, method: Any) -> None:
    lines = (
        f"%k = aten.neg.default(%x) : ({X}) -> {X}",
        f"%y = aten.mul.Scalar(%k, 3) : ({X}) -> {X}",
    )
    refused(method(f"%x: {X}", *lines, gives=X), FoldScaleIntoLayer())


def test_a_convolution_of_integers_stays_one(refused: Any, method: Any) -> None:
    x, w, y = "tensor<1x4x5x5xi64>", "tensor<6x4x1x1xi64>", "tensor<1x6x5x5xi64>"
    weight = f'%w = stepwell.weight <"w"> "parameter" : {w}'
    layer = f"%k = aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : ({x}, {w}) -> {y}"
    scale = f"%y = aten.mul.Scalar(%k, 3) : ({y}) -> {y}"
    text = method(f"%x: {x}", weight, layer, scale, gives=y)
    refused(text, FoldScaleIntoLayer())


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("mul.Scalar(%l, inf)", "the factor is not finite"),
        ("add.Scalar(%l, 1.0e300)", "does not fit float32"),
    ],
)
def test_a_number_that_makes_weights_infinite_stays(
    call: str, reason: str, refused: Any, method: Any
) -> None:
    line = f"%y = aten.{call} : ({Y}) -> {Y}"
    text = method(f"%x: {X}", WEIGHT, convolution("x", "l"), line, gives=Y)
    refused(text, behind(line), reason)
