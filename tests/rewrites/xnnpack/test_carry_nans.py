"""CarryNans: what is limited by tensors keeps its NaNs, its zeros and its infinities."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepwell
from stepwell.translate.decompositions import floats
from stepwell.translate.lowerings.lowering import step

X = torch.tensor([[torch.nan, torch.inf, -torch.inf, -0.0], [1.0, torch.nan, 3e38, -3e38]])
Y = torch.tensor([[0.0, torch.nan, -torch.inf, -0.0], [torch.nan, torch.inf, -3e38, 3e38]])


class Limits(nn.Module):
    """Everything that takes an extremum of tensors and has no node of its own in the stock flow."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.clamp(x, min=y),
            torch.clamp(x, max=y),
            torch.clamp(x, -y, y),
            x.amax(-1),
            x.amin(0),
            x.amax((0, 1)),
            x.log_softmax(-1),
        )


def test_nans_stay_within_one_delegate() -> None:
    lowered = stepwell.lower(torch.export.export(Limits(), (X, Y)), "xnnpack")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    for found, wanted in zip(lowered.run(X, Y), Limits()(X, Y), strict=True):
        torch.testing.assert_close(found, wanted, equal_nan=True, rtol=1e-6, atol=0)


@pytest.mark.parametrize("numerics", ["finite", "strict"])
def test_in_other_modes_no_term_is_added(numerics: Any) -> None:
    lowered = stepwell.lower(torch.export.export(Limits(), (X, Y)), "xnnpack", numerics=numerics)
    assert "divide" not in str(lowered.program) and "aten.div" not in str(lowered.program)


def test_what_is_never_nan_needs_no_term(apply: Any, method: Any) -> None:
    given = "tensor<4xf32>"
    lines = (
        f'%w = stepwell.weight <"w"> "constant" : {given}',
        f"%b = aten.ge.Scalar(%x, 0.0) : ({given}) -> tensor<4xi1>",
        f"%f = aten._to_copy.default(%b, dtype=f32) : (tensor<4xi1>) -> {given}",
        f"%y = aten.clamp.Tensor(%f, %w) : ({given}, {given}) -> {given}",
    )
    assert apply(method(f"%x: {given}", *lines, gives=given), step(floats.carry_nans)).count == 0


def test_doubles_stay(refused: Any, method: Any) -> None:
    given = "tensor<4xf64>"
    line = f"%y = aten.clamp.Tensor(%x, %x) : ({given}, {given}) -> {given}"
    refused(
        method(f"%x: {given}", line, gives=given), step(floats.carry_nans), "float32 or float16"
    )
