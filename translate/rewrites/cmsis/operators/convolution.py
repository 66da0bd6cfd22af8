"""The geometry of a convolution op, for every ATen variant of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import dims, is_static


def not_fixed(*values: SSAValue) -> Refusal | None:
    """Refuse dynamic shapes, because most operators of the library do not resize results."""
    if all(is_static(value.type) for value in values):
        return None
    return Refusal("the shape is known only at run time, and the operator resizes nothing")


Pair = tuple[int, int]


@dataclass(frozen=True)
class Geometry:
    """A convolution over two dimensions; a one-dimensional one has height 1.

    Shapes are NCHW and OIHW. `padding` is on both sides; `excess` is the additional padding of one
    side, (before, after) as (h, w) each.
    """

    input_shape: tuple[int, int, int, int]
    weight_shape: tuple[int, int, int, int]
    output_shape: tuple[int, int, int, int]
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    excess: tuple[Pair, Pair] = ((0, 0), (0, 0))

    @property
    def is_depthwise(self) -> bool:
        """Whether to use CMSIS-NN's depthwise kernel, which is fast for one image only."""
        channels = self.input_shape[1]
        return (
            self.groups == channels
            and self.groups > 1
            and self.weight_shape[0] % channels == 0
            and self.input_shape[0] == 1
        )


def geometry(op: SchemaOp) -> Geometry | Refusal | None:
    """Return the geometry of a convolution, or why the kernels cannot compute it."""
    if op.name == "aten.convolution.default" and op.arg("transposed"):
        return None
    if refusal := not_fixed(op.operands[0], op.operands[1], op.results[0]):
        return refusal
    spatial = len(dims(op.operands[1].type)) - 2
    if spatial not in (1, 2):
        return Refusal(
            f"the input is {op.operands[0].type}; the kernels convolve one or two dimensions"
        )
    is_flat = spatial == 1
    given, weight, made = (
        four(cast("tuple[int, ...]", dims(value.type)), is_flat)
        for value in (op.operands[0], op.operands[1], op.results[0])
    )
    stride, dilation = (pair(op.arg(name), is_flat, 1) for name in ("stride", "dilation"))
    padding = op.arg("padding")
    before, after = _sides(padding, weight, dilation, is_flat)
    common = (min(before[0], after[0]), min(before[1], after[1]))
    excess = tuple(tuple(side[axis] - common[axis] for axis in (0, 1)) for side in (before, after))
    return Geometry(
        given,
        weight,
        made,
        stride,
        common,
        dilation,
        cast(int, op.arg("groups")),
        cast("tuple[Pair, Pair]", excess),
    )


def four(shape: Sequence[int], is_flat: bool) -> tuple[int, int, int, int]:
    """Return (N, C, H, W), or (N, C, W) if flat, as NCHW sizes; an unbatched image gets batch 1."""
    if len(shape) == (2 if is_flat else 3):
        shape = (1, *shape)
    n, c, *size = shape
    return (n, c, 1, size[0]) if is_flat else (n, c, size[0], size[1])


def pair(value: Any, is_flat: bool = False, default: int = 0) -> Pair:
    """Return an `int[2]` argument, also from one number; 1-D ops get height 1."""
    items = cast("list[int]", value if isinstance(value, list) else [value])
    if is_flat:
        return (default, items[0])
    return (items[0], items[0]) if len(items) == 1 else (items[0], items[1])


def _sides(padding: Any, weight: Sequence[int], dilation: Pair, is_flat: bool) -> tuple[Pair, Pair]:
    """Return padding before and after; torch puts the odd element of "same" padding at the end."""
    if padding == "valid":
        return (0, 0), (0, 0)
    if padding == "same":
        total = [dilation[axis] * (weight[2 + axis] - 1) for axis in (0, 1)]
        before = (total[0] // 2, total[1] // 2)
        return before, (total[0] - before[0], total[1] - before[1])
    both = pair(padding, is_flat, 0)
    return both, both
