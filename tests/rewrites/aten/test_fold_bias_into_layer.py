"""A constant behind a linear layer becomes its bias; anything else that is added stays."""

from typing import Any

from stepwell.translate.rewrites.layers.fold_constant_into_layer import FoldBiasIntoLayer

X, Y = "tensor<2x4xf32>", "tensor<2x3xf32>"
WEIGHT = '%w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>'
LINEAR = f"{WEIGHT}\n  %l = aten.linear.default(%x, %w) : ({X}, tensor<3x4xf32>) -> {Y}"


def test_a_number_becomes_a_bias(apply: Any, method: Any) -> None:
    add = f"%y = aten.add.Scalar(%l, 0.25) : ({Y}) -> {Y}"
    done = apply(method(f"%x: {X}", LINEAR, add, gives=Y), FoldBiasIntoLayer())
    assert done.ops() == ["aten.linear.default"]


def test_two_constants_become_one_bias(apply: Any, method: Any) -> None:
    constant = '%c = stepwell.weight <"c"> "parameter" : tensor<1x3xf32>'
    add = f"%a = aten.add.Tensor(%l, %c) : ({Y}, tensor<1x3xf32>) -> {Y}"
    more = f"%y = aten.add.Scalar(%a, 2.0) : ({Y}) -> {Y}"
    done = apply(method(f"%x: {X}", LINEAR, constant, add, more, gives=Y), FoldBiasIntoLayer())
    assert done.count == 2
    assert done.ops() == ["aten.linear.default"]


def test_a_residual_stays(refused: Any, method: Any) -> None:
    add = f"%y = aten.add.Tensor(%l, %r) : ({Y}, {Y}) -> {Y}"
    refused(method(f"%x: {X}, %r: {Y}", LINEAR, add, gives=Y), FoldBiasIntoLayer())


def test_a_constant_for_each_row_stays(refused: Any, method: Any) -> None:
    constant = '%c = stepwell.weight <"c"> "parameter" : tensor<2x1xf32>'
    add = f"%y = aten.add.Tensor(%l, %c) : ({Y}, tensor<2x1xf32>) -> {Y}"
    refused(method(f"%x: {X}", LINEAR, constant, add, gives=Y), FoldBiasIntoLayer())


def test_a_scaled_constant_stays(refused: Any, method: Any) -> None:
    constant = '%c = stepwell.weight <"c"> "parameter" : tensor<3xf32>'
    add = f"%y = aten.add.Tensor(%l, %c, alpha=2) : ({Y}, tensor<3xf32>) -> {Y}"
    refused(method(f"%x: {X}", LINEAR, constant, add, gives=Y), FoldBiasIntoLayer())


def test_a_bias_known_only_at_run_time_stays(refused: Any, method: Any) -> None:
    linear = f"%l = aten.linear.default(%x, %w, %b) : ({X}, tensor<3x4xf32>, tensor<3xf32>) -> {Y}"
    add = f"%y = aten.add.Scalar(%l, 0.25) : ({Y}) -> {Y}"
    text = method(f"%x: {X}, %b: tensor<3xf32>", WEIGHT, linear, add, gives=Y)
    refused(text, FoldBiasIntoLayer(), "run time")


def test_a_layer_without_output_features_takes_no_bias(refused: Any, method: Any) -> None:
    weights = '%w = stepwell.weight <"w"> "parameter" : tensor<4xf32>'
    constant = '%c = stepwell.weight <"c"> "parameter" : tensor<4xf32>'
    layer = "%l = aten.linear.default(%x, %w) : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4xf32>"
    add = "%y = aten.add.Tensor(%l, %c) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>"
    text = method("%x: tensor<4x4xf32>", weights, constant, layer, add, gives="tensor<4xf32>")
    refused(text, FoldBiasIntoLayer())


def test_a_layer_read_without_the_constant_keeps_it(refused: Any, method: Any) -> None:
    add = f"%a = aten.add.Scalar(%l, 0.25) : ({Y}) -> {Y}"
    both = f"%y = aten.mul.Tensor(%l, %a) : ({Y}, {Y}) -> {Y}"
    text = method(f"%x: {X}", LINEAR, add, both, gives=Y)
    refused(text, FoldBiasIntoLayer(), "read without the constant")


def test_a_constant_added_to_what_is_no_layer_stays(refused: Any, method: Any) -> None:
    add = f"%y = aten.add.Scalar(%n, 0.25) : ({X}) -> {X}"
    text = method(f"%x: {X}", f"%n = aten.neg.default(%x) : ({X}) -> {X}", add, gives=X)
    refused(text, FoldBiasIntoLayer())


def test_a_number_beyond_the_bias_stays(refused: Any, method: Any) -> None:
    add = f"%y = aten.add.Scalar(%l, 1.0e300) : ({Y}) -> {Y}"
    text = method(f"%x: {X}", LINEAR, add, gives=Y)
    refused(text, FoldBiasIntoLayer(), "1e+300 does not fit float32")
