"""ReciprocalToDivision: special values, and near misses."""

from typing import Any

import torch

from stepwell.translate.decompositions.aten import arithmetic
from stepwell.translate.lowerings.lowering import step

SPECIAL = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 0.25, -0.25, 1e-40])


def unary(call: str, method: Any, given: str = "f32", made: str = "f32") -> str:
    types = f"(tensor<8x{given}>) -> tensor<8x{made}>"
    return method(
        f"%x: tensor<8x{given}>", f"%y = aten.{call} : {types}", gives=f"tensor<8x{made}>"
    )


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.nan_to_num(7.0, 8.0, 9.0), other.nan_to_num(7.0, 8.0, 9.0))


def test_the_reciprocal_of_special_values_is_what_it_was(apply: Any, method: Any):
    done = apply(unary("reciprocal.default(%x)", method), step(arithmetic.reciprocal_to_division))
    assert same(done.program.run(SPECIAL)[0], SPECIAL.reciprocal())


def test_the_reciprocal_of_an_integer_is_refused(refused: Any, method: Any):
    refused(
        unary("reciprocal.default(%x)", method, "i64"),
        step(arithmetic.reciprocal_to_division),
        "is f32",
    )


def test_the_reciprocal_of_a_complex_number_is_refused(refused: Any, method: Any):
    held = "complex<f32>"
    text = unary("reciprocal.default(%x)", method, held, held)
    refused(text, step(arithmetic.reciprocal_to_division), "is complex")
