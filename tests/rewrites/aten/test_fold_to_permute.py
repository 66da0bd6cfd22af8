"""FoldToPermute: beside torch's own, and what it leaves alone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from rewrite_cases import cases
from torch import nn

import stepwell
from stepwell.translate.decompositions import views


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


test_fold_to_permute = cases(
    views,
    """
fold-to-permute: windows that overlap are added up elsewhere -> refused: overlap
    - %y = aten.col2im.default(%x: f32[1, 8, 6], [3, 4], [2, 2], [1, 1], [0, 0], [1, 1])
    - %y = aten.col2im.default(%x: f32[1, 8, 12], [4, 6], [2, 2], [1, 1], [1, 1], [2, 2])
""",
)
