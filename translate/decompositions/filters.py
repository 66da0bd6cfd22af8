"""Decompose convolutions with a filter computed at run time: extract patches, and multiply.

XNNPACK convolves with constant filters only. A filter that a router mixes from several (CondConv)
would leave each layer to the runtime's kernel, which reads memory element by element. In a
depthwise convolution, each tap is a product with a shifted image.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

from stepwell.dialects import aten
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import f32
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.values import Value, cat, needs_static
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack

MOST_GROUPS = 8


MOST_TAPS = 49
"""The most elements of a window, each of which is a slice."""


@lowers(
    "aten.convolution.default",
    to="aten",
    phases=("xnnpack/decompose",),
    requires=not_for_xnnpack,
    unless=lambda op: weight_key(op.operands[1]) is not None,
    bound=roundings("sums in another order"),
    sample=("1x2x5x5xf32", "3x2x3x3xf32", None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
)
def convolution_by_products(
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *,
    op: Any,
    out: Out,
) -> Value:
    """Multiply the patches of an image or line by a computed filter, for each group."""
    needs_static(x, weight)
    if transposed or x.rank not in (3, 4) or x.dtype != f32:
        refuse("the convolution is transposed or 3-D, or in half precision")
    is_line = x.rank == 3
    if is_line:
        x, weight = (value.view(*value.shape[:2], 1, value.shape[2]) for value in (x, weight))
        stride, padding, dilation = [1, *stride], [0, *padding], [1, *dilation]
    channels, (made, of_group, height, width) = x.shape[1], weight.shape
    if height * width > MOST_TAPS:
        refuse(f"a window has {height * width} elements, each of which would be a slice")
    taps = _taps(x, (height, width), stride, padding, dilation)
    if of_group == 1 and made == channels == groups:
        columns = weight.view(1, made, height * width, 1).permute((0, 1, 3, 2))
        factors = [columns.slice(3, at, at + 1) for at in range(height * width)]
        y = reduce(add, (tap * factor for tap, factor in zip(taps, factors, strict=True)))
    elif groups <= MOST_GROUPS:
        y = cat([_group(taps, weight, group, groups) for group in range(groups)], 1)
    else:
        refuse(f"the convolution has {groups} groups, each of which would be a product")
    if bias is not None:
        y = y + bias.view(1, made, 1, 1)
    return y.view(*out.shape)


def _taps(
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[Value]:
    """Return, for each element of a window in row-major order, the inputs that it reads in all
    windows.
    """
    rows, columns = padding
    if rows or columns:
        batch, channels, height, width = x.shape
        larger = (batch, channels, height + 2 * rows, width + 2 * columns)
        amounts = [columns, columns, rows, rows]
        x = x.call(aten.ConstantPadNdDefault, amounts, 0.0, shape=larger)
    seen: list[Value] = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            tap = x
            for at, first in ((2, i * dilation[0]), (3, j * dilation[1])):
                step, size = stride[at - 2], x.shape[at]
                reach = dilation[at - 2] * (kernel[at - 2] - 1)
                count = (size - reach - 1) // step + 1
                tap = _every(tap, at, first, count, step)
            seen.append(tap)
    return seen


def _every(x: Value, at: int, first: int, count: int, step: int) -> Value:
    """Return every `step`-th element of an axis from `first` on, `count` of them."""
    stop = first + (count - 1) * step + 1
    if step == 1:
        return x.slice(at, first, stop)
    shape = [*x.shape[:at], count, *x.shape[at + 1 :]]
    return x.call(aten.SliceTensor, at, first, stop, step, shape=shape)


def _group(taps: Sequence[Value], weight: Value, group: int, groups: int) -> Value:
    """Return a product of one group's patches `[N, H, W, taps · channels]` with its filters."""
    made, of_group, *kernel = weight.shape
    filters = made // groups
    mine = [tap.slice(1, group * of_group, (group + 1) * of_group) for tap in taps]
    patches = cat(mine, 1).permute((0, 2, 3, 1))
    rows = weight.slice(0, group * filters, (group + 1) * filters)
    rows = rows.permute((0, 2, 3, 1)).view(filters, kernel[0] * kernel[1] * of_group)
    shape = (*patches.shape[:-1], filters)
    return patches.call(aten.LinearDefault, rows, None, shape=shape).permute((0, 3, 1, 2))


SWAP_DEPTH = (0, 2, 1, 3, 4)
"""The permutations of `[N, C, D, H, W]` to `[N, D, C, H, W]` and back."""


@recipe("depth")
def depth(kernel: torch.Tensor, *, at: int) -> torch.Tensor:
    """Return the 2-D kernel `[C', C, KH, KW]` at one depth of a 3-D kernel, as a view."""
    return kernel[:, :, at]


@lowers(
    "aten.convolution.default",
    to="aten",
    phases=("xnnpack/decompose",),
    takes_empty=False,
    unless=lambda op: len(op.arg("stride")) != 3,
    bound=roundings("products are summed slice by slice"),
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<3x2x2x1x1xf32>
    %y = aten.convolution.default(%x, %w, none, [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1) : (tensor<1x2x4x5x5xf32>, tensor<3x2x2x1x1xf32>) -> tensor<1x3x3x5x5xf32>
    """,
)
def volumes_to_images(
    x: Value, kernel: Value, bias: Value | None, *, op: Any, out: Out, b: Rewriter, groups: int
) -> Value:
    """Decompose a 3-D convolution into a sum of 2-D convolutions.

    Neither XNNPACK nor ExecuTorch's kernels convolve in three dimensions. The kernel's slices in
    depth are 2-D filters. Each filter is applied to the planes that it covers, and the results are
    added.
    """
    needs_static(x, what="the size of the volume is symbolic")
    if not isinstance(kernel.owner, WeightOp):
        refuse("the kernel is computed at run time")
    if op.arg("transposed"):
        refuse("a transposed convolution of volumes is not a sum of 2-D convolutions")
    stride, padding, dilation = (list(op.arg(n)) for n in ("stride", "padding", "dilation"))
    batch, filters, planes, *space = out.shape
    value = x.permute(SWAP_DEPTH)
    if padding[0]:  # Planes of zeros before and after.
        longer = [n + 2 * padding[0] if i == 1 else n for i, n in enumerate(value.shape)]
        amounts = [0, 0, 0, 0, 0, 0, padding[0], padding[0]]
        value = value.call(aten.ConstantPadNdDefault, amounts, 0, shape=longer)
    total: Value | None = None
    for at in range(kernel.shape[2]):
        met = _planes(value, at * dilation[0], stride[0], planes)
        images = met.view(batch * planes, x.shape[1], *x.shape[3:])
        key = b.weights.derive("depth", [kernel.owner.key.data], at=at)
        slice_ = Value(b.weight(key, kernel.owner.kind.data), b)
        lists = (stride[1:], padding[1:], dilation[1:], False, [0, 0], groups)
        made = images.call(
            aten.ConvolutionDefault,
            slice_,
            bias if at == 0 else None,
            *lists,
            shape=(batch * planes, filters, *space),
        )
        total = made if total is None else total + made
    assert total is not None
    return total.view(batch, planes, filters, *space).permute(SWAP_DEPTH)


def _planes(value: Value, start: int, step: int, count: int) -> Value:
    """Return `count` planes of axis 1, `step` apart, from `start` on."""
    stop = start + (count - 1) * step + 1
    if (start, stop, step) == (0, value.shape[1], 1):
        return value
    shape = [count if i == 1 else n for i, n in enumerate(value.shape)]
    return value.call(aten.SliceTensor, 1, start, stop, step, shape=shape)


RULES = lowerings_of(__name__)
