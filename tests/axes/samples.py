"""An instance of every op that has an axis map, in short form (`tests/notation/short_ir.py`).

A sample is an op whose first result is `%y`, and the constants before it. `{a|b}` stands for a in
one sample and for b in another; `$NAME` is one of `SHARED`.
"""

import re
from collections.abc import Iterator
from itertools import product
from string import Template

from short_ir import statements

from .elementwise_samples import elementwise_samples

OPAQUE: dict[str, str] = {
    "cmsis.join": "it names what kernels have just written, and stays there",
}
"""Ops without a map, and why."""

SHARED = {
    "ZERO": '%p = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>',
    "ZERO_BYTE": '%p = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>',
    "NEGATED": ", ".join(str(-n) for n in range(-127, 129)),
    "CHANNELS": "%x: f32[2, 3, 2], %z: f32[3], %w: f32[3], %u: f32[3], %v: f32[3]",
    "CONVERT": 'scale=0.5, zero_point=3, quant_min=-128, quant_max=127, dtype="int8"',
    "RANGE": "activation_min=-128, activation_max=127",
    "ADD": ", ".join(
        f"{side}_zero_point=0, {side}_multiplier=1073741824, {side}_shift=0"
        for side in ("self", "other", "output")
    ),
    "ZEROS": "self_zero_point=0, other_zero_point=0, output_zero_point=0",
    "POOL": "kernel_size=[3, 2], stride=[2, 1], padding=[1, 0], ceil_mode=false",
    **{
        f"SCALES{channels}": f"requantize_multipliers={[1 << 30] * channels}, "
        f"requantize_shifts={[-3] * channels}, input_offset=0, output_offset=0, "
        "activation_min=-128, activation_max=127"
        for channels in (1, 2, 3)
    },
}

