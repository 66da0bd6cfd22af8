"""ExpandPower: every whole exponent, the ends of float32, and what stays a kernel."""

from typing import Any

import torch
from rewrite_cases import cases
from torch import Tensor, nn

import stepwell
from stepwell.translate.decompositions import arithmetic
from stepwell.translate.lowerings.lowering import step


class Powers(nn.Module):
    def __init__(self, *exponents: float) -> None:
        super().__init__()
        self.exponents = exponents

    def forward(self, x: Tensor) -> list[Tensor]:
        return [x**exponent for exponent in self.exponents]


WHOLE = (4, 5, 7, 10, 31, 64, -3, -4, -9, 6.0)
EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 1.5, -2.0, 1e-3, 3e38, -3e38, 1e10, float("inf")])


def test_whole_powers_run_in_one_delegate() -> None:
    x = torch.cat([EDGES, torch.tensor([float("-inf"), float("nan")]), torch.randn(99)])
    module = Powers(*WHOLE)
    exported = torch.export.export(module, (x,))
    lowered = stepwell.lower(exported, "xnnpack", numerics="finite")  # Reciprocals of denormals.
    assert lowered.report.delegates == 1
    assert not lowered.report.outside
    tiny = torch.finfo(torch.float32).tiny
    for found, wanted in zip(lowered.run(x), module(x), strict=True):
        limit = arithmetic.LARGEST_EXPONENT * 2.0**-24
        torch.testing.assert_close(found, wanted, rtol=limit, atol=4 * tiny, equal_nan=True)
        large = wanted.abs() >= tiny
        assert torch.equal(found[large].signbit(), wanted[large].signbit())


test_expand_power = cases(
    arithmetic,
    """
expand-power: 2.5-f32--roots lose the sign -> refused: roots lose the sign
    %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], 2.5)
expand-power: 65-f32--from 2 to 64 -> refused: from 2 to 64
    %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], 65)
expand-power: -65-f32--from 2 to 64 -> refused: from 2 to 64
    %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], -65)
expand-power: 1-f32--from 2 to 64 -> refused: from 2 to 64
    %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], 1)
expand-power: 0-f32--from 2 to 64 -> refused: from 2 to 64
    %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], 0)
expand-power: 4-f64--in float32 -> refused: in float32
    %y = aten.pow.Tensor_Scalar(%x: f64[2, 3], 4)
expand-power: 4-i64--in float32 -> refused: in float32
    %y = aten.pow.Tensor_Scalar(%x: i64[2, 3], 4)
expand-power: 4.0-i64-f32-in float32 -> refused: in float32
    %y = aten.pow.Tensor_Scalar(%x: i64[2, 3], 4.0)
""",
)


def test_an_exponent_of_run_time_stays(apply: Any, method: Any):
    text = method(
        '%x: tensor<2x3xf32>, %n: !stepwell.int<"u0">',
        "%y = aten.pow.Tensor_Scalar(%x, %n) : "
        '(tensor<2x3xf32>, !stepwell.int<"u0">) -> tensor<2x3xf32>',
        gives="tensor<2x3xf32>",
    )
    done = apply(text, step(arithmetic.expand_power), inputs=[torch.rand(2, 3), 4])
    assert done.count == 0
    assert any("only at run time" in reason for reason in done.reasons)
