"""What lowerings to ops of the same dialect leave alone: programs that differ in the one thing."""

from typing import Any

import pytest

from stepwell.translate.canonicalize import powers
from stepwell.translate.decompositions import (
    arithmetic,
    attention,
    complex,
    floats,
    norms,
    pools,
    products,
    repeated,
    scans,
    selections,
    statistics,
    sums,
    transforms,
    views,
)
from stepwell.translate.lowerings.lowering import step

SIZE = '%n = aten.sym_size.int(%q, 0) : (f32[2]) -> !stepwell.int<"2">'
BATCH = '%b = aten.sym_size.int(%x, 0) : (f32[s0, 3]) -> !stepwell.int<"s0">'
WEIGHT = '%w = stepwell.weight <"w"> "constant" : f32[1, 3]'
REPEATED = '%e = aten.expand.default(%w, [%b, -1]) : (f32[1, 3], !stepwell.int<"s0">) -> f32[s0, 3]'
OPEN = (
    "%x: f32[s0, 3], %q: f32[s1]",
    BATCH,
    '%n = aten.sym_size.int(%q, 0) : (f32[s1]) -> !stepwell.int<"s1">',
    WEIGHT,
    REPEATED,
)
PAIRS = "%c = aten.view_as_complex.default(%x) : (f32[4, 2]) -> tensor<4xcomplex<f32>>"

