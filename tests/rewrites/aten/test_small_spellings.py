"""ClampToExtrema and ReciprocalToDivision: special values, and near misses."""

from typing import Any

import torch

from stepwell.translate.rewrites.aten.clamp_to_extrema import ClampToExtrema
from stepwell.translate.rewrites.aten.reciprocal_to_division import ReciprocalToDivision

SPECIAL = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 0.25, -0.25, 1e-40])


def unary(call: str, method: Any, given: str = "f32", made: str = "f32") -> str:
    types = f"(tensor<8x{given}>) -> tensor<8x{made}>"
    return method(
        f"%x: tensor<8x{given}>", f"%y = aten.{call} : {types}", gives=f"tensor<8x{made}>"
    )


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.nan_to_num(7.0, 8.0, 9.0), other.nan_to_num(7.0, 8.0, 9.0))


def test_the_reciprocal_of_special_values_is_what_it_was(apply: Any, method: Any):
    done = apply(unary("reciprocal.default(%x)", method), ReciprocalToDivision())
    assert same(done.program.run(SPECIAL)[0], SPECIAL.reciprocal())


def test_the_reciprocal_of_an_integer_is_refused(refused: Any, method: Any):
    refused(unary("reciprocal.default(%x)", method, "i64"), ReciprocalToDivision(), "is f32")


def test_the_reciprocal_of_a_complex_number_is_refused(refused: Any, method: Any):
    held = "complex<f32>"
    text = unary("reciprocal.default(%x)", method, held, held)
    refused(text, ReciprocalToDivision(), "is complex")


def test_a_clamp_between_tensors_keeps_every_nan(apply: Any, method: Any):
    held = "tensor<8xf32>"
    done = apply(
        method(
            f"%x: {held}, %a: {held}, %b: {held}",
            f"%y = aten.clamp.Tensor(%x, %a, %b) : ({held}, {held}, {held}) -> {held}",
            gives=held,
        ),
        ClampToExtrema(),
    )
    low, high = SPECIAL.roll(3), SPECIAL.roll(5)
    assert same(done.program.run(SPECIAL, low, high)[0], torch.clamp(SPECIAL, low, high))


def test_a_bound_that_promotes_the_tensor_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<8xi32>, %a: tensor<8xf32>",
            "%y = aten.clamp.Tensor(%x, %a) : (tensor<8xi32>, tensor<8xf32>) -> tensor<8xf32>",
            gives="tensor<8xf32>",
        ),
        ClampToExtrema(),
        "promotes",
    )
