"""Linear layers that keep the integers a file has: four bits in groups, with an offset a group.

XNNPACK's kernel of such weights has a scale a group and nothing else: `s · (u − 8)`. Where a file
says `s · u + m` (GGUF's Q4_1 and Q4_K, GPTQ, AWQ; Q4_0 where its scale is negative), what is left
is the same number for a whole group, and its product with the inputs is that of their sum by
groups: a matrix as many times smaller as a group is long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stepwell.ir.diagnostics import StepwellError
from stepwell.quantising import by_torchao

MIDDLE = 8
"""What XNNPACK takes from four bits."""


@dataclass(frozen=True)
class Blocks:
    """A matrix `[rows, columns]` of four bits: `scales · integers + least`, by groups of a row."""

    integers: Tensor
    """`[rows, columns]`, 0 to 15, int8."""
    scales: Tensor
    """`[rows, groups]`, single precision, of either sign."""
    least: Tensor
    """`[rows, groups]`: what the integer 0 stands for."""

    @property
    def group(self) -> int:
        """Weights of a row that share a scale."""
        return self.integers.shape[1] // self.scales.shape[1]

    def numbers(self) -> Tensor:
        """What the bits stand for, `[rows, columns]`."""
        scales, least = (x.repeat_interleave(self.group, 1) for x in (self.scales, self.least))
        return scales * self.integers + least

    def upright(self) -> Blocks:
        """The same numbers with scales above zero, as XNNPACK needs them."""
        is_negative = self.scales < 0
        wide = is_negative.repeat_interleave(self.group, 1)
        integers = torch.where(wide, 15 - self.integers, self.integers)
        least = torch.where(is_negative, self.least + 15 * self.scales, self.least)
        is_constant = self.scales == 0  # A group of equal numbers: any scale times the middle.
        integers[is_constant.repeat_interleave(self.group, 1)] = MIDDLE
        scales = torch.where(is_constant, 1, self.scales.abs())
        least = torch.where(is_constant, least - MIDDLE, least)
        return Blocks(integers, scales, least)


class BlockLinear(nn.Module):
    """A linear layer of four bits in groups, and the products of its groups' offsets."""

    def __init__(self, products: nn.Linear, offsets: Tensor) -> None:
        """Add what groups are off by to a layer.

        Args:
            products: the layer with `s · (u − 8)` for its weights, and its bias.
            offsets: `[rows, groups]`.
        """
        super().__init__()
        self.products = products
        self.offsets = nn.Linear(offsets.shape[1], offsets.shape[0], bias=False)
        self.offsets.weight = nn.Parameter(offsets, requires_grad=False)
        by_torchao(8, None)(self.offsets, ())
        self.group = products.in_features // offsets.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        """`[…, columns]` to `[…, rows]`."""
        sums = x.unflatten(-1, (-1, self.group)).sum(-1)
        return self.products(x) + self.offsets(sums)


def layer_of(blocks: Blocks, bias: Any) -> nn.Module:
    """A layer that computes with the integers of a file, its inputs int8 of each token.

    Scales are rounded to bfloat16, which is what XNNPACK's kernel holds; offsets are eight bits by
    row where a row has any.

    Raises:
        StepwellError: groups are no multiple of 32, which XNNPACK's kernel needs.
    """
    if blocks.group % 32:
        raise StepwellError(f"groups of {blocks.group} weights are no multiple of 32")
    blocks = blocks.upright()
    rows, columns = blocks.integers.shape
    layer = nn.Linear(columns, rows, bias=False)
    layer.bias = bias
    by_torchao(4, blocks.group)(layer, ())
    weight: Any = layer.weight
    weight.qdata = (blocks.integers - MIDDLE).to(torch.int8)
    weight.scale = (
        blocks.scales.to(torch.bfloat16).to(weight.scale.dtype).reshape(weight.scale.shape)
    )
    offsets = blocks.least + MIDDLE * blocks.scales
    if not offsets.any():
        return layer
    return BlockLinear(layer, offsets)