XNNPACK = """
%y = xnnpack.{abs|ceiling|copy|cosine|exp|floor|gelu|hardswish|log|negate|reciprocal_square_root
    |sigmoid|sine|softmax|square|square_root|tanh}(%x: f32[2, 1, 5])
%y = xnnpack.{add|subtract|multiply|divide|minimum|maximum|prelu}(
    %x: f32[2, 3, 4], %z: f32[{2, 3, 4|3, 1}])
%y = xnnpack.clamp(%x: f32[3, 4], output_min=-0.5)
%y = xnnpack.leaky_relu(%x: f32[3, 4], negative_slope=0.1)
%y = xnnpack.elu(%x: f32[3, 4], alpha=0.7)
%y = xnnpack.convert(%x: f32[3, 4]) -> f16[3, 4]
%y = xnnpack.static_reshape(%x: f32[2, 1, 6, 4], new_shape=[2, 3, 8, 1])
%y = xnnpack.static_reshape(%x: f32[4, 6], new_shape=[3, 4, 2])
%y = xnnpack.static_transpose(%x: f32[2, 3, 4], perm=[2, 0, 1])
%y = xnnpack.static_slice(%x: f32[3, 5], offsets=[0, 2], sizes=[0, 2])
%y = xnnpack.static_constant_pad(
    %x: f32[3, 2], pre_paddings=[1, 0], post_paddings=[0, 3], padding_value=1.5)
%y = xnnpack.concatenate2(%x: f32[2, 1], %z: f32[2, 2], axis=1)
%y = xnnpack.concatenate3(%x: f32[2, 1], %z: f32[2, 2], %w: f32[2, 3], axis=1)
%y = xnnpack.concatenate4(%x: f32[2, 1], %z: f32[2, 2], %w: f32[2, 3], %u: f32[2, 4], axis=1)
%y = xnnpack.concatenate5(
    %x: f32[2, 1], %z: f32[2, 2], %w: f32[2, 3], %u: f32[2, 4], %v: f32[2, 5], axis=1)
%y = xnnpack.fully_connected(%x: f32[2, 3, 4], %z: f32[5, 4], %w: f32[5])
%y = xnnpack.fully_connected(%x: f32[3, 4], %z: f32[4, 5], transpose_weights=true)
%y = xnnpack.batch_matrix_multiply(%x: f32[2, 3, 4, 5], %z: f32[1, 5, 2])
%y = xnnpack.batch_matrix_multiply(%x: f32[3, 4], %z: f32[5, 4], transpose_b=true)
%y = xnnpack.scaled_dot_product_attention(
    %x: f32[1, 2, 3, 4], %z: f32[1, 2, 5, 4], %w: f32[1, 2, 5, 2], %u: f32[4], %v: f32[3, 5])
%y = xnnpack.convolution_2d(%x: f32[2, 5, 6, 2], %z: f32[4, 3, 2, 1], %w: f32[4],
    padding=[1, 0, 1, 1], stride=[2, 1], dilation=[1, 2], groups=2)
%y = xnnpack.depthwise_convolution_2d(%x: f32[1, 4, 4, 3], %z: f32[1, 3, 3, 3], %w: f32[3],
    padding=[1, 1, 1, 1], stride=[2, 2])
%y = xnnpack.depthwise_convolution_2d(%x: f32[1, 3, 3, 2], %z: f32[1, 2, 2, 4])
%y = xnnpack.deconvolution_2d(
    %x: f32[1, 2, 2, 2], %z: f32[3, 2, 2, 2], %w: f32[3], stride=[2, 2])
%y = xnnpack.max_pooling_2d(
    %x: f32[2, 5, 6, 2], kernel=[2, 2], stride=[2, 2], padding=[1, 1, 0, 1])
%y = xnnpack.average_pooling_2d(
    %x: f32[2, 5, 6, 2], kernel=[3, 2], stride=[1, 2], padding=[1, 0, 1, 0])
%y, %i = xnnpack.argmax_pooling_2d(%x: f32[1, 4, 4, 2], kernel=[2, 2], stride=[2, 2])
%y = xnnpack.global_average_pooling_2d(%x: f32[2, 5, 6, 2]{|, keep_dims=true})
%y = xnnpack.static_resize_bilinear_2d(%x: f32[1, 2, 3, 2], new_size=[4, 5])
"""

