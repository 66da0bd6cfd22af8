"""A factor behind a linear layer goes into its weights only if nothing else sees the product."""

from typing import Any

import torch
from rewrite_cases import cases

from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import run_rewrites
from stepwell.ir.weights import WeightStore
from stepwell.translate.rewrites.layers.fold_constant_into_layer import FoldScaleIntoLayer

X, Y = "tensor<2x4xf32>", "tensor<2x3xf32>"
LINEAR = f"""%w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
  %b = stepwell.weight <"b"> "parameter" : tensor<3xf32>
  %l = aten.linear.default(%x, %w, %b) : ({X}, tensor<3x4xf32>, tensor<3xf32>) -> {Y}"""


test_fold_scale_into_layer = cases(
    FoldScaleIntoLayer,
    """
the bias is scaled too -> aten.linear.default
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
    %y = aten.mul.Scalar(%l, 0.25)
a factor for each feature is taken in -> aten.linear.default
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
    %y = aten.mul.Tensor(%l, %s: weight f32[3])
a factor for each row -> unchanged
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
    %y = aten.mul.Tensor(%l, %s: weight f32[2, 1])
a product that is read unscaled -> refused: read without the factor
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
    %s = aten.mul.Scalar(%l, 0.25)
    %y = aten.add.Tensor(%l, %s)
weights known only at run time -> refused: run time
    %l = aten.linear.default(%x: f32[2, 4], %w: f32[3, 4])
    %y = aten.mul.Scalar(%l, 0.25)
a layer without output features keeps its weight -> unchanged
    %l = aten.linear.default(%x: f32[4, 4], %w: weight f32[4])
    %y = aten.mul.Tensor(%l, %s: weight f32[4])
a layer of integers -> unchanged
    %l = aten.linear.default(%x: i64[2, 4], %w: weight i64[3, 4])
    %y = aten.mul.Scalar(%l, 3)
a factor that broadcasts the product -> unchanged
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
    %y = aten.mul.Tensor(%l, %s: weight f32[1, 1, 3])
a factor for a value that is no layer -> unchanged
    %n = aten.neg.default(%x: f32[2, 4])
    %y = aten.mul.Scalar(%n, 0.25)
a bias known only at run time -> refused: run time
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: f32[3])
    %y = aten.mul.Scalar(%l, 0.25)
a factor that makes weights infinite -> refused: the factor is not finite
    - %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
      %y = aten.mul.Scalar(%l, inf)
    - %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
      %y = aten.mul.Scalar(%l, -inf)
    - %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
      %y = aten.mul.Scalar(%l, 1e+300)
""",
)


def test_a_factor_for_each_feature_is_finite(method: Any) -> None:
    weights = WeightStore()
    weights.add("w", torch.randn(3, 4))
    weights.add("b", torch.randn(3))
    weights.add("s", torch.tensor([1.0, torch.inf, 2.0]))
    factor = '%s = stepwell.weight <"s"> "parameter" : tensor<3xf32>'
    scale = f"%y = aten.mul.Tensor(%l, %s) : ({Y}, tensor<3xf32>) -> {Y}"
    program = Program.parse(method(f"%x: {X}", LINEAR, factor, scale, gives=Y), weights)
    assert run_rewrites(program, (FoldScaleIntoLayer(),)) == 0
