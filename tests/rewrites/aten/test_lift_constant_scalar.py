"""A number becomes a constant tensor only where that gives the same numbers and types."""

from typing import Any

import pytest

from stepwell.translate.rewrites.aten.lift_constant_scalar import LiftConstantScalar

NEAR_MISSES = {
    "alpha multiplies too": ("f32", "add.Scalar(%x, 2.0, 3)", "f32", "multiplies too"),
    "a float promotes integers": ("i64", "mul.Scalar(%x, 0.5)", "f32", "cast the tensor"),
    "booleans have no arithmetic": ("i1", "mul.Scalar(%x, true)", "i1", "no arithmetic"),
    "a half would be rounded": ("f16", "mul.Scalar(%x, 0.1)", "f16", "not exact"),
    "a bfloat16 would be rounded": ("bf16", "add.Scalar(%x, 257)", "bf16", "not exact"),
    "a byte would wrap around": ("i8", "add.Scalar(%x, 300)", "i8", "does not fit"),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_the_number_stays_where(name: str, refused: Any, method: Any) -> None:
    held, call, given, reason = NEAR_MISSES[name]
    line = f"%y = aten.{call} : (tensor<2x3x{held}>) -> tensor<2x3x{given}>"
    text = method(f"%x: tensor<2x3x{held}>", line, gives=f"tensor<2x3x{given}>")
    refused(text, LiftConstantScalar(), reason)


@pytest.mark.parametrize("form", ["rsub.Scalar(%x, 0.5)", "div.Scalar(%x, 0.5)"])
def test_the_order_of_operands_is_kept(form: str, apply: Any, method: Any) -> None:
    line = f"%y = aten.{form} : (tensor<2x3xf32>) -> tensor<2x3xf32>"
    done = apply(method("%x: tensor<2x3xf32>", line, gives="tensor<2x3xf32>"), LiftConstantScalar())
    assert done.count == 1


def test_a_tensor_of_rank_zero_stays_one(apply: Any, method: Any) -> None:
    line = "%y = aten.mul.Scalar(%x, 0.5) : (tensor<f32>) -> tensor<f32>"
    done = apply(method("%x: tensor<f32>", line, gives="tensor<f32>"), LiftConstantScalar())
    assert done.ops() == ["aten.mul.Tensor"]
