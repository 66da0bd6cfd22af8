"""FoldToPermute: beside torch's own, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stepwell
from stepwell.translate.decompositions.aten import views
from stepwell.translate.lowerings.lowering import step


@pytest.mark.parametrize("kernel", [(2, 2), (1, 3), (4, 2)])
def test_patches_are_put_together_in_the_delegate(kernel: tuple[int, int]) -> None:
    class Patches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = F.unfold(x, kernel, stride=kernel).softmax(-1)
            return F.fold(rows, x.shape[2:], kernel, stride=kernel) * 2

    x = torch.randn(2, 3, 8, 12)
    lowered = stepwell.lower(torch.export.export(Patches(), (x,)), "xnnpack")
    assert (lowered.report.stages, dict(lowered.report.outside)) == (1, {})
    torch.testing.assert_close(lowered.run(x)[0], Patches()(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rest", ["[1, 1], [0, 0], [1, 1]", "[1, 1], [1, 1], [2, 2]"])
def test_windows_that_overlap_are_added_up_elsewhere(rest: str, refused: Any, method: Any) -> None:
    count = 6 if rest.endswith("[1, 1]") else 12
    type_ = f"tensor<1x8x{count}xf32>"
    line = f"%y = aten.col2im.default(%x, [{'3, 4' if count == 6 else '4, 6'}], [2, 2], {rest})"
    made = f"tensor<1x2x{'3x4' if count == 6 else '4x6'}xf32>"
    text = method(f"%x: {type_}", f"{line} : ({type_}) -> {made}", gives=made)
    refused(text, step(views.fold_to_permute), "overlap")
