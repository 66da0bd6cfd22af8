"""Linear layers that keep a file's low-bit integers, with a scale and an offset per group.

XNNPACK's 4-bit kernel has only a scale per group: `s · (u − 8)`. If a file has `s · u + m` (GGUF's
Q4_1 and Q4_K, GPTQ, AWQ; Q4_0 with a negative scale), the remainder `m + 8s` is one offset per
group. The matrix of offsets is multiplied by the inputs' sums per group. 8-bit weights have a scale
per row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stepwell.quantization.quantizers import by_torchao


@dataclass(frozen=True)
class Blocks:
    """A low-bit matrix `[rows, columns]`: `scales · integers + least`, by groups of a row."""

    integers: Tensor
    """`[rows, columns]`, from 0 on, int16."""
    scales: Tensor
    """`[rows, groups]`, single precision, of either sign."""
    least: Tensor
    """`[rows, groups]`: the value of the integer 0."""
    bits: int = 4

    @property
    def middle(self) -> int:
        """Return the zero point that XNNPACK subtracts from an integer."""
        return 1 << self.bits - 1

    @property
    def group(self) -> int:
        """Return the number of weights of a row that share a scale."""
        return self.integers.shape[1] // self.scales.shape[1]

    @property
    def is_symmetric(self) -> bool:
        """Whether the middle integer represents 0."""
        return not (self.least + self.middle * self.scales).any()

    def numbers(self) -> Tensor:
        """Return the dequantized matrix, `[rows, columns]`."""
        scales, least = (x.repeat_interleave(self.group, 1) for x in (self.scales, self.least))
        return scales * self.integers + least

    def upright(self) -> Blocks:
        """Return an equal matrix with positive scales, as XNNPACK requires."""
        is_negative = self.scales < 0
        wide = is_negative.repeat_interleave(self.group, 1)
        most = 2 * self.middle - 1
        integers = torch.where(wide, most - self.integers, self.integers)
        least = torch.where(is_negative, self.least + most * self.scales, self.least)
        is_constant = self.scales == 0  # A group of equal numbers: any scale times the middle.
        integers[is_constant.repeat_interleave(self.group, 1)] = self.middle
        scales = torch.where(is_constant, 1, self.scales.abs())
        least = torch.where(is_constant, least - self.middle, least)
        return Blocks(integers, scales, least, self.bits)


class BlockLinear(nn.Module):
    """A linear layer with 4-bit weights in groups: a layer of integers and a layer of offsets."""

    def __init__(self, products: nn.Linear, offsets: Tensor) -> None:
        """Add the offsets of groups to a layer.

        Args:
            products: the layer of the weights `s · (u − 8)`, with the bias.
            offsets: the offsets, `[rows, groups]`.
        """
        super().__init__()
        self.products = products
        self.offsets = nn.Linear(offsets.shape[1], offsets.shape[0], bias=False)
        self.offsets.weight = nn.Parameter(offsets, requires_grad=False)
        by_torchao(8, None)(self.offsets, ())
        self.group = products.in_features // offsets.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        """Map `[…, columns]` to `[…, rows]`."""
        sums = x.unflatten(-1, (-1, self.group)).sum(-1)
        return self.products(x) + self.offsets(sums)


class Reordered(nn.Module):
    """A layer whose groups consist of inputs that are not adjacent."""

    def __init__(self, layer: nn.Module, order: Tensor) -> None:
        """Wrap a layer that reads its inputs in the order `order`, `[columns]`."""
        super().__init__()
        self.layer = layer
        self.order: Tensor
        self.register_buffer("order", order, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[…, columns]` to `[…, rows]`."""
        return self.layer(x.index_select(-1, self.order))


def has_kernel(blocks: Blocks) -> bool:
    """Whether XNNPACK has a kernel: 4 bits in groups of a multiple of 32, or in whole rows."""
    is_row = blocks.scales.shape[1] == 1
    return is_row or (blocks.bits <= 4 and blocks.group % 32 == 0)


def layer_of(blocks: Blocks, bias: Tensor | None, order: Tensor | None = None) -> nn.Module:
    """Create a layer that computes with a file's integers; its inputs are quantized to int8 per
    token.

    Group scales are rounded to bfloat16, the type in XNNPACK's kernel; offsets are 8-bit integers
    with a scale per row, for rows that have any.

    Args:
        blocks: a matrix for which XNNPACK has a kernel.
        bias: the bias, `[rows]`.
        order: for each column of the blocks, the column of the layer's inputs.
    """
    assert has_kernel(blocks)
    blocks = blocks.upright()
    rows, columns = blocks.integers.shape
    group = None if blocks.scales.shape[1] == 1 else blocks.group
    layer: Any = nn.Linear(columns, rows, bias=False)
    layer.bias = None if bias is None else nn.Parameter(bias.float(), requires_grad=False)
    by_torchao(max(blocks.bits, 4), group)(layer, ())
    weight: Any = layer.weight
    scales = blocks.scales if group is None else blocks.scales.to(torch.bfloat16)
    weight.qdata = (blocks.integers - blocks.middle).to(torch.int8)
    weight.scale = scales.to(weight.scale.dtype).reshape(weight.scale.shape)
    made: nn.Module = layer
    if not blocks.is_symmetric:
        made = BlockLinear(layer, blocks.least + blocks.middle * blocks.scales)
    return made if order is None else Reordered(made, order)


def sentence(kept: Mapping[str, int], left: Mapping[str, int]) -> str:
    """Describe which of a file's matrices keep their integers, with the number of each kind."""

    def counted(counts: Mapping[str, int]) -> str:
        return ", ".join(f"{count} of {kind}" for kind, count in sorted(counts.items()))

    floats = f"; as floats: {counted(left)}; --quantize 8da8w: eight bits by row" if left else ""
    return f"matrices with the integers of the file: {counted(kept) or 'none'}{floats}"
