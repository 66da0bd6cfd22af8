"""Elementwise ops, clamps and pooling of int8, where XNNPACK has the kernel.

Before:
    %x = quant.dcast %a : tensor<4x!quant.uniform<i8:f32, 0.5>> to tensor<4xf32>
    %y = quant.dcast %b : tensor<4x!quant.uniform<i8:f32, 0.25>> to tensor<4xf32>
    %s = aten.add.Tensor(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %q = quant.qcast %s : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.75:3>>
After:
    %q = xnnpack.add(%a, %b) : (tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<4x!quant.uniform<i8:f32, 0.25>>) -> tensor<4x!quant.uniform<i8:f32, 0.75:3>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import quantization
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.quantised.recognise import clamp_bounds, deliver
from stepwell.translate.rewrites.xnnpack.nodes.lower_convolution import channels_last
from stepwell.translate.rewrites.xnnpack.nodes.lower_pooling import LowerPooling, Pooling
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import to_nchw, to_nhwc
from stepwell.translate.rewrites.xnnpack.quantised.quantised import (
    BetweenCasts,
    between_casts,
    within,
)
from stepwell.translate.rewrites.xnnpack.quantised.quantised_bounds import ROUNDED_ONCE

KERNELS: dict[type[Operation], type[XnnpackOp]] = {
    aten.AddTensor: xnnpack.Add,
    aten.SubTensor: xnnpack.Subtract,
    aten.MulTensor: xnnpack.Multiply,
}
"""Binary ops whose int8 kernels compute with both scales."""
CLAMPS = (aten.ClampDefault, aten.ReluDefault, aten.Relu6Default, aten.HardtanhDefault)


@dataclass(frozen=True)
class OnIntegers:
    """A node from int8 operands to the int8 that its result is quantised to."""

    between: BetweenCasts
    node: type[XnnpackOp]
    fields: tuple[tuple[str, Any], ...] = ()
    is_image: bool = False


@dataclass(frozen=True)
class LowerQuantisedElementwise(Rewrite[OnIntegers]):
    """q(op(dq(a), dq(b))) to the node of int8."""

    name: ClassVar[str] = "lower-quantised-elementwise"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        *KERNELS,
        *CLAMPS,
        *LowerPooling.anchors,
    )
    bound: ClassVar[Bound] = ROUNDED_ONCE

    def match(self, op: SchemaOp, program: Program) -> OnIntegers | Refusal | None:
        """Guards: every operand int8 computed in the program, all of int8 in the result."""
        is_binary = type(op) in KERNELS
        found = between_casts(op, op.operands[: 2 if is_binary else 1])
        if not isinstance(found, BetweenCasts):
            return found
        if is_binary:
            return self._binary(op, found)
        if isinstance(op, CLAMPS):
            return self._clamp(op, found)
        return self._pooling(op, found, program)

    def build(self, match: OnIntegers, rw: Rewriter) -> None:
        """The node; images lie channels last."""
        sources, made = match.between.sources, match.between.made.type
        fields = dict(match.fields)
        if match.is_image:
            node = match.node.make(to_nhwc(rw, sources[0]), result=channels_last(made), **fields)
            value = to_nchw(rw, rw.insert(node).results[0], made)
        else:
            value = rw.insert(match.node.make(*sources, result=made, **fields)).results[0]
        deliver(rw, match.between.uses, value)

    def _binary(self, op: SchemaOp, found: BetweenCasts) -> OnIntegers | Refusal:
        if "alpha" in op.SCHEMA.by_name and op.arg("alpha") != 1:
            return Refusal(f"alpha is {op.arg('alpha')}, not 1")
        refusal = not_in_kernel_range(found)
        return refusal or OnIntegers(found, KERNELS[type(op)], tuple(found.limits.items()))

    def _clamp(self, op: SchemaOp, found: BetweenCasts) -> OnIntegers | Refusal | None:
        bounds = clamp_bounds(op)
        if bounds is None:
            return None
        if changes_scale(found):
            return Refusal("XNNPACK merges a clamp into the node before it, with its scale")
        both = within(found, bounds)
        if isinstance(both, Refusal):
            return both
        return OnIntegers(both, xnnpack.Clamp, tuple(both.limits.items()))

    def _pooling(
        self, op: SchemaOp, found: BetweenCasts, program: Program
    ) -> OnIntegers | Refusal | None:
        form = LowerPooling().match(op, program)
        if not isinstance(form, Pooling):
            return form
        if found.limits:
            return Refusal("a clamp stands between it and its quantisation")
        if form.node is xnnpack.AveragePooling2d:
            return Refusal("XNNPACK averages windows of floats only")
        if form.node is not xnnpack.GlobalAveragePooling2d and changes_scale(found):
            return Refusal("XNNPACK pools and resizes int8 without changing the scale")
        return OnIntegers(found, form.node, form.fields, is_image=True)


def not_in_kernel_range(found: BetweenCasts) -> Refusal | None:
    """Scales of operands are at most 2⁸ and at least 2⁻¹⁰ of the result's (xnnpack's subgraph)."""
    made = quantization(found.made.type)
    assert made is not None
    for source in found.sources:
        held = quantization(source.type)
        assert held is not None
        ratio = held.scale / made.scale
        if not 2.0**-10 <= ratio < 2.0**8:
            return Refusal(f"a scale is {ratio:g} of the result's; XNNPACK takes 2⁻¹⁰ to 2⁸")
    return None


def changes_scale(found: BetweenCasts) -> bool:
    """Whether an operand and the result are quantised differently."""
    return any(element(source.type) != element(found.made.type) for source in found.sources)
