"""A scale and shift go into the weights behind them only where every reader is such a layer."""

from typing import Any

import pytest

from stepwell.translate.rewrites.layers.fold_affine_into_layer import FoldAffineIntoLayer

X, Y = "tensor<2x4xf32>", "tensor<2x3xf32>"
WEIGHT = '%w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>'
BIAS = '%c = stepwell.weight <"c"> "parameter" : tensor<3xf32>'
SCALE = '%g = stepwell.weight <"g"> "parameter" : tensor<4xf32>'
SHIFT = '%b = stepwell.weight <"b"> "parameter" : tensor<4xf32>'
SCALED = f"%s = aten.mul.Tensor(%x, %g) : ({X}, tensor<4xf32>) -> {X}"
SHIFTED = f"%t = aten.add.Tensor(%s, %b) : ({X}, tensor<4xf32>) -> {X}"


def linear(value: str, name: str = "y") -> str:
    return f"%{name} = aten.linear.default(%{value}, %w) : ({X}, tensor<3x4xf32>) -> {Y}"


def test_scale_and_shift_go_into_weight_and_bias(apply: Any, method: Any) -> None:
    layer = f"%y = aten.linear.default(%t, %w, %c) : ({X}, tensor<3x4xf32>, tensor<3xf32>) -> {Y}"
    lines = (WEIGHT, BIAS, SCALE, SHIFT, SCALED, SHIFTED, layer)
    done = apply(method(f"%x: {X}", *lines, gives=Y), FoldAffineIntoLayer())
    assert done.ops() == ["aten.linear.default"]


def test_three_layers_that_read_one_normalized_value_each_take_the_whole_of_it(
    apply: Any, method: Any
) -> None:
    lines = [linear("t", name) for name in "jkl"]
    ends = (
        f"%m = aten.add.Tensor(%j, %k) : ({Y}, {Y}) -> {Y}",
        f"%y = aten.add.Tensor(%m, %l) : ({Y}, {Y}) -> {Y}",
    )
    text = method(f"%x: {X}", WEIGHT, SCALE, SHIFT, SCALED, SHIFTED, *lines, *ends, gives=Y)
    done = apply(text, FoldAffineIntoLayer())
    assert done.count == 1 and not done.reasons
    assert "aten.mul.Tensor" not in done.ops()


def test_a_scale_read_elsewhere_stays_and_the_shift_goes(apply: Any, method: Any) -> None:
    both = f"%z = aten.neg.default(%s) : ({X}) -> {X}"
    lines = (WEIGHT, SCALE, SHIFT, SCALED, SHIFTED, both, linear("t", "l"))
    more = f"%m = aten.linear.default(%z, %w) : ({X}, tensor<3x4xf32>) -> {Y}"
    end = f"%y = aten.add.Tensor(%l, %m) : ({Y}, {Y}) -> {Y}"
    done = apply(method(f"%x: {X}", *lines, more, end, gives=Y), FoldAffineIntoLayer())
    assert done.ops().count("aten.mul.Tensor") == 1
    assert done.count == 1 and "#scale_columns" not in done.text


