"""A number becomes a constant tensor only where that gives the same numbers and types."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.decompositions import constants
from stepwell.translate.lowerings.lowering import step

test_lift_constant_scalar = cases(
    constants,
    """
lift-constant-scalar: alpha multiplies too -> refused: multiplies too
    %y = aten.add.Scalar(%x: f32[2, 3], 2.0, 3)
lift-constant-scalar: a float promotes integers -> refused: cast the tensor
    %y = aten.mul.Scalar(%x: i64[2, 3], 0.5)
lift-constant-scalar: booleans have no arithmetic -> refused: no arithmetic
    %y = aten.mul.Scalar(%x: i1[2, 3], true)
lift-constant-scalar: a half would be rounded -> refused: not exact
    %y = aten.mul.Scalar(%x: f16[2, 3], 0.1)
lift-constant-scalar: a bfloat16 would be rounded -> refused: not exact
    %y = aten.add.Scalar(%x: bf16[2, 3], 257)
lift-constant-scalar: a single would be infinite -> refused: does not fit float32
    %y = aten.mul.Scalar(%x: f32[2, 3], 1e+300)
lift-constant-scalar: a byte would wrap around -> refused: does not fit
    %y = aten.add.Scalar(%x: i8[2, 3], 300)
lift-constant-scalar: the tensor is complex -> refused: complex
    %y = aten.mul.Scalar(%x: complex<f32>[2, 3], 2.0)
lift-constant-scalar: the order of operands is kept -> applied once
    - %y = aten.rsub.Scalar(%x: f32[2, 3], 0.5)
    - %y = aten.div.Scalar(%x: f32[2, 3], 0.5)
lift-constant-scalar: a tensor of rank zero stays one -> aten.mul.Tensor
    %y = aten.mul.Scalar(%x: f32[], 0.5)
lift-constant-scalar: a number known only at run time -> refused: run time
    %y = aten.mul.Scalar(%x: f32[3], %n: int<n>)
lift-constant-scalar: a double holds every number -> aten.mul.Tensor
    %y = aten.mul.Scalar(%x: f64[3], 0.1)
""",
)


@pytest.mark.parametrize("protected", [True, False])
def test_the_scale_of_an_attention_may_be_left_to_its_recognizer(
    protected: bool, apply: Any, method: Any
) -> None:
    q, s = "tensor<1x2x4xf32>", "tensor<1x2x2xf32>"
    lines = (
        f"%s = aten.mul.Scalar(%x, 0.5) : ({q}) -> {q}",
        f"%p = aten.bmm.default(%s, %k) : ({q}, tensor<1x4x2xf32>) -> {s}",
        f"%y = aten._softmax.default(%p, -1, false) : ({s}) -> {s}",
    )
    text = method(f"%x: {q}, %k: tensor<1x4x2xf32>", *lines, gives=s)
    done = apply(text, step(constants.lift_constant_scalar, protect_attention=protected))
    assert done.count == (not protected)
