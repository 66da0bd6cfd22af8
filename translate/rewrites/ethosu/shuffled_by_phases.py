"""Decompose a pixel shuffle after a convolution into a convolution for each phase of rows.

A shuffle by r rows and s columns is a transpose of six axes, which Vela does as a transpose for each
row of the image: on a U85-256 ten of them take 25 564 of 26 655 cycles for 720 bytes. Rows whose
position has the same remainder modulo r (a *phase*) are a part of the convolution's channels.
Each phase has its own CONV2D, whose channels are in the order in which the bytes of a row lie, and
their results are concatenated along the columns, which is row by row. A channel's sum and RESCALE
are the same, so the bits are.

rule shuffled-by-phases
    A convolution of s · C channels for each of r rows.
Before:
    %c = tosa.conv2d(%x, %w, %b, %i, %k, …) : (…) -> tensor<$*S x i32>
    %y = tosa.rescale(%c, %m, %s, %z, %o, …) : (…) -> tensor<$*S x $I>
    %v = tosa.reshape(%y, $split)
    %t = tosa.transpose(%v, perms=$order)
    %r = tosa.reshape(%t, $image)
After:
    %r = by_phases(%c, %y, %r, $shuffle)
with $shuffle = shuffle_of(%c, %v, $order, %r)
where reads_once(%c) for cost
where reads_once(%y) for cost
where reads_once(%v) for cost
where reads_once(%t) for cost
for %w = weight : tensor<8 x 3 x 3 x 4 x i8>
for %b = weight : tensor<8 x i32>
for %m = weight : tensor<8 x i32>
for %s = weight : tensor<8 x i8>
for %i = weight : tensor<1 x i8>
for %k = weight : tensor<1 x i8>
for %z = weight : tensor<1 x i32>
for %o = weight : tensor<1 x i8>
for $split = [3, 5, 2, 2, 2], $image = [1, 6, 10, 2], $order = [0, 3, 1, 4, 2]
for %x = "tensor<1x3x5x4xi8>", $S = [1, 3, 5, 8], $pad = [1, 1, 1, 1], $stride = [1, 1], $dilation = [1, 1], $I = i8, $acc_type = i32
for %k = "k#zeros", %z = "z#zeros", %s = "s#ones"
for $per_channel = true, $scale32 = true, $input_unsigned = false, $output_unsigned = false, $rounding_mode = "SINGLE_ROUND"
not for $order = [0, 4, 1, 3, 2]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.types import element, is_static, tensor
from stepwell.ir.weights import recipe
from stepwell.translate.lowerings.tosa.values import Value, concat
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of
from stepwell.translate.rules import read_rules


@recipe("phase_of_shuffle")
def phase_of_shuffle(
    values: torch.Tensor, *, channels: int, rows: int, columns: int, at: int
) -> torch.Tensor:
    """Select the channels of row `at` of a pixel shuffle, along the first axis.

    `values` has channels · rows · columns of them, columns innermost; the result columns · channels,
    channels innermost, as they lie in a row of the shuffled image.
    """
    split = values.unflatten(0, (channels, rows, columns))
    return split[:, at].transpose(0, 1).flatten(0, 1)


@dataclass(frozen=True)
class Shuffle:
    """A pixel shuffle: the channels that are left, its factors, and whether they come first."""

    channels: int
    rows: int
    columns: int
    channels_first: bool


def shuffle_of(
    convolution: SSAValue, view: SSAValue, order: Sequence[int], result: SSAValue
) -> Shuffle | None:
    """Return the pixel shuffle of a convolution's image that a view, transpose and view are.

    None if they move the elements otherwise, or the convolution is not a constant one.
    """
    op = convolution.owner
    assert isinstance(op, Operation)
    constants = op.operands[1:3]
    if not all(is_static(value.type) for value in (convolution, view, result)):
        return None
    if None in map(weight_key, constants) or len(made := shape_of(result)) != 4:
        return None
    batch, height, width, held = shape_of(convolution)
    moved = torch.arange(batch * height * width * held).reshape(shape_of(view)).permute(*order)
    for channels_first in (False, True):
        channels, *image = (made[1], *made[2:]) if channels_first else (made[3], *made[1:3])
        rows, columns = image[0] // height, image[1] // width
        if rows * columns < 2 or channels * rows * columns != held:
            continue
        axes = (0, 3, 1, 4, 2, 5) if channels_first else (0, 1, 4, 2, 5, 3)
        pixels = torch.arange(moved.numel()).reshape(batch, height, width, channels, rows, columns)
        if torch.equal(pixels.permute(*axes).flatten(), moved.flatten()):
            return Shuffle(channels, rows, columns, channels_first)
    return None


def by_phases(
    rw: Rewriter, convolution: SSAValue, rescaled: SSAValue, result: SSAValue, shuffle: Shuffle
) -> SSAValue:
    """Build the rescaled rows of each phase and interleave them."""
    b = Builder(rw)
    batch, height, width, _ = shape_of(rescaled)
    own = shuffle.columns * shuffle.channels
    shape = (batch, height, width, own)
    op, rescale = convolution.owner, rescaled.owner
    assert isinstance(op, Operation) and isinstance(rescale, Operation)
    parts: list[Value] = []
    for at in range(shuffle.rows):
        constants = [_phase(Value(value, b), shuffle, at).ssa for value in op.operands[1:3]]
        types = [tensor(shape, element(convolution.type))]
        sums = rw.insert(remade(op, [op.operands[0], *constants, *op.operands[3:]], types))
        factors = [_phase(Value(value, b), shuffle, at).ssa for value in rescale.operands[1:3]]
        types = [tensor(shape, element(rescaled.type))]
        made = remade(rescale, [sums.results[0], *factors, *rescale.operands[3:]], types)
        parts.append(Value(rw.insert(made).results[0], b))
    y = concat(parts, 2) if len(parts) > 1 else parts[0]
    y = y.reshape(batch, height * shuffle.rows, width * shuffle.columns, shuffle.channels)
    return (y.permute((0, 3, 1, 2)) if shuffle.channels_first else y).ssa


def _phase(value: Value, shuffle: Shuffle, at: int) -> Value:
    """Return the parameters of a phase's channels; shared parameters are unchanged."""
    if value.shape[0] == 1:
        return value
    sizes = {"channels": shuffle.channels, "rows": shuffle.rows, "columns": shuffle.columns}
    return value.derived("phase_of_shuffle", **sizes, at=at)


(ShuffledByPhases,) = RULES = read_rules(__doc__, globals())
