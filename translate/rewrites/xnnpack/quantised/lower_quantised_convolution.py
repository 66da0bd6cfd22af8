"""Quantised convolutions to int8 nodes, channels last, their scales moved with the filter's axes.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x2x1x1xi8>
    %t = quant.scast %w : tensor<3x2x1x1xi8> to tensor<3x2x1x1x!quant.uniform<i8:f32, 0.125>>
    %r = quant.dcast %t : tensor<3x2x1x1x!quant.uniform<i8:f32, 0.125>> to tensor<3x2x1x1xf32>
    %x = quant.dcast %q : tensor<1x2x4x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x2x4x4xf32>
    %y = aten.convolution.default(%x, %r, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x2x4x4xf32>, tensor<3x2x1x1xf32>) -> tensor<1x3x4x4xf32>
    %z = quant.qcast %y : tensor<1x3x4x4xf32> to tensor<1x3x4x4x!quant.uniform<i8:f32, 0.25>>
After:
    %0 = stepwell.weight <"w#filter_ohwi.614511dd59f1"> "constant" : tensor<3x1x1x2xi8>
    %1 = xnnpack.static_transpose(%q, perm=[0, 2, 3, 1]) : (tensor<1x2x4x4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:3>>
    %2 = quant.scast %0 : tensor<3x1x1x2xi8> to tensor<3x1x1x2x!quant.uniform<i8:f32, 0.125>>
    %3 = xnnpack.convolution_2d(%1, %2, groups=1, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1]) : (tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<3x1x1x2x!quant.uniform<i8:f32, 0.125>>) -> tensor<1x4x4x3x!quant.uniform<i8:f32, 0.25>>
    %z = xnnpack.static_transpose(%3, perm=[0, 3, 1, 2]) : (tensor<1x4x4x3x!quant.uniform<i8:f32, 0.25>>) -> tensor<1x3x4x4x!quant.uniform<i8:f32, 0.25>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack.datatypes import DynamicInt8Type
from stepwell.dialects.xnnpack.spatial import Convolution2d
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter, Value
from stepwell.ir.types import dims, element
from stepwell.translate.quantised.recognise import StoredWeight, deliver, stored_constant
from stepwell.translate.quantised.run_time import run_time_quantised
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_constant, not_for_xnnpack
from stepwell.translate.rewrites.xnnpack.nodes.lower_convolution import (
    Convolution,
    channels_last,
    fields_of,
    form_of,
    laid_out,
    not_a_known_line,
    not_an_image,
)
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import to_nchw, to_nhwc
from stepwell.translate.rewrites.xnnpack.quantised.quantised import (
    BetweenCasts,
    StoredParameters,
    between_casts,
    not_a_filter,
    on_axis,
    per_channel,
    product_step,
    stored_parameters,
    typed_bias,
    typed_constant,
)
from stepwell.translate.rewrites.xnnpack.quantised.quantised_bounds import (
    STATIC_LAYER,
    STORED_LAYER,
    static_layer,
    stored_layer,
)


@dataclass(frozen=True)
class StaticConvolution:
    """A convolution from int8 to int8, with a clamp before its quantisation perhaps."""

    form: Convolution
    between: BetweenCasts
    stored: StoredParameters


@dataclass(frozen=True)
class LowerQuantisedConvolution(Rewrite[StaticConvolution]):
    """q(convolution(dq(x), dq(w), b)) to XNNPACK's convolutions of int8."""

    name: ClassVar[str] = "lower-quantised-convolution"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ConvolutionDefault,)
    bound: ClassVar[Bound] = STATIC_LAYER

    def match(self, op: SchemaOp, program: Program) -> StaticConvolution | Refusal | None:
        """Guards: int8 images, a symmetric constant filter, a bias that fits int32."""
        found = between_casts(op, op.operands[:1])
        if not isinstance(found, BetweenCasts):
            return found
        source = found.sources[0]
        stored = stored_parameters(op, found, output_axis(op), program)
        if isinstance(stored, Refusal):
            return stored
        for refusal in (
            not_an_image(len(dims(source.type))),
            not_a_known_line(source, found.made),
            not_one_group(op, stored.weight),
        ):
            if refusal is not None:
                return refusal
        form = form_of(op, stored.weight.key)
        if isinstance(form, Refusal):
            return form
        return StaticConvolution(form, found, stored)

    def bound_at(self, match: StaticConvolution, value: Value) -> Bound:
        """`quantised_bounds.static_layer`."""
        products = product_step(match.between.sources[0], match.stored.weight)
        return static_layer(match.form.op, products, match.between.made, value)

    def build(self, match: StaticConvolution, rw: Rewriter) -> None:
        """Channels last, the node, channels second."""
        (source,), made = match.between.sources, match.between.made.type
        node = match.form.node.make(
            to_nhwc(rw, source),
            filter_of(rw, match.form, match.stored.weight),
            *typed_bias(rw, match.stored, source),
            result=channels_last(made),
            **fields_of(match.form),
            **match.between.limits,
        )
        deliver(rw, match.between.uses, to_nchw(rw, rw.insert(node).results[0], made))


