"""Complex numbers between operators of real ones run as pairs, beside eager PyTorch."""

import pytest
import torch
from eager import Model, assert_as_eager, lower


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


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("function", [turned, arithmetic])
def test_complex_numbers_between_real_ones_run(function: Model, is_open: bool) -> None:
    rows = {1: torch.export.Dim("rows", max=16)} if is_open else None
    given = (torch.randn(2, 5, 4, 8), torch.randn(2, 5, 4))
    lowered = lower(function, *given, dynamic=(rows, rows))
    for count in (5, 1, 16) if is_open else (5,):
        inputs = (torch.randn(2, count, 4, 8), torch.randn(2, count, 4))
        assert_as_eager(lowered, function, *inputs)