NEAR_MISSES = {
    "a factor computed at run time": f"%s = aten.mul.Tensor(%x, %r) : ({X}, {X}) -> {X}",
    "a factor for each row": '%g = stepwell.weight <"g"> "parameter" : tensor<2x1xf32>\n'
    f"  %s = aten.mul.Tensor(%x, %g) : ({X}, tensor<2x1xf32>) -> {X}",
    "a shift times alpha": f"{SHIFT}\n"
    f"  %s = aten.add.Tensor(%x, %b, alpha=2) : ({X}, tensor<4xf32>) -> {X}",
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_it_stays(name: str, refused: Any, method: Any) -> None:
    text = method(f"%x: {X}, %r: {X}", WEIGHT, NEAR_MISSES[name], linear("s"), gives=Y)
    refused(text, FoldAffineIntoLayer())


def test_a_scaled_value_with_another_reader_stays(refused: Any, method: Any) -> None:
    more = f"%n = aten.neg.default(%s) : ({X}) -> {X}"
    layer = f"%l = aten.linear.default(%n, %w) : ({X}, tensor<3x4xf32>) -> {Y}"
    end = f"%y = aten.add.Tensor(%k, %l) : ({Y}, {Y}) -> {Y}"
    lines = (WEIGHT, SCALE, SCALED, more, layer, linear("s", "k"), end)
    refused(method(f"%x: {X}", *lines, gives=Y), FoldAffineIntoLayer(), "nothing is saved")


def test_a_shifted_value_with_another_reader_stays(refused: Any, method: Any) -> None:
    shifted = f"%t = aten.add.Tensor(%x, %b) : ({X}, tensor<4xf32>) -> {X}"
    more = f"%n = aten.neg.default(%t) : ({X}) -> {X}"
    layer = f"%l = aten.linear.default(%n, %w) : ({X}, tensor<3x4xf32>) -> {Y}"
    end = f"%y = aten.add.Tensor(%k, %l) : ({Y}, {Y}) -> {Y}"
    lines = (WEIGHT, SHIFT, shifted, more, layer, linear("t", "k"), end)
    refused(method(f"%x: {X}", *lines, gives=Y), FoldAffineIntoLayer(), "nothing is saved")


def test_a_scaled_value_that_is_also_a_weight_stays(refused: Any, method: Any) -> None:
    square = "tensor<4x4xf32>"
    scaled = f"%s = aten.mul.Tensor(%x, %g) : ({square}, tensor<4xf32>) -> {square}"
    layer = f"%k = aten.linear.default(%s, %v) : ({square}, {square}) -> {square}"
    weight = f'%v = stepwell.weight <"v"> "parameter" : {square}'
    more = f"%y = aten.linear.default(%k, %s) : ({square}, {square}) -> {square}"
    text = method(f"%x: {square}", weight, SCALE, scaled, layer, more, gives=square)
    refused(text, FoldAffineIntoLayer(), "nothing is saved")


def test_a_weight_computed_at_run_time_takes_no_scale(refused: Any, method: Any) -> None:
    text = method(f"%x: {X}, %w: tensor<3x4xf32>", SCALE, SCALED, linear("s"), gives=Y)
    refused(text, FoldAffineIntoLayer(), "weight is computed at run time")


def test_a_bias_computed_at_run_time_takes_no_shift(refused: Any, method: Any) -> None:
    shifted = f"%t = aten.add.Tensor(%x, %b) : ({X}, tensor<4xf32>) -> {X}"
    layer = f"%y = aten.linear.default(%t, %w, %c) : ({X}, tensor<3x4xf32>, tensor<3xf32>) -> {Y}"
    text = method(f"%x: {X}, %c: tensor<3xf32>", WEIGHT, SHIFT, shifted, layer, gives=Y)
    refused(text, FoldAffineIntoLayer(), "bias is computed at run time")


def test_beside_a_bias_computed_at_run_time_a_scale_goes(apply: Any, method: Any) -> None:
    layer = f"%y = aten.linear.default(%s, %w, %c) : ({X}, tensor<3x4xf32>, tensor<3xf32>) -> {Y}"
    text = method(f"%x: {X}, %c: tensor<3xf32>", WEIGHT, SCALE, SCALED, layer, gives=Y)
    assert apply(text, FoldAffineIntoLayer()).ops() == ["aten.linear.default"]


def test_a_layer_without_output_features_takes_no_shift(refused: Any, method: Any) -> None:
    weights = '%w = stepwell.weight <"w"> "parameter" : tensor<4xf32>'
    shifted = f"%t = aten.add.Tensor(%x, %b) : ({X}, tensor<4xf32>) -> {X}"
    layer = f"%y = aten.linear.default(%t, %w) : ({X}, tensor<4xf32>) -> tensor<2xf32>"
    text = method(f"%x: {X}", weights, SHIFT, shifted, layer, gives="tensor<2xf32>")
    refused(text, FoldAffineIntoLayer(), "vector")


def test_a_table_that_an_embedding_reads_too_takes_no_scale(refused: Any, method: Any) -> None:
    looked = f"%x = aten.embedding.default(%w, %i) : (tensor<3x4xf32>, tensor<2xi64>) -> {X}"
    lines = (WEIGHT, SCALE, looked, SCALED, linear("s"))
    refused(method("%i: tensor<2xi64>", *lines, gives=Y), FoldAffineIntoLayer(), "kept twice")