CASES: list[tuple[Any, tuple[str, ...], str]] = [
    (step(scans.cumsum_to_additions), ("%x: f16[4]", "%y = aten.cumsum.default(%x, 0) : (f16[4]) -> f16[4]"), "rounds once"),
    (step(scans.cumsum_to_additions), ("%x: f32[]", "%y = aten.cumsum.default(%x, 0) : (f32[]) -> f32[]"), "the tensor is a scalar"),
    (step(scans.logcumsumexp_to_steps), ("%x: f16[4]", "%y = aten.logcumsumexp.default(%x, 0) : (f16[4]) -> f16[4]"), "rounds once"),
    (step(scans.logcumsumexp_to_steps), ("%x: f32[4]", "%a = aten.exp.default(%x) : (f32[4]) -> f32[4]", "%y = aten.logcumsumexp.default(%a, 0) : (f32[4]) -> f32[4]"), "may be infinite"),
    (step(views.merge_permuted_axes), ("%x: f32[s0, s1, 2, 2, 2, 2, 3]", "%y = aten.permute.default(%x, [0, 1, 3, 2, 5, 4, 6]) : (f32[s0, s1, 2, 2, 2, 2, 3]) -> f32[s0, s1, 2, 2, 2, 2, 3]"), "several sizes"),
    (step(views.strided_slice_to_view), ("%x: f32[s0, s1, 4]", "%y = aten.slice.Tensor(%x, 2, 0, 4, 2) : (f32[s0, s1, 4]) -> f32[s0, s1, 2]"), "several sizes of a view"),
    (step(norms.decompose_layer_norm), ("%x: f32[s0, s1, 4, 3]", "%y = aten.layer_norm.default(%x, [4, 3]) : (f32[s0, s1, 4, 3]) -> f32[s0, s1, 4, 3]"), "several others are symbolic"),
    (step(selections.choose_by_step), ("%x: f32[4]", "%a = aten.tanh.default(%x) : (f32[4]) -> f32[4]", "%c = aten.eq.Scalar(%x, 0) : (f32[4]) -> i1[4]", "%y = aten.where.self(%c, %a, %a) : (i1[4], f32[4], f32[4]) -> f32[4]"), ""),
    (step(selections.choose_by_step), ("%x: i32[4], %z: f32[4]", "%a = aten.tanh.default(%z) : (f32[4]) -> f32[4]", "%c = aten.ge.Scalar(%x, 0) : (i32[4]) -> i1[4]", "%y = aten.where.self(%c, %a, %a) : (i1[4], f32[4], f32[4]) -> f32[4]"), "not int32"),
    (step(selections.choose_by_step), ("%x: f16[4]", "%a = aten.tanh.default(%x) : (f16[4]) -> f16[4]", "%c = aten.ge.Scalar(%x, 0) : (f16[4]) -> i1[4]", "%y = aten.where.self(%c, %a, %a) : (i1[4], f16[4], f16[4]) -> f16[4]"), "the factor that makes a step from a difference overflows half precision"),
    (step(selections.choose_by_step), ("%x: f32[4], %q: f32[2]", SIZE, "%a = aten.tanh.default(%x) : (f32[4]) -> f32[4]", '%c = aten.ge.Scalar(%x, %n) : (f32[4], !stepwell.int<"2">) -> i1[4]', "%y = aten.where.self(%c, %a, %a) : (i1[4], f32[4], f32[4]) -> f32[4]"), "known only at run time"),
    (step(selections.choose_by_step), ("%x: f32[4]", "%a = aten.tanh.default(%x) : (f32[4]) -> f32[4]", "%b = aten.log.default(%x) : (f32[4]) -> f32[4]", "%c = aten.gt.Scalar(%x, 0) : (f32[4]) -> i1[4]", "%y = aten.where.self(%c, %b, %a) : (i1[4], f32[4], f32[4]) -> f32[4]"), "multiplied by zero"),
    (step(selections.choose_by_step), ("%x: f32[4]", "%a = aten.tanh.default(%x) : (f32[4]) -> f32[4]", "%b = aten.exp.default(%x) : (f32[4]) -> f32[4]", "%c = aten.lt.Scalar(%x, 0) : (f32[4]) -> i1[4]", "%y = aten.where.self(%c, %a, %b) : (i1[4], f32[4], f32[4]) -> f32[4]"), "multiplied by zero"),
    (step(pools.average_by_convolution), ("%x: f32[2, 4, 4]", "%y = aten.avg_pool2d.default(%x, [3, 3], [1, 1]) : (f32[2, 4, 4]) -> f32[2, 2, 2]"), "not a batch of images"),
    (step(pools.average_by_convolution), ("%x: f32[1, s0, 4, 4]", "%y = aten.avg_pool2d.default(%x, [3, 3], [1, 1]) : (f32[1, s0, 4, 4]) -> f32[1, s0, 2, 2]"), "a static number of channels"),
    (step(pools.average_by_convolution), ("%x: f32[1, 2, 3, 3]", "%y = aten.adaptive_avg_pool2d.default(%x, [1, 1]) : (f32[1, 2, 3, 3]) -> f32[1, 2, 1, 1]"), ""),
    (step(pools.average_by_convolution), ("%x: f32[1, 2, s0, 4]", "%y = aten.adaptive_avg_pool2d.default(%x, [2, 2]) : (f32[1, 2, s0, 4]) -> f32[1, 2, 2, 2]"), "the image has a symbolic size"),
    (step(pools.average_by_convolution), ("%x: f32[1, 2, 4, s0]", "%y = aten.adaptive_avg_pool2d.default(%x, [2, 2]) : (f32[1, 2, 4, s0]) -> f32[1, 2, 2, 2]"), "the image has a symbolic size"),
    (step(pools.average_by_convolution), ("%x: f32[1, 2, 5, 4]", "%y = aten.adaptive_avg_pool2d.default(%x, [2, 2]) : (f32[1, 2, 5, 4]) -> f32[1, 2, 2, 2]"), "in windows of several sizes"),
    (step(pools.average_by_convolution), ("%x: f32[1, 2, 4, 5]", "%y = aten.adaptive_avg_pool2d.default(%x, [2, 2]) : (f32[1, 2, 4, 5]) -> f32[1, 2, 2, 2]"), "in windows of several sizes"),
    (step(attention.expand_attention), ("%q: f32[2, 1, 4, 8], %k: f32[1, 1, 4, 8], %v: f32[1, 1, 4, 8]", "%y = aten.scaled_dot_product_attention.default(%q, %k, %v) : (f32[2, 1, 4, 8], f32[1, 1, 4, 8], f32[1, 1, 4, 8]) -> f32[2, 1, 4, 8]"), "different leading axes"),
    (step(attention.expand_attention), ("%q: f32[1, 2, 4, 8], %k: f32[1, 1, 4, 8], %v: f32[1, 1, 4, 8]", "%y = aten.scaled_dot_product_attention.default(%q, %k, %v) : (f32[1, 2, 4, 8], f32[1, 1, 4, 8], f32[1, 1, 4, 8]) -> f32[1, 2, 4, 8]"), "different numbers of heads"),
    (step(attention.expand_attention), ("%q: f32[1, 1, 4, 8], %k: f32[1, 1, 4, 8], %v: f32[1, 1, 5, 8]", "%y = aten.scaled_dot_product_attention.default(%q, %k, %v) : (f32[1, 1, 4, 8], f32[1, 1, 4, 8], f32[1, 1, 5, 8]) -> f32[1, 1, 4, 8]"), "keys and values differ in their number or in the number of heads"),
    (step(attention.expand_attention_of_any_length), ("%q: f32[1, 1, s0, 8], %k: f32[1, s0, 8], %v: f32[1, s0, 8]", "%y = aten.scaled_dot_product_attention.default(%q, %k, %v) : (f32[1, 1, s0, 8], f32[1, s0, 8], f32[1, s0, 8]) -> f32[1, 1, s0, 8]"), "of the same rank"),
    (step(attention.expand_attention_of_any_length), ("%q: f32[1, 1, s0, 8], %k: f32[1, 1, ?, 8], %v: f32[1, 1, ?, 8]", "%y = aten.scaled_dot_product_attention.default(%q, %k, %v) : (f32[1, 1, s0, 8], f32[1, 1, ?, 8], f32[1, 1, ?, 8]) -> f32[1, 1, s0, 8]"), "are not stacks of heads"),
    (step(norms.batch_norm_to_products), ("%x: f16[2, 3, 4], %w: f32[3]", "%y = aten.batch_norm.default(%x, %w, %w, %w, %w, false, 0.1, 1.0e-05, false) : (f16[2, 3, 4], f32[3], f32[3], f32[3], f32[3]) -> f16[2, 3, 4]"), "different dtypes"),
    (step(norms.norm_by_groups), ("%x: f32[2, 3, 1]", "%y = aten.instance_norm.default(%x, none, none, none, none, true, 0.1, 1.0e-5, false) : (f32[2, 3, 1]) -> f32[2, 3, 1]"), "one element"),
    (step(norms.norm_by_groups), ("%x: f32[2, 3, 4]", "%y = aten.instance_norm.default(%x, none, none, none, none, true, 0.1, 0.0, false) : (f32[2, 3, 4]) -> f32[2, 3, 4]"), "eps is 0.0"),
    (step(pools.adaptive_pool_by_parts, only_uneven=True), ("%x: f32[1, 2, 4, 4]", "%y = aten.adaptive_avg_pool2d.default(%x, [2, 2]) : (f32[1, 2, 4, 4]) -> f32[1, 2, 2, 2]"), ""),
    (step(products.normalize_reduction), ("%x: i32[2, 4]", "%y = aten.sum.dim_IntList(%x, [1], false, dtype=i32) : (i32[2, 4]) -> i32[2]"), "a sum in int32"),
    (step(views.gather_strides), ("%x: f32[s0, 4]", "%y = aten.as_strided.default(%x, [2, 2], [1, 2]) : (f32[s0, 4]) -> f32[2, 2]"), "symbolic"),
    (step(views.gather_strides), ("%x: f32[4, 4], %q: f32[s0]", '%n = aten.sym_size.int(%q, 0) : (f32[s0]) -> !stepwell.int<"s0">', '%y = aten.as_strided.default(%x, [%n, 2], [1, 2]) : (f32[4, 4], !stepwell.int<"s0">) -> f32[s0, 2]'), "symbolic"),
    (step(views.gather_strides), ("%x: f32[4, 4], %q: f32[2]", SIZE, '%y = aten.as_strided.default(%x, [%n, 2], [1, 2]) : (f32[4, 4], !stepwell.int<"2">) -> f32[2, 2]'), "known only at run time"),
    (step(views.repeat_to_expand), ("%x: f32[?, 4]", "%y = aten.repeat.default(%x, [2, 2]) : (f32[?, 4]) -> f32[?, 8]"), "the result's shape is unknown"),
    (step(floats.widen_bfloat), ("%x: f32[4]", '%a = stepwell.weight <"a"> "constant" : bf16[4]', '%b = stepwell.weight <"b"> "constant" : bf16[4]', "%y = aten.add.Tensor(%a, %b) : (bf16[4], bf16[4]) -> bf16[4]"), ""),
    (complex, ("%x: f32[4, 2], %z: f32[4]", PAIRS, "%y = aten.add.Tensor(%c, %c, alpha=2) : (tensor<4xcomplex<f32>>, tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>>"), "alpha is not 1"),
    (complex, ("%x: f32[4, 2], %q: f32[2]", PAIRS, SIZE, '%y = aten.mul.Scalar(%c, %n) : (tensor<4xcomplex<f32>>, !stepwell.int<"2">) -> tensor<4xcomplex<f32>>'), "the factor is known only at run time"),
    (complex, ("%x: f32[4, 2], %q: f32[2]", PAIRS, SIZE, '%y = aten.slice.Tensor(%c, 0, 0, %n) : (tensor<4xcomplex<f32>>, !stepwell.int<"2">) -> tensor<2xcomplex<f32>>'), "an index is known only at run time"),
    (complex, ("%x: f32[4, 2], %z: f32[4]", PAIRS, "%y = aten.cat.default([%c, %z]) : (tensor<4xcomplex<f32>>, f32[4]) -> tensor<8xcomplex<f32>>"), "tensor is real"),
    (complex, ("%x: f32[?, 2]", "%c = aten.view_as_complex.default(%x) : (f32[?, 2]) -> tensor<?xcomplex<f32>>", "%y = aten.abs.default(%c) : (tensor<?xcomplex<f32>>) -> f32[?]"), "the shape is not known"),
    (transforms, ("%x: f64[12]", "%y = aten.stft.default(%x, 4, 2, return_complex=true) : (f64[12]) -> tensor<3x5xcomplex<f64>>"), "of single precision"),
    (transforms, ("%x: f32[12], %w: f64[4]", "%y = aten.stft.default(%x, 4, 2, window=%w, return_complex=true) : (f32[12], f64[4]) -> tensor<3x5xcomplex<f64>>"), "the window is not"),
    (transforms, ("%x: f32[12], %q: f32[2]", SIZE, '%y = aten.stft.default(%x, 4, %n, return_complex=true) : (f32[12], !stepwell.int<"2">) -> tensor<3x5xcomplex<f32>>'), "known only at run time"),
    (transforms, ("%x: f32[12]", "%y = aten.stft.default(%x, 4, 2, return_complex=true, align_to_window=true) : (f32[12]) -> tensor<3x5xcomplex<f32>>"), "aligned to the window"),
    (transforms, ("%x: tensor<4x4xcomplex<f32>>", "%y = aten.istft.default(%x, 4, 2, onesided=false) : (tensor<4x4xcomplex<f32>>) -> f32[6]"), "the spectrum is two-sided (`onesided=False`)"),
    (transforms, ("%x: tensor<3x4xcomplex<f64>>", "%y = aten.istft.default(%x, 4, 2) : (tensor<3x4xcomplex<f64>>) -> f64[6]"), "neither complex64 nor float32"),
    (transforms, ("%x: tensor<3x4xcomplex<f32>>, %w: f32[4]", "%y = aten.istft.default(%x, 4, 2, window=%w, onesided=false, return_complex=true) : (tensor<3x4xcomplex<f32>>, f32[4]) -> tensor<6xcomplex<f32>>"), "neither complex64 nor float32"),
    (step(repeated.fill_by_expand), (*OPEN, "%y = aten.full.default([%b], %n) : (!stepwell.int<\"s0\">, !stepwell.int<\"s1\">) -> i64[s0]"), "known only at run time"),
    (step(repeated.fill_by_expand), ("%x: f32[?, 4]", "%y = aten.zeros_like.default(%x) : (f32[?, 4]) -> f32[?, 4]"), "the shape is not known"),
    (step(repeated.expand_by_sizes), ("%x: f32[?, 4], %z: f32[1, 4]", "%y = aten.expand_as.default(%z, %x) : (f32[1, 4], f32[?, 4]) -> f32[?, 4]"), "the shape is not known"),
    (step(repeated.compute_before_expand), (*OPEN, "%y, %z = aten.split.Tensor(%e, 2, 1) : (f32[s0, 3]) -> (f32[s0, 2], f32[s0, 1])"), "several results"),
    (step(repeated.compute_before_expand), (*OPEN, "%y = aten.dropout.default(%e, 0.5, true) : (f32[s0, 3]) -> f32[s0, 3]"), "the op has several results, or side effects"),
    (step(repeated.compute_before_expand), (*OPEN, "%y = aten.add.Tensor(%e, %x) : (f32[s0, 3], f32[s0, 3]) -> f32[s0, 3]"), "another operand is not a constant"),
    (step(repeated.compute_before_expand), (*OPEN, "%y = aten.sum.dim_IntList(%e, [0]) : (f32[s0, 3]) -> f32[3]"), "is not an axis of the result"),
    (step(repeated.compute_before_expand), (*OPEN, "%y = aten.cumsum.default(%e, 0) : (f32[s0, 3]) -> f32[s0, 3]"), "is not an axis of the result"),
    (step(repeated.compute_before_expand), (*OPEN, '%y = aten.narrow.default(%e, 0, 0, %b) : (f32[s0, 3], !stepwell.int<"s0">) -> f32[s0, 3]'), "known only at run time"),
    (step(repeated.compute_before_expand), (*OPEN, "%y = aten.one_hot.default(%e) : (f32[s0, 3]) -> i64[s0, 3, ?]"), "a size of the result"),
    (step(repeated.compute_before_expand), (*OPEN, "%y = aten.roll.default(%e, [1]) : (f32[s0, 3]) -> f32[s0, 3]"), "the op has no axis map"),
    (step(repeated.pick_before_expand), ("%x: f32[s0, 3], %m: i1[s0]", BATCH, WEIGHT, REPEATED, "%y = aten.index.Tensor(%e, [%m]) : (f32[s0, 3], i1[s0]) -> f32[?, 3]"), "a repeated axis is not the indexed axis"),
    (step(repeated.pick_before_expand), (*OPEN, '%c = stepwell.weight <"c#zeros"> "constant" : i64[2]', "%y = aten.index.Tensor(%e, [none, %c]) : (f32[s0, 3], i64[2]) -> f32[s0, 2]"), "a repeated axis is not the indexed axis"),
    (step(repeated.pick_before_expand), (*OPEN, '%a = aten.arange.default(%n) : (!stepwell.int<"s1">) -> i64[s1]', "%y = aten.index.Tensor(%e, [%a]) : (f32[s0, 3], i64[s1]) -> f32[s1, 3]"), "different sizes"),
]  # fmt: skip


