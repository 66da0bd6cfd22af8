"""Heads of an open batch and length: each alone, in one delegate."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import stepwell


class Attention(nn.Module):
    """Heads parted by a view, with or without a mask of padding."""

    def __init__(self, heads: int = 4, more: bool = False) -> None:
        super().__init__()
        self.heads, self.more = heads, more
        self.projections = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        *inner, outer = self.projections
        parts = [part(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2) for part in inner]
        mask = None if keep is None else keep[:, None, None, :]
        attended = nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask)
        merged = outer(attended.transpose(1, 2).reshape(x.shape))
        return (merged, attended.amax(-1)) if self.more else merged


class MultiHead(nn.Module):
    """Torch's own, which merges batch and heads."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


def lowered(model: nn.Module, *inputs: Tensor) -> stepwell.Lowered:
    torch.manual_seed(0)
    sizes = {0: Dim("b", min=1, max=8), 1: Dim("n", min=2, max=16)}
    shapes = tuple({axis: sizes[axis] for axis in range(2)} for _ in inputs)
    names = ["x", "keep"][: len(inputs)]
    program = torch.export.export(
        model.eval(), inputs, dynamic_shapes=dict(zip(names, shapes, strict=True))
    )
    return stepwell.lower(program, "xnnpack", numerics="finite")


@pytest.mark.parametrize("model", [Attention(), Attention(heads=1), MultiHead()])
def test_attention_over_an_open_batch_and_length_is_one_delegate(model: nn.Module) -> None:
    made = lowered(model, torch.randn(2, 6, 16))
    assert (made.report.delegates, sum(made.report.outside.values())) == (1, 0)
    for batch, length in ((1, 16), (3, 5), (8, 2)):
        x = torch.randn(batch, length, 16)
        torch.testing.assert_close(made.run(x)[0], model(x), rtol=1e-4, atol=1e-5)


def test_a_mask_that_all_heads_share_loses_the_axis_once() -> None:
    model = Attention()
    made = lowered(model, torch.randn(2, 6, 16), torch.zeros(2, 6))
    assert made.report.delegates == 1
    x, keep = torch.randn(3, 7, 16), torch.randn(3, 7)
    torch.testing.assert_close(made.run(x, keep)[0], model(x, keep), rtol=1e-4, atol=1e-5)


def test_heads_that_are_read_together_stay_together() -> None:
    model = Attention(more=True)
    made = lowered(model, torch.randn(2, 6, 16))
    assert any("is read elsewhere, too" in line for line in str(made.report).splitlines())
    x = torch.randn(3, 7, 16)
    for one, other in zip(made.run(x), model(x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
