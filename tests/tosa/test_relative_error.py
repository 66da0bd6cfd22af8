"""Curves whose tails TOSA would lose: right to 1e-6 of what they are, wherever that is normal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stepwell

SIZES = torch.cat([torch.logspace(-30, 2, 2000), torch.linspace(0.01, 100, 2000)])
BOTH = torch.cat([SIZES, -SIZES])
CURVES: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": F.elu,
    "elu of another alpha": lambda x: F.elu(x, 0.3),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 1.7),
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "sigmoid": torch.sigmoid,
    "mish": F.mish,
}
LEAST = {"mish": 1e-36}
"""Where a result is normal and e ** x is not, eager's mish is off by 1e-5 too, and ours by 5e-6."""


class Curve(nn.Module):
    """One function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_is_right_to_a_millionth_of_itself(name: str) -> None:
    x = BOTH if name != "log1p" else torch.cat([SIZES, -SIZES[SIZES < 0.999]])
    exported = torch.export.export(Curve(CURVES[name]), (x,))
    (result,) = stepwell.lower(exported, "tosa-1.0+fp").run(x)
    exact = CURVES[name](x.double())
    limits = torch.finfo(torch.float32)
    normal = exact.abs() >= LEAST.get(name, limits.smallest_normal)
    normal &= exact.abs() <= limits.max
    error = ((result.double() - exact).abs() / exact.abs())[normal]
    assert float(error.max()) <= 1e-6
