"""Elementwise ops, clamps and pooling of int8, where XNNPACK has the kernel.

Before:
    func.func @forward(%a: tensor<4x!quant.uniform<i8:f32, 0.5>>, %b: tensor<4x!quant.uniform<i8:f32, 0.25>>) -> tensor<4x!quant.uniform<i8:f32, 0.75:3>> {
      %x = quant.dcast %a : tensor<4x!quant.uniform<i8:f32, 0.5>> to tensor<4xf32>
      %y = quant.dcast %b : tensor<4x!quant.uniform<i8:f32, 0.25>> to tensor<4xf32>
      %s = aten.add.Tensor(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      %q = quant.qcast %s : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.75:3>>
      func.return %q : tensor<4x!quant.uniform<i8:f32, 0.75:3>>
    }
After:
    func.func @forward(%a: tensor<4x!quant.uniform<i8:f32, 0.5>>, %b: tensor<4x!quant.uniform<i8:f32, 0.25>>) -> tensor<4x!quant.uniform<i8:f32, 0.75:3>> {
      %q = xnnpack.add(%a, %b) : (tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<4x!quant.uniform<i8:f32, 0.25>>) -> tensor<4x!quant.uniform<i8:f32, 0.75:3>>
      func.return %q : tensor<4x!quant.uniform<i8:f32, 0.75:3>>
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import QuantizeCast, quantization
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.datatypes import datatype
from stepwell.dialects.xnnpack.weights import constant_of
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.quantised.recognise import quantised_source
from stepwell.translate.rewrites.xnnpack.lower_convolution import channels_last
from stepwell.translate.rewrites.xnnpack.lower_elementwise import BINARY
from stepwell.translate.rewrites.xnnpack.lower_pooling import LowerPooling, Pooling
from stepwell.translate.rewrites.xnnpack.lower_shape import to_nchw, to_nhwc
from stepwell.translate.rewrites.xnnpack.quantised import (
    limits,
    not_computed_range,
    not_static_int8,
)
from stepwell.translate.rewrites.xnnpack.quantised_bounds import ROUNDED_ONCE
from stepwell.translate.rewrites.xnnpack.quantised_patterns import clamped

KERNELS = (aten.AddTensor, aten.SubTensor, aten.MulTensor)
"""Binary ops whose int8 kernels compute with both scales."""


@dataclass(frozen=True)
class OnIntegers:
    """A node from int8 operands to the int8 that its result is quantised to."""

    cast: QuantizeCast
    node: type[XnnpackOp]
    sources: tuple[SSAValue, ...]
    fields: tuple[tuple[str, Any], ...] = ()
    is_image: bool = False


@dataclass(frozen=True)
class LowerQuantisedElementwise(Rewrite[OnIntegers]):
    """q(op(dq(a), dq(b))) to the node of int8."""

    name: ClassVar[str] = "lower-quantised-elementwise"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast,)
    bound: ClassVar[Bound] = ROUNDED_ONCE

    def match(self, op: QuantizeCast, program: Program) -> OnIntegers | Refusal | None:
        """Guards: every operand int8 computed in the program, all of int8 in the result."""
        found = clamped(op.input, program)
        if isinstance(found, Refusal):
            return found
        maker = found.value.owner
        if isinstance(maker, KERNELS):
            return self._binary(op, maker, found.low, found.high)
        if found.low is not None or found.high is not None:
            source = quantised_source(found.value)
            if source is None:
                return None
            fields = tuple(limits(found.low, found.high).items())
            refusal = not_from_integers(op, (source,))
            if refusal is None and source_differs(op, source):
                refusal = Refusal("XNNPACK merges a clamp into the node before it, with its scale")
            return refusal or OnIntegers(op, xnnpack.Clamp, (source,), fields)
        if isinstance(maker, LowerPooling.anchors):
            assert isinstance(maker, SchemaOp)
            return self._pooling(op, maker, program)
        return None

    def build(self, match: OnIntegers, rw: Rewriter) -> None:
        """The node; images lie channels last."""
        made = match.cast.result.type
        fields = dict(match.fields)
        if match.is_image:
            image = to_nhwc(rw, match.sources[0])
            node = match.node.make(image, result=channels_last(made), **fields)
            rw.replace(match.cast, [to_nchw(rw, rw.insert(node).results[0], made)])
            return
        node = match.node.make(*match.sources, result=made, **fields)
        rw.replace(match.cast, [rw.insert(node).results[0]])

    def _binary(
        self, op: QuantizeCast, maker: SchemaOp, low: float | None, high: float | None
    ) -> OnIntegers | Refusal:
        if "alpha" in maker.SCHEMA.by_name and maker.arg("alpha") != 1:
            return Refusal(f"alpha is {maker.arg('alpha')}, not 1")
        sources = [quantised_source(operand) for operand in maker.operands[:2]]
        known = tuple(source for source in sources if source is not None)
        if len(known) != 2:
            return Refusal("an operand is not quantised")
        refusal = not_from_integers(op, known) or not_in_kernel_range(op, known)
        if refusal is not None:
            return refusal
        return OnIntegers(op, BINARY[type(maker)], known, tuple(limits(low, high).items()))

    def _pooling(
        self, op: QuantizeCast, maker: SchemaOp, program: Program
    ) -> OnIntegers | Refusal | None:
        source = quantised_source(maker.operands[0])
        if source is None:
            return None
        form = LowerPooling().match(maker, program)
        if not isinstance(form, Pooling):
            return form
        refusal = not_from_integers(op, (source,))
        if refusal is not None:
            return refusal
        if form.node is xnnpack.AveragePooling2d:
            return Refusal("XNNPACK averages windows of floats only")
        if form.node is not xnnpack.GlobalAveragePooling2d and source_differs(op, source):
            return Refusal("XNNPACK pools and resizes int8 without changing the scale")
        return OnIntegers(op, form.node, (source,), form.fields, is_image=True)


def not_from_integers(op: QuantizeCast, sources: Sequence[SSAValue]) -> Refusal | None:
    """Operands and result are of the same int8 kind; a constant XNNPACK would not copy stays out."""
    for refusal in (
        not_static_int8(op.result),
        not_computed_range(op.result),
        *(not_static_int8(source) for source in sources),
    ):
        if refusal is not None:
            return refusal
    if len({datatype(value.type) for value in (op.result, *sources)}) > 1:
        return Refusal("operands and result are int8 and uint8; XNNPACK wants one of them")
    if all(constant_of(source) is not None for source in sources):
        return Refusal("all operands are constants; XNNPACK needs one that is computed")
    return None


def not_in_kernel_range(op: QuantizeCast, sources: Sequence[SSAValue]) -> Refusal | None:
    """Scales of operands are at most 2⁸ and at least 2⁻¹⁰ of the result's (xnnpack's subgraph)."""
    made = quantization(op.result.type)
    assert made is not None
    for source in sources:
        held = quantization(source.type)
        assert held is not None
        ratio = held.scale / made.scale
        if not 2.0**-10 <= ratio < 2.0**8:
            return Refusal(f"a scale is {ratio:g} of the result's; XNNPACK takes 2⁻¹⁰ to 2⁸")
    return None


def source_differs(op: QuantizeCast, source: SSAValue) -> bool:
    """Whether operand and result are quantised differently."""
    return element(source.type) != element(op.result.type)
