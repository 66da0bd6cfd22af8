"""Lowerings of ops whose data movement depends only on shapes: one GATHER by constant indices.

These are diagonals and sliding windows (`unfold`, `im2col`). PyTorch itself computes the indices,
by moving 0, 1, 2, …. Runs of adjacent elements are moved together, and im2col's padding is an extra
last element. `col2im` adds the elements of each kernel position at their windows, one position
after the other.
"""

from __future__ import annotations

from typing import Any

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.rewriting.rewrite import EXACT
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.movement import gathered
from stepwell.translate.lowerings.tosa.values import Value, needs_floats
from stepwell.translate.rewrites.slices.moved_places import MOST_PLACES, longest_run, places
from stepwell.translate.rewrites.tosa.operators.building import elements

PATTERNS = (
    "aten.diagonal.default",
    "aten.channel_shuffle.default",
    "aten.diagonal_copy.default",
    "aten.im2col.default",
    "aten.pixel_unshuffle.default",
    "aten.unfold.default",
    "aten.unfold_copy.default",
)


@lowers(
    *PATTERNS,
    to="tosa",
    takes_symbols=False,
    bound=EXACT,
    sample=("3x3xf32",),
)
def pattern(x: Value, *, op: Any, out: Out) -> Value:
    """Gather by constant indices from the flattened elements, which are followed by padding."""
    number = elements(out.shape)
    if number > MOST_PLACES:
        refuse(f"the {number} indices would be a constant of {4 * number} bytes")
    count, moved = elements(x.shape), places(op)
    if bool((moved < 0).any()):
        values = x.reshape(count, 1).pad((0, 1, 0, 0))
        rows = torch.where(moved < 0, count, moved)
    else:
        run = longest_run(moved, count)
        values, rows = x.reshape(count // run, run), moved[::run] // run
    return gathered(values, 0, rows.tolist()).reshape(*out.shape)


MOST_OF_A_KERNEL = 256
"""The most positions of a kernel: each takes about five operators."""


@lowers(
    "aten.col2im.default",
    to="tosa",
    takes_symbols=False,
    bound=EXACT,
    sample=("1x8x9xf32", [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
)
def columns(x: Value, *, op: Any, out: Out) -> Value:
    """Add slices with PAD and ADD in PyTorch's order to the padded image, which is cropped last."""
    names = ("output_size", "kernel_size", "dilation", "padding", "stride")
    size, kernel, dilation, padding, stride = (list(op.arg(name)) for name in names)
    if x.rank != 3:
        refuse("the columns have no batch axis")
    count = kernel[0] * kernel[1]
    if count > MOST_OF_A_KERNEL:
        refuse(f"the kernel has {count} cells, each of which would be an operator")
    needs_floats(op, x)
    batch, channels, height, width = out.shape
    windows = [
        (size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    ]
    held = x.reshape(batch, channels, count, windows[0] * windows[1])
    whole = [size[i] + 2 * padding[i] for i in range(2)]
    image: Value | None = None
    for place in range(count):
        values = _apart(held.narrow(2, place, 1).reshape(batch, channels, *windows), stride)
        at = divmod(place, kernel[1])
        pads = [0, 0, 0, 0]
        for i in range(2):
            before = at[i] * dilation[i]
            pads += [before, whole[i] - before - values.shape[2 + i]]
        laid = values.pad(pads)
        image = laid if image is None else image + laid
    assert image is not None
    return image.narrow(2, padding[0], height).narrow(3, padding[1], width)


def _apart(x: Value, stride: list[int]) -> Value:
    """Insert zeros between elements so that the elements are `stride` apart."""
    n, channels, *held = x.shape
    for i, step in enumerate(stride):
        size = held[i]
        if step == 1 or size == 1:
            continue
        front, behind = (n, channels, *held[:i]), held[i + 1 :]
        alone = x.reshape(*front, size, 1, *behind)
        pads = [0] * 2 * alone.rank
        pads[2 * (len(front) + 1) + 1] = step - 1
        held[i] = size * step
        wide = alone.pad(pads).reshape(n, channels, *held)
        x = wide.narrow(2 + i, 0, held[i] - step + 1)
        held[i] += 1 - step
    return x


RULES = lowerings_of(__name__)
