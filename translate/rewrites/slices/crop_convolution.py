"""Reduce a convolution's padding where its result is sliced at the ends, on a dynamic axis.

A causal convolution is often written as a padded one whose last results are dropped (`y[:, :,
:-6]`). On a dynamic axis no node can slice from the end. Less padding gives the same numbers:

    conv(x, padding=(6, 6))[:, :, :-6] = conv(x, padding=(6, 0))

A transposed convolution computes less where its padding is greater, and as much of its last step as
`output_padding` says.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x3x3xf32>
    %c = aten.convolution.default(%x, %w, none, [1], [2], [1], false, [0], 1) : (tensor<1x3x?xf32, #stepwell.shape<[1, 3, "s"]>>, tensor<3x3x3xf32>) -> tensor<1x3x?xf32, #stepwell.shape<[1, 3, "s + 2"]>>
    %y = aten.slice.Tensor(%c, 2, 0, -2, 1) : (tensor<1x3x?xf32, #stepwell.shape<[1, 3, "s + 2"]>>) -> tensor<1x3x?xf32, #stepwell.shape<[1, 3, "s"]>>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x3x3xf32>
    %0 = aten.constant_pad_nd.default(%x, [2, 0], 0) : (tensor<1x3x?xf32, #stepwell.shape<[1, 3, "s"]>>) -> tensor<1x3x?xf32, #stepwell.shape<[1, 3, "s + 2"]>>
    %y = aten.convolution.default(%0, %w, none, [1], [0], [1], false, [0], 1) : (tensor<1x3x?xf32, #stepwell.shape<[1, 3, "s + 2"]>>, tensor<3x3x3xf32>) -> tensor<1x3x?xf32, #stepwell.shape<[1, 3, "s"]>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.sizes.size import Size, settled
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.building import TO_THE_END, axis, emit, emit_as


@dataclass(frozen=True)
class CroppedConvolution:
    """A slice of a convolution's result: the amounts removed from the front and from the end."""

    op: SchemaOp
    convolution: SchemaOp
    space: int
    front: int
    end: int


@dataclass(frozen=True)
class CropConvolution(Rewrite[CroppedConvolution]):
    """`conv(x)[a:-b]` to a convolution of less padding."""

    name: ClassVar[str] = "crop-convolution"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.SliceTensor,)
    bound: ClassVar[Bound] = roundings("a kernel for other paddings may sum in another order")

    def match(self, op: SchemaOp, program: Program) -> CroppedConvolution | Refusal | None:
        """Guards: a slice, the only reader, cuts a convolution's ends on a dynamic axis."""
        owner = op.operands[0].owner
        if not isinstance(owner, aten.ConvolutionDefault) or op.arg("step") != 1:
            return None
        shape = dims(op.operands[0].type)
        at = axis(op.arg("dim"), len(shape))
        front, stop = op.arg("start") or 0, op.arg("end")
        stop = TO_THE_END if stop is None else stop
        if isinstance(front, SSAValue) or isinstance(stop, SSAValue):
            return None
        if at < 2 or not isinstance(shape[at], Size) or front < 0 or 0 <= stop < TO_THE_END:
            return None
        if not owner.results[0].has_one_use():
            return Refusal("what the convolution gives is read elsewhere too")
        end = 0 if stop == TO_THE_END else -stop
        cropped_convolution = CroppedConvolution(op, owner, at - 2, front, end)
        return cannot_be_cropped(cropped_convolution) or cropped_convolution

    def build(self, match: CroppedConvolution, rw: Rewriter) -> None:
        """Build the convolution with other paddings."""
        conv, space = match.convolution, match.space
        x, result = conv.operands[0], match.op.results[0]
        padding, outer = list(conv.arg("padding")), list(conv.arg("output_padding"))
        if conv.arg("transposed"):
            outer[space] += match.front - match.end
            padding[space] += match.front
        else:
            own = padding_of(x, space)
            amounts = [n + padding[space] for n in own]
            padding[space] = 0
            if any(own):
                x = x.owner.operands[0]  # pyright: ignore
            x = padded(rw, x, space, (amounts[0] - match.front, amounts[1] - match.end))
        new = aten.ConvolutionDefault.make(
            x,
            *conv.operands[1:2],
            conv.operand("bias"),
            conv.arg("stride"),
            padding,
            conv.arg("dilation"),
            conv.arg("transposed"),
            outer,
            conv.arg("groups"),
            result_types=[result.type],
        )
        rw.replace(match.op, [emit_as(rw, new, result)])


def cannot_be_cropped(cropped_convolution: CroppedConvolution) -> Refusal | None:
    """The slice removes other elements than those that the padding of both ends adds."""
    conv, space = cropped_convolution.convolution, cropped_convolution.space
    stride, padding = conv.arg("stride")[space], conv.arg("padding")[space]
    if conv.arg("transposed"):
        outer = (
            conv.arg("output_padding")[space] + cropped_convolution.front - cropped_convolution.end
        )
        if not 0 <= outer < stride:
            return Refusal("a transposed convolution cannot end further inside than it begins")
        return None
    if stride != 1:
        return Refusal(f"a step of {stride} along the axis")
    own = padding_of(conv.operands[0], space)
    if cropped_convolution.front > own[0] + padding or cropped_convolution.end > own[1] + padding:
        return Refusal("more is cut off than the padding adds")
    return None


def padding_of(x: SSAValue, space: int) -> tuple[int, int]:
    """Return the zeros that a separate pad adds at both ends of one spatial axis alone."""
    owner = x.owner
    if not isinstance(owner, aten.ConstantPadNdDefault) or not x.has_one_use():
        return 0, 0
    amounts = owner.arg("pad")
    before = 2 * (len(dims(x.type)) - space - 3)
    if owner.arg("value") != 0 or any(amounts[:before]) or any(amounts[before + 2 :]):
        return 0, 0
    first, last = (*amounts[before : before + 2], 0, 0)[:2]
    return (first, last) if first >= 0 and last >= 0 else (0, 0)


def padded(rw: Rewriter, x: SSAValue, space: int, amounts: tuple[int, int]) -> SSAValue:
    """Pad a spatial axis with zeros at both ends."""
    if not any(amounts):
        return x
    shape = list(dims(x.type))
    at = space + 2
    shape[at] = settled(Size.of(shape[at]) + sum(amounts))
    listed = [0, 0] * (len(shape) - at - 1) + list(amounts)
    type_ = tensor(shape, element(x.type))
    return emit(rw, aten.ConstantPadNdDefault.make(x, listed, 0, result_types=[type_]))