ATEN = """
%y = aten.{alias|alias_copy|contiguous|detach|detach_copy|lift_fresh_copy}.default(%x: f32[2, 1, 5])
%y = aten.{clamp|clip}.default(%x: f32[2, 1, 5], -0.5, 0.5)
%y = aten.clamp_min.default(%x: f32[2, 1, 5], -0.5)
%y = aten.clamp_max.default(%x: f32[2, 1, 5], 0.5)
%y = aten.threshold.default(%x: f32[2, 1, 5], 0.1, 0.2)
%y = aten.{dropout|alpha_dropout|feature_dropout|feature_alpha_dropout}.default(
    %x: f32[2, 1, 5], 0.5, false)
%y, %m = aten.native_dropout.default(%x: f32[2, 3], 0.5, false)
%y = aten.softshrink.default(%x: f32[2, 1, 5], 0.4)
%y = aten.logical_not.default(%x: i1[2, 3])
%y = aten._to_copy.default(%x: f32[2, 3], dtype=f16)
%y = aten.to.dtype(%x: f32[2, 3], f16)
%y = aten.div.Tensor_mode(%x: f32[2, 3, 4], %z: f32[3, 1], rounding_mode="floor")
%y = aten.div.Scalar_mode(%x: f32[2, 3, 4], 0.7, rounding_mode="floor")
%y = aten.pow.Tensor_Scalar(%x: f32[2, 3, 4], 2)
%y = aten.round.decimals(%x: f32[2, 3, 4], decimals=1)
%y = aten.{rsub.Tensor|copy.default|clamp.Tensor|clamp_min.Tensor|clamp_max.Tensor|max.other
    |min.other|_prelu_kernel.default}(%x: f32[2, 3, 4], %z: f32[3, 1])
%y = aten.clip.Tensor(%x: f32[2, 3, 4], %z: f32[3, 1], %w: f32[4])
%y = aten.{addcmul|addcdiv}.default(%x: f32[2, 3, 4], %z: f32[3, 1], %w: f32[4], value=0.3)
%y = aten.lerp.Scalar(%x: f32[2, 3], %z: f32[2, 3], {0.3|0.7})
%y = aten.prelu.default(%x: f32[2, 3, 4], %z: f32[{3|1}])
%y = aten.masked_fill.Tensor(%x: f32[2, 3], %z: i1[3], %w: f32[])
%y = aten.where.self(%x: i1[3, 1], %z: f32[2, 3, 4], %w: f32[2, 3, 4])
%y = aten.{expand|expand_copy|broadcast_to}.default(%x: f32[3, 1], [2, 3, 4])
%y = aten.expand_as.default(%x: f32[3, 1], %z: f32[2, 3, 4])
%y = aten.{view|reshape|_unsafe_view|_reshape_copy|view_copy}.default(%x: f32[2, 6, 4], [2, 3, 8])
%y = aten.flatten.using_ints(%x: f32[2, 3, 1, 4], 1, 3)
%y = aten.unflatten.int(%x: f32[2, 6], 1, [3, 2])
%y = aten.unsqueeze.default(%x: f32[2, 3], 1)
%y = aten.squeeze.default(%x: f32[2, 1, 3])
%y = aten.squeeze.dim(%x: f32[2, 1, 3], 1)
%y = aten.squeeze.dims(%x: f32[2, 1, 3, 1], [1, 3])
%y = aten.{permute|permute_copy}.default(%x: f32[2, 3, 4], [-1, 0, 1])
%y = aten.{transpose.int|transpose_copy.int|swapaxes.default|swapdims.default}(
    %x: f32[2, 3, 4], -1, 1)
%y = aten.{t|t_copy|numpy_T|mT|adjoint}.default(%x: f32[2, 3])
%y = aten.{movedim|moveaxis}.int(%x: f32[2, 3, 4], 0, -1)
%y = aten.{movedim|moveaxis}.intlist(%x: f32[2, 3, 4], [-1, 0], [0, 1])
%y = aten.{slice|slice_copy}.Tensor(%x: f32[2, 7], 1, -6, 7, 2)
%y = aten.slice.Tensor(%x: f32[2, 4], 1, -9, -2)
%y = aten.narrow.default(%x: f32[2, 7], 1, 2, 3)
%y = aten.{select|select_copy}.int(%x: f32[2, 3, 4], 1, 2)
%y = aten.flip.default(%x: f32[2, 3, 4], [0, -1])
%y = aten.roll.default(%x: f32[2, 3, 4], [1, 2], [0, 2])
%y = aten.constant_pad_nd.default(%x: f32[2, 3], [1, -1, 1, 2], 0.5)
%y = aten.cat.default([%x: f32[2, 1], %z: f32[2, 3]], 1)
%y = aten.stack.default([%x: f32[2, 3], %z: f32[2, 3]], 1)
%y, %z = aten.{split.Tensor|unsafe_split.Tensor}(%x: f32[2, 5], 3, 1)
%y, %z = aten.split_with_sizes.default(%x: f32[2, 5], [3, 2], 1)
%y, %z = aten.chunk.default(%x: f32[2, 5], 2, 1)
%y, %z = aten.unbind.int(%x: f32[3, 2], 1)
%y = aten.linear.default(%x: f32[2, 3, 4], %z: f32[5, 4], %w: f32[5])
%y = aten.mm.default(%x: f32[3, 4], %z: f32[4, 2])
%y = aten.bmm.default(%x: f32[2, 3, 4], %z: f32[2, 4, 2])
%y = aten.matmul.default(%x: f32[2, 1, 3, 4], %z: f32[5, 4, 2])
%y = aten.addmm.default(%x: f32[2], %z: f32[3, 4], %w: f32[4, 2])
%y = aten.convolution.default(
    %x: f32[2, 2, 5, 4], %z: f32[4, 1, 3, 2], %w: f32[4], [2, 1], [1, 0], [1, 1], false, [0, 0], 2)
%y = aten.convolution.default(
    %x: f32[1, 3, 5, 4], %z: f32[3, 1, 2, 2], none, [1, 1], [0, 0], [2, 2], false, [0, 0], 3)
%y = aten.conv1d.default(%x: f32[2, 2, 6], %z: f32[3, 2, 3], none, [1], [1])
%y = aten.conv2d.default(%x: f32[1, 2, 4, 4], %z: f32[3, 2, 2, 2], none, [2, 2])
%y = aten.conv3d.default(%x: f32[1, 1, 2, 3, 3], %z: f32[2, 1, 2, 2, 2])
%y = aten.embedding.default(%x: f32[2, 3], %z: i64[2, 4])
%y = aten.index_select.default(%x: f32[3, 2, 2], 1, %z: i64[4])
%y = aten.index.Tensor(%x: f32[2, 2, 3, 4], [none, %z: i64[5, 1], %w: i64[2]])
%y = aten.index.Tensor(%x: f32[2, 3, 2, 4], [%z: i64[5, 1], none, %w: i64[2]])
%y = aten.gather.default(%x: f32[3, 2, 2], 1, %z: i64[2, 4, 2])
%y = aten.{softmax.int|cumsum.default}(%x: f32[2, 3, 4], 1)
%y = aten._softmax.default(%x: f32[2, 3, 4], -1, false)
%y = aten.log_softmax.int(%x: f32[2, 3, 4], 0)
%y = aten._log_softmax.default(%x: f32[2, 3, 4], 1, false)
%y = aten._safe_softmax.default(%x: f32[2, 3, 4], 2)
%y = aten.{mean.dim|sum.dim_IntList|amax.default|amin.default}(
    %x: f32[2, 3, 4], {[0, -1]|[1], true})
%y = aten.logsumexp.default(%x: f32[2, 3, 4], [1], true)
%y = aten.{__and__|__or__|__xor__|bitwise_xor}.Tensor(%x: i64[2, 3], %z: i64[3])
%y = aten.argmax.default(%x: f32[2, 3, 4], 1)
%y = aten.diff.default(%x: f32[2, 3, 4], 1, 1)
%y = aten.diff.default(%x: f32[2, 3], 1, -1, %z: f32[2, 1], %w: f32[2, 2])
%y = aten.scatter.value(%x: f32[3, 2, 2], 1, %z: i64[2, 4, 2], 2.0)
%y = aten.{scatter.src|scatter_add.default}(
    %x: f32[3, 2, 2], 1, %z: i64[2, 4, 2], %w: f32[3, 4, 2])
%y = aten.slice_scatter.default(%x: f32[2, 3, 4], %z: f32[2, 2, 4], 1, 0, 2)
%y = aten.select_scatter.default(%x: f32[2, 3, 4], %z: f32[2, 4], 1, 2)
%y = aten.{tril|triu}.default(%x: f32[2, 3, 4])
%y = aten.one_hot.default(%x: i64[2, 3], 4)
%y = aten.prod.dim_int(%x: f32[2, 3, 4], 1, true)
%y = aten.{any|all}.{dim(%x: i1[2, 3], 1)|dims(%x: i1[2, 3], [1])}
%y = aten.layer_norm.default(%x: f32[2, 3, 4], [3, 4], %z: f32[3, 4], %w: f32[3, 4])
%y = aten.rms_norm.default(%x: f32[2, 3, 4], [3, 4], %z: f32[3, 4])
%y, %r = aten._fused_rms_norm.default(%x: f32[2, 3, 4], [4], %z: f32[4], 0.1)
%y, %m, %r = aten.native_layer_norm.default(%x: f32[2, 3, 4], [4], %z: f32[4], %w: f32[4], 0.1)
%y = aten.{batch|instance}_norm.default($CHANNELS, false, 0.1, 0.1, false)
%y, %m, %s = aten._native_batch_norm_legit_no_training.default($CHANNELS, 0.1, 0.1)
%y, %m, %s = aten.native_batch_norm.default($CHANNELS, false, 0.1, 0.1)
%y, %m, %s, %t = aten._batch_norm_no_update.default($CHANNELS, 0.1, 0.1)
%y = aten.max_pool2d.default(%x: f32[1, 2, 5, 4], [3, 2], [2, 1], [1, 0])
%y = aten.avg_pool2d.default(%x: f32[2, 5, 4], [2, 2])
"""

