"""Quantization: choose MX for linear layers, convolutions and products of activations.

rule choose-mx-linear
    `aten.linear` to `stepwell_mx.linear`.
Before:
    %y = aten.linear.default(%x, %w, $b)
After:
    %y = stepwell_mx.linear.default(%x, %w, $b, $payload, $weight_payload, $form)
where is_chosen(%y, $chosen) for choice
unless multiplies_no_floats(%x, %w) for target
unless has_no_form($form, $payload, $weight_payload, %x)
where is_stored(%w) for target else "the weight is computed at run time"
where is_matrix(%w) for target else "its weight is one row, so that there is no axis of outputs"
not of empty tensors
option $payload = MXFP8: "what activations are rounded to"
option $weight_payload = MXFP8: "what weights, or the right side, are rounded to"
option $form = OPERATORS: "which of TOSA's two forms"
option $chosen = ALL: "which layers are to be MX; all where it is none"
bound 0.5 relative, 1.0 absolute as stated: "the operands are rounded to the payload: this is the point"
for %w = weight : tensor<3 x 64 x f32>
for %x = "tensor<2x64xf32>"
not for $chosen = no_layer
not for %w = "tensor<3x64xf32>"
not for %w = weight : tensor<64 x f32>
not for $form = TYPES_BF16

rule choose-mx-matmul
    `aten.bmm` to `stepwell_mx.matmul_t` of the transposed right side: QKᵀ and PV. For QKᵀ that
    undoes the transpose that is there.
Before:
    %y = aten.bmm.default(%x, %z)
After:
    %t = permuted(%z, [0, 2, 1])
    %y = stepwell_mx.matmul_t.default(%x, %t, $payload, $weight_payload, $form)
where is_chosen(%y, $chosen) for choice
unless multiplies_no_floats(%x, %z)
where is_static(%x, %z) for target else "the shape is symbolic"
unless has_no_form($form, $payload, $weight_payload, %x)
not of empty tensors
option $payload = MXFP8: "what activations are rounded to"
option $weight_payload = MXFP8: "what weights, or the right side, are rounded to"
option $form = OPERATORS: "which of TOSA's two forms"
option $chosen = ALL: "which layers are to be MX; all where it is none"
bound 0.5 relative, 1.0 absolute as stated: "the operands are rounded to the payload: this is the point"
for %x = "tensor<1x2x32xf32>", %z = "tensor<1x32x3xf32>"
not for $chosen = no_layer
not for $form = TYPES_BF16

rule choose-mx-conv2d
    `aten.convolution` of images to `stepwell_mx.conv2d`.
Before:
    %y = aten.convolution.default(%x, %w, $b, $stride, $padding, $dilation, $transposed, $outer,
        $groups)
After:
    %y = stepwell_mx.conv2d.default(%x, %w, $b, $stride, $padding, $dilation, $groups, $payload,
        $weight_payload, $form)
where is_chosen(%y, $chosen) for choice
unless multiplies_no_floats(%x, %w) for target
where is_static(%x, %w, %y) for target else "the shape is symbolic"
unless convolves_in_no_form($form, $payload, $weight_payload, %x)
where are_two($stride) else "TOSA's MX convolutions have two spatial axes"
where not is_true($transposed) else "TOSA has no transposed MX convolution"
where has_whole_blocks(%w, $groups) for target
    else "a block of a depthwise convolution would hold one channel and 31 zeros"
where is_stored(%w) for target else "the weight is computed at run time"
not of empty tensors
option $payload = MXFP8: "what activations are rounded to"
option $weight_payload = MXFP8: "what weights, or the right side, are rounded to"
option $form = OPERATORS: "which of TOSA's two forms"
option $chosen = ALL: "which layers are to be MX; all where it is none"
bound 0.5 relative, 1.0 absolute as stated: "the operands are rounded to the payload: this is the point"
for %w = weight : tensor<8 x 32 x 1 x 1 x f32>
for %x = "tensor<1x32x4x4xf32>", $stride = [1, 1], $padding = [0, 0], $dilation = [1, 1]
for $transposed = false, $outer = [0, 0], $groups = 1
not for $chosen = no_layer
not for $form = TYPES_BF16
not for $transposed = true; %w = weight : tensor<32 x 8 x 1 x 1 x f32>
not for $groups = 32; %w = weight : tensor<32 x 1 x 1 x 1 x f32>
not for %w = "tensor<8x32x1x1xf32>"
not for %w = weight : tensor<8 x 32 x 1 x 1 x f64>; %x = "tensor<1x32x4x4xf64>"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.tosa_mxfp import operators
from stepwell.dialects.tosa_mxfp.operators import form_refused
from stepwell.ir import types
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import dtype_name, torch_dtype
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.building import is_depthwise
from stepwell.translate.rewrites.tosa.operators.building import FLOATS
from stepwell.translate.rewrites.views import merge_views
from stepwell.translate.rules import read_rules

MxLinearOp = op_class(f"{operators.NAMESPACE}.linear.default")
MxQuantizeOp = op_class(f"{operators.NAMESPACE}.quantize_dequantize.default")
MxMatmulOp = op_class(f"{operators.NAMESPACE}.matmul_t.default")
MxConv2dOp = op_class(f"{operators.NAMESPACE}.conv2d.default")


def payload_fields(op: Operation) -> tuple[str, str]:
    """Return the fields with the payload types of a product's first and second operand."""
    return "payload", "b_payload" if isinstance(op, MxMatmulOp) else "weight_payload"


