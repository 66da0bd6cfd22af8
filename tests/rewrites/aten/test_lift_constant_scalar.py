"""A number becomes a constant tensor only where that gives the same numbers and types."""

from typing import Any

import pytest

from stepwell.translate.decompositions.aten import constants
from stepwell.translate.lowerings.lowering import step

NEAR_MISSES = {
    "alpha multiplies too": ("f32", "add.Scalar(%x, 2.0, 3)", "f32", "multiplies too"),
    "a float promotes integers": ("i64", "mul.Scalar(%x, 0.5)", "f32", "cast the tensor"),
    "booleans have no arithmetic": ("i1", "mul.Scalar(%x, true)", "i1", "no arithmetic"),
    "a half would be rounded": ("f16", "mul.Scalar(%x, 0.1)", "f16", "not exact"),
    "a bfloat16 would be rounded": ("bf16", "add.Scalar(%x, 257)", "bf16", "not exact"),
    "a single would be infinite": ("f32", "mul.Scalar(%x, 1.0e300)", "f32", "does not fit float32"),
    "a byte would wrap around": ("i8", "add.Scalar(%x, 300)", "i8", "does not fit"),
    "the tensor is complex": ("complex<f32>", "mul.Scalar(%x, 2.0)", "complex<f32>", "complex"),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_the_number_stays_where(name: str, refused: Any, method: Any) -> None:
    held, call, given, reason = NEAR_MISSES[name]
    line = f"%y = aten.{call} : (tensor<2x3x{held}>) -> tensor<2x3x{given}>"
    text = method(f"%x: tensor<2x3x{held}>", line, gives=f"tensor<2x3x{given}>")
    refused(text, step(constants.lift_constant_scalar), reason)


@pytest.mark.parametrize("form", ["rsub.Scalar(%x, 0.5)", "div.Scalar(%x, 0.5)"])
def test_the_order_of_operands_is_kept(form: str, apply: Any, method: Any) -> None:
    line = f"%y = aten.{form} : (tensor<2x3xf32>) -> tensor<2x3xf32>"
    done = apply(
        method("%x: tensor<2x3xf32>", line, gives="tensor<2x3xf32>"),
        step(constants.lift_constant_scalar),
    )
    assert done.count == 1


def test_a_tensor_of_rank_zero_stays_one(apply: Any, method: Any) -> None:
    line = "%y = aten.mul.Scalar(%x, 0.5) : (tensor<f32>) -> tensor<f32>"
    done = apply(
        method("%x: tensor<f32>", line, gives="tensor<f32>"), step(constants.lift_constant_scalar)
    )
    assert done.ops() == ["aten.mul.Tensor"]


def test_a_number_known_only_at_run_time_stays(refused: Any, method_of_n: Any) -> None:
    line = '%y = aten.mul.Scalar(%x, %n) : (tensor<3xf32>, !stepwell.int<"n">) -> tensor<3xf32>'
    text = method_of_n("%x: tensor<3xf32>", line, gives="tensor<3xf32>")
    refused(text, step(constants.lift_constant_scalar), "run time")


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


def test_a_double_holds_every_number(apply: Any, method: Any) -> None:
    line = "%y = aten.mul.Scalar(%x, 0.1) : (tensor<3xf64>) -> tensor<3xf64>"
    done = apply(
        method("%x: tensor<3xf64>", line, gives="tensor<3xf64>"),
        step(constants.lift_constant_scalar),
    )
    assert done.ops() == ["aten.mul.Tensor"]
