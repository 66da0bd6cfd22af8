"""Choices, comparisons and paddings of quantized values: integers, equal on the reference model."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepwell
from stepwell.dialects.quant.ops import quantize
from stepwell.dialects.quant.ports import meanings

from .arm_quantized import quantized
from .graphs import Function, Of

pytestmark = pytest.mark.usefixtures("ranges_as_seen")

X = torch.linspace(-2.0, 3.0, 60).reshape(3, 20)
Y = X.flip(1) * 1.5
WORDS, BYTES = torch.arange(-9, 60, dtype=torch.int32), torch.arange(-60, 60, dtype=torch.int8)


CASES: dict[str, tuple[Function, tuple[Tensor, ...]]] = {
    "minimum": (torch.minimum, (X, Y)),
    "maximum, one row": (torch.maximum, (X, Y[:1])),
    "where": (torch.where, (X > 0.5, X, Y)),
    "masked fill": (lambda x, m: x.masked_fill(m, 0.75), (X, X > 0.5)),
    "pad": (lambda x: nn.functional.pad(x, (1, 2, 0, 1), value=0.5), (X,)),
    "pad before a convolution": (
        nn.Sequential(nn.ConstantPad2d((1, 1, 2, 0), 0.5), nn.Conv2d(1, 2, 3)),
        (X.reshape(1, 1, 6, 10),),
    ),
    "greater than a number": (lambda x: x > 0.5, (X,)),
    "not equal": (torch.ne, (X, Y)),
    "less or equal": (lambda x, y: (x <= y) & (x != 1.0), (X, Y)),
    "acosh": (torch.acosh, (X.abs() + 1.0,)),
    "a write by index": (
        lambda x, i, y: x.index_put((i,), y),
        (X, torch.tensor([2, -3]), 2 * Y[:2]),
    ),
    "two axes indexed": (lambda x, i: x[i, i + 2 - 2], (X, torch.tensor([2, 0]).int())),
    "every third column written": (
        lambda x, y: x.slice_scatter(y, 1, 1, 20, 3),
        (X, Y[:, :7].clone()),
    ),
    "one row written": (lambda x, y: x.select_scatter(y, 0, 1), (X, Y[0])),
    "elements scattered": (
        lambda x, y: x.scatter(1, torch.tensor([[3, 1], [0, 4], [5, 2]]), y),
        (X, Y[:, :2].clone()),
    ),
    "windows of a line": (lambda x: x.unfold(1, 4, 3), (X,)),
    "a copy and a fill": (
        lambda x: torch.zeros_like(x).copy_(x).add_(torch.ones_like(x).fill_(2.5)),
        (X,),
    ),
    "running sums": (lambda x: x.cumsum(1), (X,)),
    "a remainder": (lambda x: x.remainder(0.3), (X,)),
    "a dilated pool": (
        lambda x: nn.functional.max_pool2d(x.reshape(1, 1, 6, 10), 3, 2, 1, dilation=2),
        (X,),
    ),
    "a pool of lines": (
        lambda x: nn.functional.max_pool1d(x.reshape(1, 3, 20), 3, 2, 1, ceil_mode=True),
        (X,),
    ),
    "a convolution of volumes": (
        nn.Conv3d(2, 4, 2, padding=1, groups=2),
        (torch.randn(1, 2, 3, 4, 5),),
    ),
    "bytes that become floats": (lambda b, x: b.float() + x, (BYTES[:20], X)),
    "truths that become floats": (lambda t, x: t.float() * x, (X > 0.5, X)),
    "bytes shifted": (lambda b, n: (b << n) ^ (b >> 2) ^ (b >> n), (BYTES, BYTES % 11 - 2)),
    "bytes shifted by more than their bits": (lambda b: (b << 9) ^ (b >> 100), (BYTES,)),
    "words shifted": (lambda w, n: (w << n) ^ (w >> 7) ^ (w >> n), (WORDS, WORDS)),
    "the place of the largest byte": (lambda b: b.reshape(4, 30).argmax(1).int(), (BYTES,)),
    "clamp of int32": (lambda x: torch.clamp(x, -3, 40), (WORDS,)),
    "bits of bytes": (lambda x: ~x ^ (x & 5) | x, (BYTES,)),
}


def given(func: Any, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Inputs as the integer program takes them."""
    said = meanings(func, "input") or [None] * len(inputs)
    return [x if held is None else quantize(x, held) for x, held in zip(inputs, said, strict=True)]


@pytest.mark.parametrize("name", CASES)
def test_quantized_operators_compute_what_the_pt2e_graph_does(name: str) -> None:
    function, inputs = CASES[name]
    torch.manual_seed(0)
    exported = quantized(Of(function), inputs, 8)
    lowered = stepwell.lower(exported, "tosa-1.0+int")
    integers = given(lowered.program.method(), inputs)
    (ours,) = lowered.program.run(*integers)
    (theirs,) = lowered.run(*integers)
    assert torch.equal(ours, theirs.to(ours.dtype))
    wanted = exported.module(check_guards=False)(*inputs)
    (held,) = meanings(lowered.program.method(), "output") or [None]
    if held is None:
        assert torch.equal(ours.to(wanted.dtype), wanted)
        return
    units = torch.round(wanted / held.scale) + held.zero_point
    assert float((ours.float() - units).abs().max()) <= 1
