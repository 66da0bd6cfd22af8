"""Lowerings of int8 elementwise ops, clamps, pooling and data movement, if XNNPACK has a kernel.

PT2E annotates a flatten or a concatenation with the same quantization on both sides. Float data
movement between different casts stays float: nothing is quantized that the program did not
quantize.

`leftover_casts.py` lowers the casts that no kernel absorbed.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.rewriting.rewrite import EXACT, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.decompositions.values import no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.lowerings.xnnpack.images import POOLINGS, is_no_plane_mean, pooling_of
from stepwell.translate.lowerings.xnnpack.integers import (
    changes_scale,
    limits,
    needs_kernel_range,
    sources_of,
)
from stepwell.translate.lowerings.xnnpack.values import node
from stepwell.translate.quantized.layers import Layer, Parts
from stepwell.translate.quantized.recognize import Use, clamp_bounds
from stepwell.translate.rewrites.building import axis
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import (
    reshape,
    slice_bounds,
    slice_sizes,
    to_nchw,
    to_nhwc,
    transpose,
    unknown_sizes,
)
from stepwell.translate.rewrites.xnnpack.nodes.windows import channels_last

KERNELS = {
    "aten.add.Tensor": xnnpack.Add,
    "aten.sub.Tensor": xnnpack.Subtract,
    "aten.mul.Tensor": xnnpack.Multiply,
}
"""Binary ops whose int8 kernels use both scales."""
CLAMPS = ("aten.clamp.default", "aten.relu.default", "aten.relu6.default", "aten.hardtanh.default")


def _operands(op: SchemaOp) -> Parts | None:
    """Return the activations: two of a binary op, one of clamps by numbers and of plane means."""
    is_other = op.name in CLAMPS and clamp_bounds(op) is None
    if is_other or is_no_plane_mean(op):
        return None
    return Parts(op.operands[: 2 if op.name in KERNELS else 1])


@lowers(
    KERNELS | dict.fromkeys((*CLAMPS, *POOLINGS)),
    to="xnnpack",
    quantized_operands=_operands,
    takes_empty=True,
    sample="""
        %x = quant.dcast %a : tensor<4x!quant.uniform<i8:f32, 0.5>> to tensor<4xf32>
        %y = quant.dcast %b : tensor<4x!quant.uniform<i8:f32, 0.25>> to tensor<4xf32>
        %s = aten.add.Tensor(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
        %q = quant.qcast %s : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.75:3>>
    """,
)
def quantized_elementwise(
    *_: SSAValue, form: type[XnnpackOp] | None, op: SchemaOp, layer: Layer, use: Use, b: Rewriter
) -> SSAValue:
    """Lower q(op(dq(a), dq(b))) to an int8 node."""
    sources, fields = sources_of(layer), limits(use)
    if form is not None:
        if "alpha" in op.SCHEMA.by_name and op.arg("alpha") != 1:
            refuse(f"alpha is {op.arg('alpha')}, not 1")
        needs_kernel_range(layer, use)
        return node(b, form, *sources, result=use.type, **fields).ssa
    bounds = clamp_bounds(op)
    if bounds is not None:
        if changes_scale(layer, use):
            refuse("XNNPACK merges a clamp into the preceding node, whose scale differs")
        return node(b, xnnpack.Clamp, *sources, result=use.type, **limits(use, bounds)).ssa
    pooling = pooling_of(op)
    if fields:
        refuse("there is a clamp between the op and the quantization of its result")
    if pooling.node is xnnpack.AveragePooling2d:
        refuse("XNNPACK averages windows of floats only")
    if pooling.node is not xnnpack.GlobalAveragePooling2d and changes_scale(layer, use):
        refuse("XNNPACK pools and resizes int8 without changing the scale")
    image, made = to_nhwc(b, sources[0]), channels_last(use.type)
    y = node(b, pooling.node, image, result=made, **pooling.fields)
    return to_nchw(b, y.ssa, use.type)


@lowers(
    "aten.view.default",
    "aten.permute.default",
    "aten.slice.Tensor",
    "aten.cat.default",
    to="xnnpack",
    quantized_operands=lambda op: Parts(
        op.operands if isinstance(op, aten.CatDefault) else op.operands[:1]
    ),
    takes_empty=True,
    bound=EXACT,
    sample="""
        %x = quant.dcast %q : tensor<2x4x!quant.uniform<i8:f32, 0.5>> to tensor<2x4xf32>
        %v = aten.view.default(%x, [8]) : (tensor<2x4xf32>) -> tensor<8xf32>
        %r = quant.qcast %v : tensor<8xf32> to tensor<8x!quant.uniform<i8:f32, 0.5>>
    """,
)
def quantized_movement(
    *sources: SSAValue, op: SchemaOp, layer: Layer, use: Use, b: Rewriter
) -> SSAValue:
    """Move int8 instead of floats, if both sides have the same quantization."""
    if limits(use):
        refuse("the result is clamped; XNNPACK's data movement cannot clamp")
    if changes_scale(layer, use):
        refuse(
            "input and result have different scales, which requires float data movement between casts"
        )
    no_refusal(unknown_sizes(op))
    shape, (source, *_) = dims(use.type), sources
    if isinstance(op, aten.ViewDefault):
        return reshape(b, source, shape)
    if isinstance(op, aten.PermuteDefault):
        return transpose(b, source, [axis(d, len(shape)) for d in op.arg("dims")])
    if isinstance(op, aten.CatDefault):
        if len(sources) not in xnnpack.CONCATENATES:
            refuse("XNNPACK concatenates two to five tensors")
        at = axis(op.arg("dim"), len(shape))
        return node(b, xnnpack.CONCATENATES[len(sources)], *sources, axis=at).ssa
    bounds = slice_bounds(op)
    if bounds is None:
        refuse("XNNPACK slices with step 1 and constant bounds")
    offsets = [bounds[1] if index == bounds[0] else 0 for index in range(len(shape))]
    fields = {"offsets": offsets, "sizes": slice_sizes(shape)}
    return node(b, xnnpack.StaticSlice, source, result=use.type, **fields).ssa


RULES = lowerings_of(__name__)
