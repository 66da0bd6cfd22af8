"""CarryNans: what is limited by tensors keeps its NaNs, its zeros and its infinities."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases
from torch import Tensor, nn

import stepwell
from stepwell.translate.decompositions import floats

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


test_carry_nans = cases(
    floats,
    """
carry-nans: what is never nan needs no term -> applied 0 times
    %b = aten.ge.Scalar(%x: f32[4], 0.0)
    %f = aten._to_copy.default(%b, dtype=f32)
    %y = aten.clamp.Tensor(%f, %w: constant f32[4])
carry-nans: doubles -> refused: float32 or float16
    %y = aten.clamp.Tensor(%x: f64[4], %x)
""",
)
