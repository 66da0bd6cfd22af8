"""Images whose height and width are both open, in one delegate."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

import stepwell

COMPUTED: dict[str, Callable[[Tensor], Tensor]] = {
    "enlarged to four times its sizes": lambda x: F.interpolate(
        x.sigmoid(), size=(4 * x.shape[2], 4 * x.shape[3])
    ),
    "each channel several times": lambda x: x.sigmoid().repeat_interleave(4, 1).tanh(),
    "all channels several times": lambda x: x.sigmoid().repeat(1, 3, 1, 1).tanh(),
}


class Computed(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize("function", COMPUTED.values(), ids=COMPUTED)
def test_what_moves_elements_is_in_the_delegate(function: Callable[[Tensor], Tensor]) -> None:
    model, open_ = Computed(function), {2: Dim("h", max=20), 3: Dim("w", max=20)}
    program = torch.export.export(model, (torch.randn(1, 3, 8, 6),), dynamic_shapes={"x": open_})
    lowered = stepwell.lower(program, "xnnpack")
    assert (lowered.report.stages, dict(lowered.report.outside)) == (1, {})
    for height, width in ((8, 6), (5, 17), (20, 3)):
        x = torch.randn(1, 3, height, width)
        torch.testing.assert_close(lowered.run(x)[0], model(x))
