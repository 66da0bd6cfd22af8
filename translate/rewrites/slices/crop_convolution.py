"""Reduce a convolution's padding where its result is sliced at the ends, on a dynamic axis.

A causal convolution is often written as a padded one whose last results are dropped (`y[:, :,
:-6]`). On a dynamic axis no node can slice from the end. Less padding gives the same numbers:

    conv(x, padding=(6, 6))[:, :, :-6] = conv(x, padding=(6, 0))

A transposed convolution computes less where its padding is greater, and as much of its last step as
`output_padding` says.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.sizes.size import Size, settled
from stepwell.ir.types import dims
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.building import TO_THE_END, axis


@lowers(
    "aten.slice.Tensor",
    to="aten",
    bound=roundings("a kernel for other paddings may sum in another order"),
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<3x3x3xf32>
    %c = aten.convolution.default(%x, %w, none, [1], [2], [1], false, [0], 1) : (tensor<1x3x?xf32, #stepwell.shape<[1, 3, "s"]>>, tensor<3x3x3xf32>) -> tensor<1x3x?xf32, #stepwell.shape<[1, 3, "s + 2"]>>
    %y = aten.slice.Tensor(%c, 2, 0, -2, 1) : (tensor<1x3x?xf32, #stepwell.shape<[1, 3, "s + 2"]>>) -> tensor<1x3x?xf32, #stepwell.shape<[1, 3, "s"]>>
    """,
)
def crop_convolution(x: Value, *, op: SchemaOp, out: Out) -> Value | None:
    """Pad a convolution less, instead of removing the ends of its result by a slice on a dynamic
    axis.
    """
    conv = x.owner
    if not isinstance(conv, aten.ConvolutionDefault) or op.arg("step") != 1:
        return None
    at = axis(op.arg("dim"), x.rank)
    front, stop = op.arg("start") or 0, op.arg("end")
    stop = TO_THE_END if stop is None else stop
    if isinstance(front, SSAValue) or isinstance(stop, SSAValue):
        return None
    if at < 2 or not isinstance(x.shape[at], Size) or front < 0 or 0 <= stop < TO_THE_END:
        return None
    if not x.ssa.has_one_use():
        refuse("the result of the convolution has other uses")
    end, space = 0 if stop == TO_THE_END else -stop, at - 2
    image, padding = Value(conv.operands[0], x.b), list(conv.arg("padding"))
    outer = list(conv.arg("output_padding"))
    if conv.arg("transposed"):
        outer[space] += front - end
        padding[space] += front
        if not 0 <= outer[space] < conv.arg("stride")[space]:
            refuse(
                "a transposed convolution cannot be cropped by more at the end than at the start"
            )
    else:
        image = _padded(image, conv, space, (front, end))
        padding[space] = 0
    return image.call(
        aten.ConvolutionDefault,
        conv.operands[1],
        conv.operand("bias"),
        conv.arg("stride"),
        padding,
        conv.arg("dilation"),
        conv.arg("transposed"),
        outer,
        conv.arg("groups"),
        shape=out.shape,
    )


def _padded(x: Value, conv: SchemaOp, space: int, cropped: tuple[int, int]) -> Value:
    """Pad a spatial axis with the zeros that a convolution adds, less those that are cropped."""
    if (stride := conv.arg("stride")[space]) != 1:
        refuse(f"the convolution has stride {stride} along the axis")
    own, padding = padding_of(x.ssa, space), conv.arg("padding")[space]
    amounts = [zeros + padding - cut for zeros, cut in zip(own, cropped, strict=True)]
    if min(amounts) < 0:
        refuse("the slice cuts off more than the padding adds")
    if any(own):
        x = Value(x.owner.operands[0], x.b)
    if not any(amounts):
        return x
    shape = list(x.shape)
    shape[space + 2] = settled(Size.of(shape[space + 2]) + sum(amounts))
    listed = [0, 0] * (x.rank - space - 3) + amounts
    return x.call(aten.ConstantPadNdDefault, listed, 0, shape=shape)


def padding_of(x: SSAValue, space: int) -> tuple[int, int]:
    """Return the zeros that a separate pad adds at both ends of a single spatial axis."""
    owner = x.owner
    if not isinstance(owner, aten.ConstantPadNdDefault) or not x.has_one_use():
        return 0, 0
    amounts = owner.arg("pad")
    before = 2 * (len(dims(x.type)) - space - 3)
    if owner.arg("value") != 0 or any(amounts[:before]) or any(amounts[before + 2 :]):
        return 0, 0
    first, last = (*amounts[before : before + 2], 0, 0)[:2]
    return (first, last) if first >= 0 and last >= 0 else (0, 0)


RULES = lowerings_of(__name__)
