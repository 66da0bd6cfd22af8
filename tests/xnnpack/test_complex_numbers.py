"""Complex numbers between operators of real ones run as pairs, beside eager PyTorch."""

from typing import Any

import pytest
import torch

import stepwell
from stepwell.backends.executorch.running.runner import PteSession


def turned(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Neighboring pairs of `x`, turned by the angles of their row: rotary embeddings."""
    phases = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * phases[:, :, None]).flatten(3)


def arithmetic(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Sums, conjugates, and magnitudes."""
    one = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    two = torch.complex(angles, angles.sin())[:, :, None]
    return ((one + two) * (one - two.conj()) * 0.5).unsqueeze(1)[:, 0, :, :3].abs()


class Of(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        """What the function makes."""
        return self.function(x, angles)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("function", [turned, arithmetic])
def test_complex_numbers_between_real_ones_run(function: Any, is_open: bool):
    torch.manual_seed(0)
    given = (torch.randn(2, 5, 4, 8), torch.randn(2, 5, 4))
    rows = {1: torch.export.Dim("rows", max=16)} if is_open else None
    shapes = (rows, rows) if is_open else None
    program = torch.export.export(Of(function), given, dynamic_shapes=shapes)
    session = PteSession.load(stepwell.lower(program, "xnnpack").to_pte())
    for count in (5, 1, 16) if is_open else (5,):
        x, angles = torch.randn(2, count, 4, 8), torch.randn(2, count, 4)
        torch.testing.assert_close(session.run(x, angles)[0], function(x, angles))