TOSA = """
%y = tosa.{abs|ceil|cos|erf|exp|floor|identity|log|reciprocal|rsqrt|sigmoid|sin|tanh}(
    %x: f32[2, 1, 5])
%y = tosa.{add|maximum|minimum|pow|sub}(%x: f32[2, 3, 4], %z: f32[1, 3, 1])
%y = tosa.{bitwise_and|bitwise_or|bitwise_xor|intdiv|logical_left_shift|logical_right_shift}(
    %x: i32[2, 3], %z: i32[2, 1])
%y = tosa.arithmetic_right_shift(%x: i32[2, 3], %z: i32[2, 1], round=false)
%y = tosa.{bitwise_not|clz}(%x: i32[2, 3])
%y = tosa.logical_not(%x: i1[2, 3])
%y = tosa.logical_{and|or|xor}(%x: i1[2, 3], %z: i1[1, 3])
%y = tosa.{equal|greater|greater_equal}(%x: f32[2, 3], %z: f32[2, 1])
%y = tosa.cast(%x: f32[2, 3]) -> f16[2, 3]
%y = tosa.clamp %x: f32[2, 3] {min_val = -0.5 : f32, max_val = 0.5 : f32} : (f32[2, 3]) -> f32[2, 3]
$ZERO_BYTE; %y = tosa.mul(%x: f32[2, 3], %z: f32[2, 1], %p)
$ZERO; %y = tosa.negate(%x: f32[2, 3], %p, %p)
%y = tosa.select(%x: i1[1, 3], %z: f32[2, 3], %w: f32[2, 1])
%m = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
%s = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
$ZERO_BYTE; %y = tosa.rescale %x: i8[2, 3], %m, %s, %p, %p {
    scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false,
    output_unsigned = false} : (i8[2, 3], i32[1], i8[1], i8[1], i8[1]) -> i8[2, 3]
%t = "tosa.const"() <{values = dense<[$NEGATED]> : tensor<256xi8>}> : () -> tensor<256xi8>
%y = tosa.table(%x: i8[2, 3], %t)
%y = tosa.reduce_{all|any}(%x: i1[2, 3, 4], axis=1)
%y = tosa.reduce_{max|min|product|sum}(%x: f32[2, 3, 4], axis=1)
%y = tosa.argmax(%x: f32[2, 3, 4], axis=1) -> i32[2, 4]
%y = tosa.concat([%x: f32[2, 1], %z: f32[2, 3]], axis=1)
%y = tosa.reverse(%x: f32[2, 3], axis=1)
%y = tosa.transpose(%x: f32[2, 3, 4], perms=[2, 0, 1])
%y = tosa.reshape(%x: f32[2, 6, 4], [2, 3, 8])
%y = tosa.slice(%x: f32[3, 5], [0, 2], [3, 2])
$ZERO; %y = tosa.pad(%x: f32[3, 2], [1, 0, 0, 3], %p)
%y = tosa.tile(%x: f32[1, 2, 3], [2, 1, 2])
$ZERO; %y = tosa.matmul(%x: f32[2, 3, 4], %z: f32[2, 4, 2], %p, %p)
$ZERO; %y = tosa.matmul_t(%x: f32[2, 3, 4], %z: f32[2, 5, 4], %p, %p)
$ZERO; %y = tosa.conv2d(%x: f32[1, 5, 4, 2], %z: f32[3, 2, 2, 2], %w: f32[3], %p, %p,
    pad=[1, 0, 0, 1], stride=[2, 1], dilation=[1, 1], acc_type=f32)
$ZERO; %y = tosa.depthwise_conv2d(%x: f32[1, 4, 4, 2], %z: f32[2, 2, 2, 1], %w: f32[2], %p, %p,
    pad=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1], acc_type=f32)
%y = tosa.max_pool2d(%x: f32[1, 5, 4, 2], kernel=[2, 2], stride=[2, 1], pad=[1, 0, 0, 1])
$ZERO; %y = tosa.avg_pool2d(
    %x: f32[1, 5, 4, 2], %p, %p, kernel=[2, 2], stride=[2, 1], pad=[1, 0, 0, 1], acc_type=f32)
"""

