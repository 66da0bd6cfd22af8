"""FoldConstants: beyond its documented example, and what it leaves alone."""

import pytest
import torch
import torch.nn.functional as F
from rewrite_cases import cases
from torch import nn
from torch.export import export

import stepwell
from stepwell.translate.rewrites.constants.fold_constants import FoldConstants

test_fold_constants = cases(
    FoldConstants,
    """
what depends on an input -> unchanged
    %y = aten.add.Tensor(%x: f32[2, 3], %w: weight f32[2, 3])
random numbers are no constant -> unchanged
    %y = aten.mul.Scalar(%x: f32[2, 3], 0.0)
a constant made from nothing is a weight -> aten.add.Tensor
    %a = aten.arange.default(4)
    %y = aten.add.Tensor(%x: i64[4], %a)
a fill of an input s shape is a weight -> aten.add.Tensor
    %a = aten.full_like.default(%x: f32[2, 3], 2.5)
    %y = aten.add.Tensor(%x, %a)
random numbers -> unchanged
    %y = aten.bernoulli.p(%w: weight f32[2, 3], 1.0)
a quantized weight -> unchanged
    %y = quantized_decomposed.quantize_per_tensor.default(%w: weight f32[2, 3], 0.5, 0, -128, 127, i8)
a fill of any length -> unchanged
    %y = aten.full_like.default(%l: f32[n, 3], 2.5)
what memory holds is zeros -> aten.add.Tensor
    - %e = aten.empty.memory_format([2, 3]); %y = aten.add.Tensor(%x: f32[2, 3], %e)
    - %e = aten.empty_like.default(%w: weight f32[2, 3]); %y = aten.add.Tensor(%x: f32[2, 3], %e)
a fill of a number known only at run time -> refused: run time
    %y = aten.full_like.default(%x: f32[2, 3], %n: int<n>)
""",
)


test_fold_constants_together = cases(
    FoldConstants(largest=1000),
    """
a constant that would grow too large -> refused: bytes more
    %e = aten.repeat.default(%w: weight f32[2, 3], [64, 64])
    %y = aten.sum.default(%e)
""",
)


class OfConstants(nn.Module):
    """What is computed of buffers alone, with arguments that a call leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("image", torch.randn(1, 3, 6, 6))
        self.register_buffer("kernel", torch.randn(4, 3, 3, 3))
        self.register_buffer("rows", torch.tensor([[0, 1], [2, 1]]))
        self.register_buffer("table", torch.randn(5, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        bag = F.embedding_bag(self.rows, self.table)
        return x + F.conv2d(self.image, self.kernel), x[0, :2, 0] + bag


@pytest.mark.parametrize("target", ["xnnpack", "tosa-1.0+fp"])
def test_arguments_that_a_call_leaves_out_are_none(target: str) -> None:
    module, x = OfConstants(), torch.randn(1, 4, 4, 4)
    found = stepwell.lower(export(module, (x,)), target).run(x)
    for mine, other in zip(found, module(x), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
