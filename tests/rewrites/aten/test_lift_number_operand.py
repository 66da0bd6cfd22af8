"""LiftNumberOperand: numbers that are given for tensors, and those that would promote."""

import torch
from rewrite_cases import cases

import stepwell
from stepwell.translate.rewrites.constants.lift_number_operand import LiftNumberOperand

test_lift_number_operand = cases(
    LiftNumberOperand,
    """
a number of the operands kind is a constant -> aten.floor_divide.default
    - %n = sym.constant 2 : i64 : !stepwell.int<"2">; %y = aten.floor_divide.default(%x: i32[2, 3], %n)
    - %n = sym.constant 2 : i64 : !stepwell.int<"2">; %y = aten.floor_divide.default(%x: f32[2, 3], %n)
    - %n = sym.constant 2 : i64 : !stepwell.int<"2">; %y = aten.floor_divide.default(%x: f16[2, 3], %n)
    - %n = sym.constant 2.500000e+00 : f64 : !stepwell.float<"2.5">
      %y = aten.floor_divide.default(%x: f16[2, 3], %n)
    - %n = sym.constant 1.000000e-01 : f64 : !stepwell.float<"0.1">
      %y = aten.floor_divide.default(%x: f32[2, 3], %n)
a number that promotes or is rounded -> refused: promotes
    - %n = sym.constant 2.500000e+00 : f64 : !stepwell.float<"2.5">
      %y = aten.floor_divide.default(%x: i64[2, 3], %n)
    - %n = sym.constant 2 : i64 : !stepwell.int<"2">; %y = aten.floor_divide.default(%x: i1[2, 3], %n)
    - %n = sym.constant 1.000000e-01 : f64 : !stepwell.float<"0.1">
      %y = aten.floor_divide.default(%x: f16[2, 3], %n)
a truth value -> refused: promotes
    %n = sym.constant true : !stepwell.bool<"True">
    %y = aten.floor_divide.default(%x: i64[2, 3], %n)
a number that sizes something -> unchanged
    %n = sym.constant 2 : i64 : !stepwell.int<"2">
    %y = aten.full.default([%n, 3], 1.0)
a number read beside several dtypes -> refused: several dtypes
    %n = sym.constant 2 : i64 : !stepwell.int<"2">
    %y = aten.floor_divide.default(%x: f32[2], %n)
    %w = aten.floor_divide.default(%z: i64[2], %n)
    %s = aten.add.Tensor(%y, %w)
""",
)


class Halves(torch.nn.Module):
    """Whole halves, in the way most people write them."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x // 2, n // 2


def test_whole_division_by_a_number_runs_on_the_runtime():
    inputs = (torch.tensor([-3.0, 5.5]), torch.tensor([-3, 5]))
    lowered = stepwell.lower(torch.export.export(Halves(), inputs), "xnnpack")
    for found, wanted in zip(lowered.run(*inputs), Halves()(*inputs), strict=True):
        torch.testing.assert_close(found, wanted)
