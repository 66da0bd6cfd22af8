"""Spell every convolution as `aten.convolution.default`.

One op has every rank, transposed or not, with lists as long as there are spatial axes. Padding
`same` becomes numbers, with a pad in front where it is uneven; an unbatched input gets a batch
axis of 1.

Before:
    %y = aten.conv2d.padding(%x, %w, none, [1, 1], "same") : (tensor<1x3x8x8xf32>, tensor<4x3x2x2xf32>) -> tensor<1x4x8x8xf32>
After:
    %0 = aten.constant_pad_nd.default(%x, [0, 1, 0, 1], 0) : (tensor<1x3x8x8xf32>) -> tensor<1x3x9x9xf32>
    %y = aten.convolution.default(%0, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x9x9xf32>, tensor<4x3x2x2xf32>) -> tensor<1x4x8x8xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.building import cannot_be_viewed_as, emit, static_dims, view


@dataclass(frozen=True)
class Convolved:
    """A convolution with every number written out; `extra` pads the ends of the spatial axes."""

    op: SchemaOp
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int
    extra: tuple[int, ...]


@dataclass(frozen=True)
class ConvToConvolution(Rewrite[Convolved]):
    """`conv1d`, `conv2d`, `conv3d`, `conv_transpose…`, `_convolution` to `convolution`."""

    name: ClassVar[str] = "conv-to-convolution"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.Conv1dDefault,
        aten.Conv2dDefault,
        aten.Conv3dDefault,
        aten.Conv1dPadding,
        aten.Conv2dPadding,
        aten.Conv3dPadding,
        aten.ConvTranspose1dDefault,
        aten.ConvTranspose2dInput,
        aten.ConvTranspose3dInput,
        aten._ConvolutionDefault,
        aten.ConvolutionDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> Convolved | Refusal | None:
        """Strides, paddings and kernel sizes are numbers."""
        weight = static_dims(op.operands[1])
        if weight is None:
            return Refusal("the shape of the kernel is symbolic")
        space = len(weight) - 2
        names = op.SCHEMA.by_name
        transposed = "output_padding" in names and (
            op.arg("transposed") if "transposed" in names else True
        )
        lists = {
            n: op.arg(n) for n in ("stride", "padding", "dilation", "output_padding") if n in names
        }
        if any(
            type(v) is not int and isinstance(v, SSAValue) for item in lists.values() for v in item
        ):
            return Refusal("strides or paddings are known only at run time")
        padding, extra = lists["padding"], (0,) * space
        stride, dilation = spread(lists["stride"], space), spread(lists["dilation"], space)
        if padding == "valid":
            padding = [0]
        elif padding == "same":
            totals = [d * (k - 1) for d, k in zip(dilation, weight[2:], strict=True)]
            padding, extra = [t // 2 for t in totals], tuple(t % 2 for t in totals)
        found = Convolved(
            op,
            stride,
            spread(padding, space),
            dilation,
            bool(transposed),
            spread(lists.get("output_padding", [0]), space),
            op.arg("groups"),
            extra,
        )
        if isinstance(op, aten.ConvolutionDefault) and is_batched(op):
            stated = tuple(tuple(lists[n]) for n in ("stride", "padding", "dilation"))
            if stated == (found.stride, found.padding, found.dilation):
                return None
        if is_batched(op):
            return found
        return cannot_be_viewed_as(op.operands[0], (1, *dims(op.operands[0].type))) or found

    def build(self, match: Convolved, rw: Rewriter) -> None:
        """Write the pad, the view to a batch, the convolution and the view back."""
        op, value, result = match.op, match.op.operands[0], match.op.results[0]
        if any(match.extra):
            value = pad_ends(rw, value, match.extra)
        shape = dims(result.type)
        if not is_batched(op):
            value, shape = view(rw, value, (1, *dims(value.type))), (1, *shape)
        new = aten.ConvolutionDefault.make(
            value,
            op.arg("weight"),
            op.arg("bias"),
            list(match.stride),
            list(match.padding),
            list(match.dilation),
            match.transposed,
            list(match.output_padding),
            match.groups,
            result_types=[tensor(shape, element(result.type))],
        )
        rw.replace(op, [view(rw, emit(rw, new), dims(result.type))])


def is_batched(op: SchemaOp) -> bool:
    """Whether the input has a batch axis."""
    return len(dims(op.operands[0].type)) == len(dims(op.operands[1].type))


def spread(numbers: Sequence[int], space: int) -> tuple[int, ...]:
    """One number a spatial axis."""
    return tuple(numbers) * space if len(numbers) == 1 else tuple(numbers)


def pad_ends(rw: Rewriter, value: SSAValue, extra: Sequence[int]) -> SSAValue:
    """Zeros behind the last elements of the spatial axes."""
    held = dims(value.type)
    lead = len(held) - len(extra)
    more = [0] * lead + list(extra)
    shape = [d + m if isinstance(d, int) else d for d, m in zip(held, more, strict=True)]
    amounts = [number for end in reversed(extra) for number in (0, end)]
    padded = tensor(shape, element(value.type))
    return emit(rw, aten.ConstantPadNdDefault.make(value, amounts, 0, result_types=[padded]))
