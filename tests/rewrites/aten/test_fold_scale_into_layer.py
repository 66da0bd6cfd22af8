"""A factor behind a linear layer goes into its weights only if nothing else sees the product."""

from typing import Any

import pytest
import torch

from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import run_rewrites
from stepwell.ir.weights import WeightStore
from stepwell.translate.rewrites.layers.fold_constant_into_layer import FoldScaleIntoLayer

X, Y = "tensor<2x4xf32>", "tensor<2x3xf32>"
LINEAR = f"""%w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
  %b = stepwell.weight <"b"> "parameter" : tensor<3xf32>
  %l = aten.linear.default(%x, %w, %b) : ({X}, tensor<3x4xf32>, tensor<3xf32>) -> {Y}"""


def test_the_bias_is_scaled_too(apply: Any, method: Any) -> None:
    scale = f"%y = aten.mul.Scalar(%l, 0.25) : ({Y}) -> {Y}"
    done = apply(method(f"%x: {X}", LINEAR, scale, gives=Y), FoldScaleIntoLayer())
    assert done.ops() == ["aten.linear.default"]


def test_a_factor_for_each_feature_is_taken_in(apply: Any, method: Any) -> None:
    factor = '%s = stepwell.weight <"s"> "parameter" : tensor<3xf32>'
    scale = f"%y = aten.mul.Tensor(%l, %s) : ({Y}, tensor<3xf32>) -> {Y}"
    done = apply(method(f"%x: {X}", LINEAR, factor, scale, gives=Y), FoldScaleIntoLayer())
    assert done.ops() == ["aten.linear.default"]


def test_a_factor_for_each_row_stays(refused: Any, method: Any) -> None:
    factor = '%s = stepwell.weight <"s"> "parameter" : tensor<2x1xf32>'
    scale = f"%y = aten.mul.Tensor(%l, %s) : ({Y}, tensor<2x1xf32>) -> {Y}"
    refused(method(f"%x: {X}", LINEAR, factor, scale, gives=Y), FoldScaleIntoLayer())


def test_a_product_that_is_read_unscaled_stays(refused: Any, method: Any) -> None:
    scale = f"%s = aten.mul.Scalar(%l, 0.25) : ({Y}) -> {Y}"
    both = f"%y = aten.add.Tensor(%l, %s) : ({Y}, {Y}) -> {Y}"
    text = method(f"%x: {X}", LINEAR, scale, both, gives=Y)
    refused(text, FoldScaleIntoLayer(), "read without the factor")


def test_weights_known_only_at_run_time_stay(refused: Any, method: Any) -> None:
    linear = f"%l = aten.linear.default(%x, %w) : ({X}, tensor<3x4xf32>) -> {Y}"
    scale = f"%y = aten.mul.Scalar(%l, 0.25) : ({Y}) -> {Y}"
    text = method(f"%x: {X}, %w: tensor<3x4xf32>", linear, scale, gives=Y)
    refused(text, FoldScaleIntoLayer(), "run time")


def test_a_layer_without_output_features_keeps_its_weight(refused: Any, method: Any) -> None:
    weights = '%w = stepwell.weight <"w"> "parameter" : tensor<4xf32>'
    factor = '%s = stepwell.weight <"s"> "parameter" : tensor<4xf32>'
    layer = "%l = aten.linear.default(%x, %w) : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4xf32>"
    scale = "%y = aten.mul.Tensor(%l, %s) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>"
    text = method("%x: tensor<4x4xf32>", weights, factor, layer, scale, gives="tensor<4xf32>")
    refused(text, FoldScaleIntoLayer())


def test_a_layer_of_integers_stays_one(refused: Any, method: Any) -> None:
    weights = '%w = stepwell.weight <"w"> "parameter" : tensor<3x4xi64>'
    layer = (
        "%l = aten.linear.default(%x, %w) : (tensor<2x4xi64>, tensor<3x4xi64>) -> tensor<2x3xi64>"
    )
    scale = "%y = aten.mul.Scalar(%l, 3) : (tensor<2x3xi64>) -> tensor<2x3xi64>"
    text = method("%x: tensor<2x4xi64>", weights, layer, scale, gives="tensor<2x3xi64>")
    refused(text, FoldScaleIntoLayer())


def test_a_factor_that_broadcasts_the_product_stays(refused: Any, method: Any) -> None:
    factor = '%s = stepwell.weight <"s"> "parameter" : tensor<1x1x3xf32>'
    scale = f"%y = aten.mul.Tensor(%l, %s) : ({Y}, tensor<1x1x3xf32>) -> tensor<1x2x3xf32>"
    text = method(f"%x: {X}", LINEAR, factor, scale, gives="tensor<1x2x3xf32>")
    refused(text, FoldScaleIntoLayer())


def test_a_factor_for_a_value_that_is_no_layer_stays(refused: Any, method: Any) -> None:
    scale = f"%y = aten.mul.Scalar(%n, 0.25) : ({X}) -> {X}"
    text = method(f"%x: {X}", f"%n = aten.neg.default(%x) : ({X}) -> {X}", scale, gives=X)
    refused(text, FoldScaleIntoLayer())


def test_a_bias_known_only_at_run_time_stays(refused: Any, method: Any) -> None:
    weight = '%w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>'
    linear = f"%l = aten.linear.default(%x, %w, %b) : ({X}, tensor<3x4xf32>, tensor<3xf32>) -> {Y}"
    scale = f"%y = aten.mul.Scalar(%l, 0.25) : ({Y}) -> {Y}"
    text = method(f"%x: {X}, %b: tensor<3xf32>", weight, linear, scale, gives=Y)
    refused(text, FoldScaleIntoLayer(), "run time")


@pytest.mark.parametrize("factor", ["inf", "-inf", "1.0e300"])
def test_a_factor_that_makes_weights_infinite_stays(factor: str, refused: Any, method: Any) -> None:
    scale = f"%y = aten.mul.Scalar(%l, {factor}) : ({Y}) -> {Y}"
    text = method(f"%x: {X}", LINEAR, scale, gives=Y)
    refused(text, FoldScaleIntoLayer(), "the factor is not finite")


def test_a_factor_for_each_feature_is_finite(method: Any) -> None:
    weights = WeightStore()
    weights.add("w", torch.randn(3, 4))
    weights.add("b", torch.randn(3))
    weights.add("s", torch.tensor([1.0, torch.inf, 2.0]))
    factor = '%s = stepwell.weight <"s"> "parameter" : tensor<3xf32>'
    scale = f"%y = aten.mul.Tensor(%l, %s) : ({Y}, tensor<3xf32>) -> {Y}"
    program = Program.parse(method(f"%x: {X}", LINEAR, factor, scale, gives=Y), weights)
    assert run_rewrites(program, (FoldScaleIntoLayer(),)) == 0