def block_axis(op: Operation) -> int:
    """Return the blocks' axis in both operands: channels of images, else the last axis."""
    return 1 if isinstance(op, MxConv2dOp) else -1


Chooser = Callable[[SchemaOp], bool]
"""Whether an op is one of the layers that are to be MX."""

MXFP8, OPERATORS, ALL = "fp8e4m3", operators.OPERATORS, None
TYPES_BF16 = operators.TYPES_BF16


def no_layer(layer: SchemaOp) -> bool:
    """Return False: select no layer, which is the default of the configuration."""
    return False


def is_chosen(value: SSAValue, chosen: Chooser | None) -> bool:
    """Whether the value is the result of a layer that is configured to compute in MX."""
    return chosen is None or chosen(cast(SchemaOp, value.owner))


def multiplies_no_floats(one: SSAValue, other: SSAValue) -> Refusal | None:
    """Refuse a product unless both operands have the same float type, and TOSA has that type."""
    first, second = element(one.type), element(other.type)
    if first in FLOATS and first == second:
        return None
    names = dtype_name(first), dtype_name(second)
    return Refusal("TOSA has no MX product of {} by {}".format(*names))


def is_static(*values: SSAValue) -> bool:
    """Whether the tensors have static sizes."""
    return all(types.is_static(value.type) for value in values)


def has_no_form(
    form: str, payload: str, other: str, value: SSAValue, convolves: bool = False
) -> Refusal | None:
    """Refuse payload types of which TOSA has no product (or no convolution)."""
    reason = form_refused(form, payload, other, torch_dtype(element(value.type)), convolves)
    return None if reason is None else Refusal(reason)


def convolves_in_no_form(form: str, payload: str, other: str, value: SSAValue) -> Refusal | None:
    """Refuse payload types of which TOSA has no convolution."""
    return has_no_form(form, payload, other, value, convolves=True)


def is_stored(value: SSAValue) -> bool:
    """Whether the value is a weight of the program."""
    return weight_key(value) is not None


def is_matrix(value: SSAValue) -> bool:
    """Whether the tensor has two axes."""
    return len(dims(value.type)) == 2


def are_two(numbers: Sequence[int]) -> bool:
    """Whether the list has two elements."""
    return len(numbers) == 2


def has_whole_blocks(weight: SSAValue, groups: int) -> bool:
    """Whether the filter has more than one channel per group, along which blocks run."""
    return not is_depthwise(dims(weight.type), groups)


RULES = ChooseMxLinear, ChooseMxMatmul, ChooseMxConv2d = read_rules(
    __doc__, vars(merge_views) | globals()
)