@dataclass(frozen=True)
class DynamicConvolution:
    """A convolution of images that are quantised by their own range."""

    form: Convolution
    source: SSAValue
    scale: SSAValue
    weight: StoredWeight


@dataclass(frozen=True)
class LowerDynamicConvolution(Rewrite[DynamicConvolution]):
    """convolution(dq(q(x, scale of x)), dq(w), b) with run-time scales, the filter kept stored."""

    name: ClassVar[str] = "lower-dynamic-convolution"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ConvolutionDefault,)
    bound: ClassVar[Bound] = STORED_LAYER

    def match(self, op: SchemaOp, program: Program) -> DynamicConvolution | Refusal | None:
        """Guards: float32 images, a symmetric constant filter, no depthwise form."""
        weight = stored_constant(op.operands[1])
        found = run_time_quantised(op.operands[0])
        if weight is None or found is None:
            return None
        if found.by_token:
            return Refusal("each row of the image has a scale of its own")
        source = found.source
        for refusal in (
            not_for_xnnpack(op),
            not_an_image(len(dims(source.type))),
            not_a_known_line(source, op.results[0]),
            not_a_filter(weight, output_axis(op)),
            not_one_group(op, weight),
            not_constant(op.operand("bias"), "bias"),
        ):
            if refusal is not None:
                return refusal
        if element(source.type) != f32:
            return Refusal("XNNPACK quantises float32 values at run time")
        form = form_of(op, weight.key)
        if isinstance(form, Refusal):
            return form
        if form.node is xnnpack.DepthwiseConvolution2d:
            return Refusal("XNNPACK has no depthwise convolution with run-time scales")
        return DynamicConvolution(form, source, found.scale, weight)

    def bound_at(self, match: DynamicConvolution, value: Value) -> Bound:
        """`quantised_bounds.stored_layer`; a token is an image, or a pixel if pointwise."""
        return stored_layer(match.form.op, float(value(match.scale)), value)

    def build(self, match: DynamicConvolution, rw: Rewriter) -> None:
        """Channels last, quantise, the node to floats, channels second."""
        image = to_nhwc(rw, match.source)
        op = match.form.op
        outputs = dims(op.results[0].type)[1]
        assert isinstance(outputs, int)
        held = per_channel(match.weight.held, 0, outputs)
        stored = typed_constant(rw, laid_out(match.form, rw.weights), held)
        bias = op.operand("bias")
        extra = [] if bias is None else [bias]
        shared = shared_dimensions(match.form, stored)
        value = rw.insert(xnnpack.Convert.make(image, element=DynamicInt8Type(shared))).results[0]
        made = channels_last(op.results[0].type)
        node = match.form.node.make(value, stored, *extra, result=made, **fields_of(match.form))
        rw.replace(op, [to_nchw(rw, rw.insert(node).results[0], op.results[0].type)])


def shared_dimensions(form: Convolution, stored: SSAValue) -> int:
    """How many dimensions of the input share a scale: the pixel's own if XNNPACK sees rows.

    XNNPACK makes a fully connected node of a pointwise convolution (`Convolution2d`).
    """
    if form.node is not Convolution2d:
        return 3
    outputs, height, width, inputs = dims(stored.type)
    assert isinstance(outputs, int) and isinstance(inputs, int)
    is_pointwise = (
        (height, width) == (1, 1)
        and form.stride == (1, 1)
        and form.padding == (0, 0)
        and form.groups == 1
        and outputs + inputs > 2
    )
    return 1 if is_pointwise else 3


def output_axis(op: SchemaOp) -> int:
    """The axis of the outputs in torch's filter."""
    return 1 if op.arg("transposed") else 0


def not_one_group(op: SchemaOp, weight: StoredWeight) -> Refusal | None:
    """A transposed filter's axis of outputs has those of one group only: scales must be common."""
    if op.arg("transposed") and op.arg("groups") != 1 and not weight.held.is_per_tensor:
        return Refusal("a transposed convolution in groups shares each scale among the groups")
    return None


def filter_of(rw: Rewriter, form: Convolution, weight: StoredWeight) -> SSAValue:
    """The stored filter in the node's order of axes, its scales on the node's output axis."""
    key = laid_out(form, rw.weights)
    return typed_constant(rw, key, on_axis(weight.held, filter_axis(form)))


def filter_axis(form: Convolution) -> int:
    """The axis of the outputs in the node's filter."""
    return 3 if form.node is xnnpack.DepthwiseConvolution2d else 0
