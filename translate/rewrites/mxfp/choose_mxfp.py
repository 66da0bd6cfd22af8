"""Let linear layers, convolutions and products of activations compute in MX.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x64xf32>
    %y = aten.linear.default(%x, %w) : (tensor<2x64xf32>, tensor<3x64xf32>) -> tensor<2x3xf32>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x64xf32>
    %y = stepwell_mx.linear.default(%x, %w, none, "fp8e4m3", "fp8e4m3", "operators") : (tensor<2x64xf32>, tensor<3x64xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.tosa_mxfp import operators
from stepwell.dialects.tosa_mxfp.operators import OPERATORS, form_refused
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import dtype_name, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, is_static
from stepwell.translate.rewrites.building import become, permute
from stepwell.translate.rewrites.tosa.operators.building import FLOATS

MxLinearOp = op_class(f"{operators.NAMESPACE}.linear.default")
MxQuantizeOp = op_class(f"{operators.NAMESPACE}.quantize_dequantize.default")
MxMatmulOp = op_class(f"{operators.NAMESPACE}.matmul_t.default")
MxConv2dOp = op_class(f"{operators.NAMESPACE}.conv2d.default")


def payload_fields(op: Operation) -> tuple[str, str]:
    """The fields with the payloads of a product's first operand and of its second."""
    return "payload", "b_payload" if isinstance(op, MxMatmulOp) else "weight_payload"


def block_axis(op: Operation) -> int:
    """The axis of both operands along which blocks lie: channels of images, else the last."""
    return 1 if isinstance(op, MxConv2dOp) else -1


Chooser = Callable[[SchemaOp], bool]
"""Whether an op is one of the layers that are to be MX."""

ROUNDED = Bound(0.5, 1.0, "the operands are rounded to the payload: this is the point")


@dataclass(frozen=True)
class ChooseMx(Rewrite[SchemaOp]):
    """A product of the layers that are chosen; subclasses say which op becomes which."""

    payload: str = "fp8e4m3"
    weight_payload: str = "fp8e4m3"
    form: str = OPERATORS
    chosen: Chooser | None = None
    bound: ClassVar[Bound] = ROUNDED

    def match(self, op: SchemaOp, program: Program) -> SchemaOp | Refusal | None:
        """Guards: chosen, a float element type, blocks of known sizes, a form that exists."""
        if self.chosen is not None and not self.chosen(op):
            return None
        held = [element(value.type) for value in op.operands]
        if held[0] not in FLOATS or held[1] != held[0]:
            return Refusal(
                f"TOSA has no MX product of {dtype_name(held[0])} by {dtype_name(held[1])}"
            )
        refusal = self.not_known(op)
        if refusal is not None:
            return refusal
        refused = form_refused(
            self.form, self.payload, self.weight_payload, torch_dtype(held[0]), self.convolves
        )
        if refused is not None:
            return Refusal(refused)
        return self.refuses(op) or op

    made: ClassVar[type[SchemaOp]]
    """The MX product; its last arguments are the payloads and the form."""
    convolves: ClassVar[bool] = False

    @abstractmethod
    def arguments(self, op: SchemaOp, rw: Rewriter) -> Sequence[object]:
        """What the MX product takes before them."""

    def build(self, match: SchemaOp, rw: Rewriter) -> None:
        """The product, with the payloads."""
        payloads = (self.payload, self.weight_payload, self.form)
        arguments = self.arguments(match, rw)
        become(rw, match, self.made, *arguments, *payloads)

    def not_known(self, op: SchemaOp) -> Refusal | None:
        """Sizes that the operators must know and do not."""
        if all(is_static(value.type) for value in (*op.operands, *op.results)):
            return None
        return Refusal("the shape is symbolic")

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Why this op cannot be MX, or None."""
        return None


@dataclass(frozen=True)
class ChooseMxLinear(ChooseMx):
    """`aten.linear` to `stepwell_mx.linear`."""

    name: ClassVar[str] = "choose-mx-linear"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LinearDefault,)
    made: ClassVar[type[SchemaOp]] = MxLinearOp

    def not_known(self, op: SchemaOp) -> Refusal | None:
        """The axis of the blocks, whose padding is a constant; rows may be open."""
        if is_static(op.operands[1].type):
            return None
        return Refusal("the size of the axis that the blocks lie along is symbolic")

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Guard: a weight known at compile time."""
        if weight_key(op.operands[1]) is None:
            return Refusal("the weight is computed at run time")
        if len(dims(op.operands[1].type)) != 2:
            return Refusal("its weight is one row, so that there is no axis of outputs")
        return None

    def arguments(self, op: SchemaOp, rw: Rewriter) -> Sequence[object]:
        """The same operands."""
        return op.operands[0], op.operands[1], op.operand("bias")


@dataclass(frozen=True)
class ChooseMxMatmul(ChooseMx):
    """`aten.bmm` to `stepwell_mx.matmul_t` of the transposed right side: QKᵀ and PV."""

    name: ClassVar[str] = "choose-mx-matmul"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.BmmDefault,)
    made: ClassVar[type[SchemaOp]] = MxMatmulOp

    def arguments(self, op: SchemaOp, rw: Rewriter) -> Sequence[object]:
        """The right side transposed; for QKᵀ that undoes the transpose that is there."""
        return op.operands[0], permute(rw, op.operands[1], [0, 2, 1])


@dataclass(frozen=True)
class ChooseMxConv2d(ChooseMx):
    """`aten.convolution` of images to `stepwell_mx.conv2d`."""

    name: ClassVar[str] = "choose-mx-conv2d"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ConvolutionDefault,)
    made: ClassVar[type[SchemaOp]] = MxConv2dOp
    convolves: ClassVar[bool] = True

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Guards: two axes, not transposed, more than a channel a group, a known weight."""
        if len(op.arg("stride")) != 2:
            return Refusal("TOSA's MX convolutions have two spatial axes")
        if op.arg("transposed"):
            return Refusal("TOSA has no transposed MX convolution")
        if is_depthwise(dims(op.operands[1].type), op.arg("groups")):
            return Refusal("a block of a depthwise convolution would hold one channel and 31 zeros")
        if weight_key(op.operands[1]) is None:
            return Refusal("the weight is computed at run time")
        return None

    def arguments(self, op: SchemaOp, rw: Rewriter) -> Sequence[object]:
        """The same operands and numbers."""
        numbers = [op.arg(name) for name in ("stride", "padding", "dilation", "groups")]
        return op.operands[0], op.operands[1], op.operand("bias"), *numbers


def is_depthwise(weight: Sequence[object], groups: int) -> bool:
    """Whether each of several groups has one input channel; the weight is `[O, C / groups, …]`.

    An image of one channel is none: its one group is all there is.
    """
    return groups > 1 and weight[1] == 1
