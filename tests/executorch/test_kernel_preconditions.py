"""Forms that a kernel of the runtime refuses are not emitted: other operators compute them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import stepwell


class Of(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


FORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "narrow from the end": lambda x: torch.ops.aten.narrow_copy.default(x, -1, 1, 2),
    "a vector as weight": lambda x: nn.functional.linear(x, x[0]),
    "a copy that does not block": lambda x: x.to(torch.float64, non_blocking=True).floor() * 3,
    "an empty piece": lambda x: torch.split(x, [1, 0, 2])[2] + 1,
    "whole steps from a fraction": lambda x: x + torch.arange(0.9, 4.9, 1.0, dtype=torch.int64),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_what_a_kernel_refuses_is_computed_by_others(name: str, dtype: torch.dtype) -> None:
    x, model = torch.arange(12).reshape(3, 4).to(dtype), Of(FORMS[name])
    lowered = stepwell.lower(torch.export.export(model, (x,)), "xnnpack")
    assert torch.equal(lowered.run(x)[0], model(x))