@pytest.mark.parametrize("near_miss", CASES)
def test_op_without_form_is_left(left: Any, written: Any, near_miss: Any) -> None:
    rewrite, lines, reason = near_miss
    left(written(*lines), rewrite, reason)


ASKED: dict[str, tuple[Any, tuple[str, ...], str, str, tuple[bool, str]]] = {
    "an average of halves": (step(pools.average_by_convolution), ("%x: f16[1, 2, 4, 4]", "%y = aten.avg_pool2d.default(%x, [3, 3], [1, 1]) : (f16[1, 2, 4, 4]) -> f16[1, 2, 2, 2]"), "xnnpack", "torch", (False, "a convolution of halves")),
    "a root of numbers that may be large, if finite": (step(statistics.keep_large_roots), ("%x: f32[4]", "%y = aten.sqrt.default(%x) : (f32[4]) -> f32[4]"), "xnnpack", "finite", (True, "")),
    "an inverse root of numbers that may be large": (next(r() for r in powers.RULES if r.name == "power-to-inverse-root"), ("%z: f32[4]", "%e = aten.exp.default(%z) : (f32[4]) -> f32[4]", "%x = aten.add.Scalar(%e, 1.0) : (f32[4]) -> f32[4]", "%y = aten.pow.Tensor_Scalar(%x, -0.5) : (f32[4]) -> f32[4]"), "xnnpack", "torch", (False, "50 % too large")),
    "an inverse root on an engine that is right": (next(r() for r in powers.RULES if r.name == "power-to-inverse-root"), ("%x: f32[4]", "%y = aten.pow.Tensor_Scalar(%x, -0.5) : (f32[4]) -> f32[4]"), "tosa-1.0+fp", "strict", (True, "")),
    "a mean of whole planes": (step(pools.adaptive_pool_to_pool), ("%x: f32[1, 2, 4, 4]", "%y = aten.adaptive_avg_pool2d.default(%x, [1, 1]) : (f32[1, 2, 4, 4]) -> f32[1, 2, 1, 1]"), "xnnpack", "strict", (True, "")),
    "averages of an engine that loses none": (step(pools.adaptive_pool_to_pool), ("%x: f32[1, 2, 4, 4]", "%y = aten.adaptive_avg_pool2d.default(%x, [2, 2]) : (f32[1, 2, 4, 4]) -> f32[1, 2, 2, 2]"), "tosa-1.0+fp", "strict", (True, "")),
    "averages of windows": (step(pools.adaptive_pool_to_pool), ("%x: f32[1, 2, 4, 4]", "%y = aten.adaptive_avg_pool2d.default(%x, [2, 2]) : (f32[1, 2, 4, 4]) -> f32[1, 2, 2, 2]"), "xnnpack", "strict", (False, "may be −∞")),
    "an interpolation": (step(sums.lerp_by_weights), ("%x: f32[4], %z: f32[4]", "%y = aten.lerp.Tensor(%x, %z, %z) : (f32[4], f32[4], f32[4]) -> f32[4]"), "xnnpack", "torch", (False, "an infinity")),
    "a reciprocal": (step(arithmetic.reciprocal_to_division), ("%x: f32[4]", "%y = aten.reciprocal.default(%x) : (f32[4]) -> f32[4]"), "xnnpack", "strict", (False, "a denormal number")),
    "a reciprocal of an engine that has denormals": (step(arithmetic.reciprocal_to_division), ("%x: f32[4]", "%y = aten.reciprocal.default(%x) : (f32[4]) -> f32[4]"), "tosa-1.0+fp", "strict", (True, "")),
    "a reciprocal of one or two": (step(arithmetic.reciprocal_to_division), ("%t: i1[4]", "%s = aten._to_copy.default(%t, dtype=f32) : (i1[4]) -> f32[4]", "%x = aten.add.Scalar(%s, 1.0) : (f32[4]) -> f32[4]", "%y = aten.reciprocal.default(%x) : (f32[4]) -> f32[4]"), "xnnpack", "strict", (True, "")),
    "complex numbers side by side": (complex, ("%x: f32[4, 2]", PAIRS, "%z = aten.cat.default([%c, %c]) : (tensor<4xcomplex<f32>>, tensor<4xcomplex<f32>>) -> tensor<8xcomplex<f32>>", "%y = aten.abs.default(%z) : (tensor<8xcomplex<f32>>) -> f32[8]"), "", "finite", (True, "")),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_what_a_mode_and_a_target_make_of_it(asked: Any, written: Any, name: str) -> None:
    rewrite, lines, target, numerics, (applies, reason) = ASKED[name]
    found, reasons = asked(written(*lines), rewrite, target, numerics=numerics)
    assert (found > 0) == applies
    assert any(reason in held for held in reasons) if reason else not reasons