CMSIS = """
%y = cmsis.quantize_per_tensor(%x: f32[2, 3], $CONVERT) -> i8[2, 3]
%y = cmsis.dequantize_per_tensor(%x: i8[2, 3], $CONVERT) -> f32[2, 3]
%y = cmsis.quantized_add(%x: i8[1, 4, 2, 3], %z: i8[1, 4, {2, 3|1, 1}], $ADD, $RANGE)
    -> i8[1, 4, 2, 3]
%y = cmsis.quantized_mul(%x: i8[1, 4, 2, 3], %z: i8[1, 4, {2, 3|1, 1}], $ZEROS,
    output_multiplier=1073741824, output_shift=-3) -> i8[1, 4, 2, 3]
%y = cmsis.{minimum|maximum}(%x: i8[1, 4, 2, 3], %z: i8[1, 4, {2, 3|1, 1}]) -> i8[1, 4, 2, 3]
%y = cmsis.quantized_div(%x: i8[2, 3], %z: i8[2, 3], $ZEROS, output_scale=0.5) -> i8[2, 3]
%y = cmsis.quantized_activation(%x: i8[2, 3], %z: i8[256]) -> i8[2, 3]
%y = cmsis.softmax(%x: i8[2, 3], dim=-1, input_zero_point=0, output_zero_point=-128,
    input_multiplier=1073741824, input_shift=20, diff_min=-500) -> i8[2, 3]
%y = cmsis.{transpose|relabel}(%x: i8[2, 3, 4], perm=[2, 0, 1]) -> i8[4, 2, 3]
%y = cmsis.pad(%x: i8[3, 2], pre_pad=[0, 0, 1, 0], post_pad=[0, 0, 0, 3], pad_value=4) -> i8[4, 5]
%y = cmsis.part(%x: i8[1, 5, 2], axis=1, start=2) -> i8[1, 2, 2]
%y = cmsis.copy(%x: i8[2, 3]) -> i8[2, 3]
%y = cmsis.quantized_linear(%x: i8[2, 3, 4], %z: i8[5, 4], filter_offset=0, $SCALES1) -> i8[2, 3, 5]
%y = cmsis.quantized_linear(%x: i8[3, 4], %z: i8[5, 4], bias=%w: i32[5], filter_offset=0, $SCALES1)
    -> i8[3, 5]
%y = cmsis.quantized_batch_matmul(
    %x: i8[2, 3, 4], %z: i8[2, 5, 4], lhs_zero_point=0, rhs_zero_point=0, output_zero_point=0,
    output_multiplier=1073741824, output_shift=-3, scratch=0) -> i8[2, 3, 5]
%y = cmsis.quantized_conv2d_nhwc(%x: i8[1, 5, 4, 2], %z: i8[3, 2, 2, 2], bias=%w: i32[3],
    stride=[2, 1], padding=[1, 0], dilation=[1, 1], scratch=0, $SCALES3) -> i8[1, 3, 3, 3]
%y = cmsis.quantized_conv2d(%x: i8[1, 2, 5, 4], %z: i8[3, 2, 2, 2], bias=%w: i32[3],
    stride=[2, 1], padding=[1, 0], dilation=[1, 1], scratch=0, $SCALES3) -> i8[1, 3, 3, 3]
%y = cmsis.quantized_depthwise_conv2d_nhwc(%x: i8[1, 5, 6, 2], %z: i8[1, 2, 2, 2], bias=%w: i32[2],
    stride=[2, 1], padding=[1, 0], dilation=[1, 2], depth_multiplier=1, scratch=0, $SCALES2)
    -> i8[1, 3, 4, 2]
%y = cmsis.quantized_depthwise_conv2d(%x: i8[1, 2, 5, 6], %z: i8[1, 2, 2, 2], bias=%w: i32[2],
    stride=[2, 1], padding=[1, 0], dilation=[1, 2], depth_multiplier=1, scratch=0, $SCALES2)
    -> i8[1, 2, 3, 4]
%y = cmsis.quantized_transpose_conv2d_nhwc(%x: i8[1, 2, 3, 2], %z: i8[3, 3, 2, 2], bias=%w: i32[3],
    stride=[2, 1], padding=[1, 0], dilation=[1, 1], output_padding=[0, 0], output_scratch=0,
    scratch=0, $SCALES3) -> i8[1, 3, 4, 3]
%y = cmsis.quantized_transpose_conv2d(%x: i8[1, 2, 2, 3], %z: i8[3, 3, 2, 2], bias=%w: i32[3],
    stride=[2, 1], padding=[1, 0], dilation=[1, 1], output_padding=[0, 0], output_scratch=0,
    scratch=0, $SCALES3) -> i8[1, 3, 3, 4]
%y = cmsis.quantized_avg_pool2d_nhwc(
    %x: i8[1, 5, 4, 2], $POOL, zero_point=0, multiplier=1, shift=0, scratch=0) -> i8[1, 3, 3, 2]
%y = cmsis.quantized_avg_pool2d(
    %x: i8[1, 2, 5, 4], $POOL, zero_point=0, multiplier=1, shift=0, scratch=0) -> i8[1, 2, 3, 3]
%y = cmsis.quantized_max_pool2d_nhwc(%x: i8[1, 5, 4, 2], $POOL, dilation=[1, 1],
    input_zero_point=0, output_zero_point=0, $RANGE) -> i8[1, 3, 3, 2]
%y = cmsis.quantized_max_pool2d(%x: i8[1, 2, 5, 4], $POOL, dilation=[1, 1],
    input_zero_point=0, output_zero_point=0, $RANGE) -> i8[1, 2, 3, 3]
"""


def samples(text: str) -> Iterator[str]:
    """Yield each sample of a text."""
    joined = re.sub(r"\n +", " ", Template(text).substitute(SHARED)).replace(" |", "|")
    held: list[str] = []
    for statement in statements(joined):
        held.append(statement)
        if statement.startswith("%y"):
            parts = re.split(r"\{([^{}]*\|[^{}]*)\}", "\n".join(held))
            for chosen in product(*(p.split("|") if i % 2 else [p] for i, p in enumerate(parts))):
                yield "".join(chosen)
            held = []


def name_of(sample: str) -> str:
    """The name of a sample's op."""
    return re.findall(r"^%y.*? = ([\w.]+)", sample, re.MULTILINE)[0]


_ATEN = tuple(samples(ATEN))
SAMPLES: tuple[str, ...] = (
    *samples(XNNPACK),
    *_ATEN,
    *elementwise_samples({name_of(sample) for sample in _ATEN}),
    *samples(TOSA),
    *samples(CMSIS),
)
