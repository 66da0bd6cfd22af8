"""LiftNumberOperand: numbers that are given for tensors, and those that would promote."""

from typing import Any

import pytest
import torch

import stepwell
from stepwell.translate.rewrites.constants.lift_number_operand import LiftNumberOperand


def divided(number: str, kind: str, held: str, method: Any, gives: str | None = None) -> str:
    x = f"tensor<2x3x{held}>"
    y = f"tensor<2x3x{gives or held}>"
    return method(
        f"%x: {x}",
        f"%n = sym.constant {number} : {kind}",
        f"%y = aten.floor_divide.default(%x, %n) : ({x}, {kind}) -> {y}",
        gives=y,
    )


INT, FLOAT, TENTH = '!stepwell.int<"2">', '!stepwell.float<"2.5">', '!stepwell.float<"0.1">'


@pytest.mark.parametrize(
    ("number", "kind", "held"),
    [
        ("2 : i64", INT, "i32"),
        ("2 : i64", INT, "f32"),
        ("2 : i64", INT, "f16"),
        ("2.5 : f64", FLOAT, "f16"),
        ("0.1 : f64", TENTH, "f32"),
    ],
)
def test_a_number_of_the_operands_kind_is_a_constant(
    number: str, kind: str, held: str, apply: Any, method: Any
):
    done = apply(divided(number, kind, held, method), LiftNumberOperand())
    assert done.ops() == ["aten.floor_divide.default"]


@pytest.mark.parametrize(
    ("number", "kind", "held", "gives"),
    [
        ("2.5 : f64", FLOAT, "i64", "f32"),
        ("2 : i64", INT, "i1", "i64"),
        ("0.1 : f64", TENTH, "f16", "f16"),
    ],
)
def test_a_number_that_promotes_or_is_rounded_stays(
    number: str, kind: str, held: str, gives: str, refused: Any, method: Any
):
    refused(divided(number, kind, held, method, gives), LiftNumberOperand(), "promotes")


def test_a_truth_value_stays(refused: Any, method: Any):
    text = divided("true", '!stepwell.bool<"True">', "i64", method)
    refused(text, LiftNumberOperand(), "promotes")


def test_a_number_that_sizes_something_stays(refused: Any, method: Any):
    text = method(
        "%x: tensor<2x3xf32>",
        f"%n = sym.constant 2 : i64 : {INT}",
        f"%y = aten.full.default([%n, 3], 1.0) : ({INT}) -> tensor<2x3xf32>",
        gives="tensor<2x3xf32>",
    )
    refused(text, LiftNumberOperand())


def test_a_number_read_beside_several_dtypes_stays(refused: Any, method: Any):
    one, other = "tensor<2xf32>", "tensor<2xi64>"
    text = method(
        f"%x: {one}, %z: {other}",
        f"%n = sym.constant 2 : i64 : {INT}",
        f"%y = aten.floor_divide.default(%x, %n) : ({one}, {INT}) -> {one}",
        f"%w = aten.floor_divide.default(%z, %n) : ({other}, {INT}) -> {other}",
        f"%s = aten.add.Tensor(%y, %w) : ({one}, {other}) -> {one}",
        gives=one,
    ).replace("return %y", "return %s")
    refused(text, LiftNumberOperand(), "several dtypes")


class Halves(torch.nn.Module):
    """Whole halves, in the way most people write them."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x // 2, n // 2


def test_whole_division_by_a_number_runs_on_the_runtime():
    inputs = (torch.tensor([-3.0, 5.5]), torch.tensor([-3, 5]))
    lowered = stepwell.lower(torch.export.export(Halves(), inputs), "xnnpack")
    for found, wanted in zip(lowered.run(*inputs), Halves()(*inputs), strict=True):
        torch.testing.assert_close(found, wanted)
