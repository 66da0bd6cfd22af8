"""What rewrites of attention and masks leave alone: programs that differ in the one thing."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.decompositions import attention
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.attention import share_repeated_heads
from stepwell.translate.rewrites.attention.add_mask_to_scores import add_mask_to_scores
from stepwell.translate.rewrites.attention.attend_from_image import attend_from_image
from stepwell.translate.rewrites.attention.fold_scale_into_projection import FoldScaleIntoProjection
from stepwell.translate.rewrites.attention.limit_by_mask import limit_by_mask
from stepwell.translate.rewrites.attention.recognize_attention import recognize_attention
from stepwell.translate.rewrites.attention.skip_masked_attention import skip_masked_attention
from stepwell.translate.rewrites.xnnpack.convolutions.keep_band import keep_band

MASK = '%m = stepwell.weight <"m#causal"> "buffer" : i1[3, 3]'
SOFTMAX = "%y = aten._softmax.default(%f, 2, false) : (f32[2, 3, 3]) -> f32[2, 3, 3]"
PRODUCT = "%s = aten.bmm.default(%q, %k) : (f32[2, 3, 4], f32[2, 4, 3]) -> f32[2, 3, 3]"
WEIGHT = '%w = stepwell.weight <"w"> "parameter" : f32[6, 4]'
LAYER = "%l = aten.linear.default(%x, %w) : (f32[2, 4], f32[6, 4]) -> f32[2, 6]"

CASES: list[tuple[Any, tuple[str, ...], str]] = [
    (step(add_mask_to_scores), ("%q: f32[?, 3, 4], %k: f32[?, 4, 3], %l: i1[3, 3]", "%s = aten.bmm.default(%q, %k) : (f32[?, 3, 4], f32[?, 4, 3]) -> f32[?, 3, 3]", "%f = aten.where.ScalarOther(%l, %s, -inf) : (i1[3, 3], f32[?, 3, 3]) -> f32[?, 3, 3]", "%y = aten._softmax.default(%f, 2, false) : (f32[?, 3, 3]) -> f32[?, 3, 3]"), ""),
    (step(add_mask_to_scores), ("%q: f64[2, 3, 4], %k: f64[2, 4, 3], %l: i1[3, 3]", "%s = aten.bmm.default(%q, %k) : (f64[2, 3, 4], f64[2, 4, 3]) -> f64[2, 3, 3]", "%f = aten.where.ScalarOther(%l, %s, -inf) : (i1[3, 3], f64[2, 3, 3]) -> f64[2, 3, 3]", "%y = aten._softmax.default(%f, 2, false) : (f64[2, 3, 3]) -> f64[2, 3, 3]"), ""),
    (step(add_mask_to_scores), ("%l: i1[3, 3]", '%s = stepwell.weight <"s"> "constant" : f32[2, 3, 3]', "%f = aten.where.ScalarOther(%l, %s, -inf) : (i1[3, 3], f32[2, 3, 3]) -> f32[2, 3, 3]", SOFTMAX), ""),
    (step(add_mask_to_scores), ("%q: f32[2, 3, 4], %k: f32[2, 4, 3]", MASK, '%a = stepwell.weight <"a"> "buffer" : f32[2, 1, 3]', PRODUCT, "%b = aten.add.Tensor(%s, %a, alpha=2) : (f32[2, 3, 3], f32[2, 1, 3]) -> f32[2, 3, 3]", "%f = aten.where.ScalarOther(%m, %b, -inf) : (i1[3, 3], f32[2, 3, 3]) -> f32[2, 3, 3]", SOFTMAX), ""),
    (step(attend_from_image), ("%q: f32[1, h, w, 8], %k: f32[1, 2, n, 4]", "%v = aten.view.default(%q, [1, 2, -1, 4]) : (f32[1, h, w, 8]) -> f32[1, 2, h*w, 4]", "%p = aten.permute.default(%v, [0, 1, 2, 3]) : (f32[1, 2, h*w, 4]) -> f32[1, 2, h*w, 4]", "%y = aten.scaled_dot_product_attention.default(%p, %k, %k) : (f32[1, 2, h*w, 4], f32[1, 2, n, 4], f32[1, 2, n, 4]) -> f32[1, 2, h*w, 4]"), ""),
    (step(attend_from_image), ("%q: f32[1, h, w, 8], %k: f32[1, 2, n, 4]", "%v = aten.view.default(%q, [1, 2, -1, 4]) : (f32[1, h, w, 8]) -> f32[1, 2, h*w, 4]", "%y = aten.scaled_dot_product_attention.default(%v, %k, %k) : (f32[1, 2, h*w, 4], f32[1, 2, n, 4], f32[1, 2, n, 4]) -> f32[1, 2, h*w, 4]"), ""),
    (step(attend_from_image), ("%v: f32[1, s, 2, 4], %k: f32[1, 2, n, 4]", "%p = aten.permute.default(%v, [0, 2, 1, 3]) : (f32[1, s, 2, 4]) -> f32[1, 2, s, 4]", "%y = aten.scaled_dot_product_attention.default(%p, %k, %k) : (f32[1, 2, s, 4], f32[1, 2, n, 4], f32[1, 2, n, 4]) -> f32[1, 2, s, 4]"), ""),
    (step(attend_from_image), ("%q: f32[2, h, w, 8], %k: f32[1, 2, n, 4]", "%v = aten.view.default(%q, [1, -1, 2, 4]) : (f32[2, h, w, 8]) -> f32[1, 2*h*w, 2, 4]", "%p = aten.permute.default(%v, [0, 2, 1, 3]) : (f32[1, 2*h*w, 2, 4]) -> f32[1, 2, 2*h*w, 4]", "%y = aten.scaled_dot_product_attention.default(%p, %k, %k) : (f32[1, 2, 2*h*w, 4], f32[1, 2, n, 4], f32[1, 2, n, 4]) -> f32[1, 2, 2*h*w, 4]"), ""),
    (step(attend_from_image), ("%q: f32[1, 3, 5, 8], %k: f32[1, 2, n, 4]", "%v = aten.view.default(%q, [1, -1, 2, 4]) : (f32[1, 3, 5, 8]) -> f32[1, 15, 2, 4]", "%p = aten.permute.default(%v, [0, 2, 1, 3]) : (f32[1, 15, 2, 4]) -> f32[1, 2, 15, 4]", "%y = aten.scaled_dot_product_attention.default(%p, %k, %k) : (f32[1, 2, 15, 4], f32[1, 2, n, 4], f32[1, 2, n, 4]) -> f32[1, 2, 15, 4]"), ""),
    (step(attend_from_image), ("%q: f32[1, h, w, 4*a], %k: f32[1, a, n, 4]", '%a = aten.sym_size.int(%k, 1) : (f32[1, a, n, 4]) -> !stepwell.int<"a">', '%v = aten.view.default(%q, [1, -1, %a, 4]) : (f32[1, h, w, 4*a], !stepwell.int<"a">) -> f32[1, h*w, a, 4]', "%p = aten.permute.default(%v, [0, 2, 1, 3]) : (f32[1, h*w, a, 4]) -> f32[1, a, h*w, 4]", "%y = aten.scaled_dot_product_attention.default(%p, %k, %k) : (f32[1, a, h*w, 4], f32[1, a, n, 4], f32[1, a, n, 4]) -> f32[1, a, h*w, 4]"), ""),
    (step(attend_from_image), ("%q: f32[1, h, w, 2*d], %k: f32[1, 2, n, d]", '%d = aten.sym_size.int(%k, 3) : (f32[1, 2, n, d]) -> !stepwell.int<"d">', '%v = aten.view.default(%q, [1, -1, 2, %d]) : (f32[1, h, w, 2*d], !stepwell.int<"d">) -> f32[1, h*w, 2, d]', "%p = aten.permute.default(%v, [0, 2, 1, 3]) : (f32[1, h*w, 2, d]) -> f32[1, 2, h*w, d]", "%y = aten.scaled_dot_product_attention.default(%p, %k, %k) : (f32[1, 2, h*w, d], f32[1, 2, n, d], f32[1, 2, n, d]) -> f32[1, 2, h*w, d]"), ""),
    (step(attend_from_image), ("%q: f32[1, h, w, 16], %k: f32[1, 2, n, 4]", "%v = aten.view.default(%q, [1, -1, 2, 4]) : (f32[1, h, w, 16]) -> f32[1, 2*h*w, 2, 4]", "%p = aten.permute.default(%v, [0, 2, 1, 3]) : (f32[1, 2*h*w, 2, 4]) -> f32[1, 2, 2*h*w, 4]", "%y = aten.scaled_dot_product_attention.default(%p, %k, %k) : (f32[1, 2, 2*h*w, 4], f32[1, 2, n, 4], f32[1, 2, n, 4]) -> f32[1, 2, 2*h*w, 4]"), ""),
    (step(attend_from_image), ("%q: f32[1, h, w, 8], %k: f32[1, 2, n, 4]", "%v = aten.view.default(%q, [1, -1, 2, 4]) : (f32[1, h, w, 8]) -> f32[1, h*w, 2, 4]", "%p = aten.permute.default(%v, [0, 2, 1, 3]) : (f32[1, h*w, 2, 4]) -> f32[1, 2, h*w, 4]", "%y = aten.scaled_dot_product_attention.default(%p, %k, %k, is_causal=true) : (f32[1, 2, h*w, 4], f32[1, 2, n, 4], f32[1, 2, n, 4]) -> f32[1, 2, h*w, 4]"), "a mask selects"),
    (step(attend_from_image), ("%q: f32[1, h, w, 8], %k: f32[1, 2, n, 4], %m: f32[1, 1]", "%v = aten.view.default(%q, [1, -1, 2, 4]) : (f32[1, h, w, 8]) -> f32[1, h*w, 2, 4]", "%p = aten.permute.default(%v, [0, 2, 1, 3]) : (f32[1, h*w, 2, 4]) -> f32[1, 2, h*w, 4]", "%y = aten.scaled_dot_product_attention.default(%p, %k, %k, %m) : (f32[1, 2, h*w, 4], f32[1, 2, n, 4], f32[1, 2, n, 4], f32[1, 1]) -> f32[1, 2, h*w, 4]"), "a mask selects"),
    (step(attend_from_image), ("%q: f32[1, h, w, 8], %k: f32[1, 2, n, 4]", "%v = aten.view.default(%q, [1, -1, 2, 4]) : (f32[1, h, w, 8]) -> f32[1, h*w, 2, 4]", "%p = aten.permute.default(%v, [0, 2, 1, 3]) : (f32[1, h*w, 2, 4]) -> f32[1, 2, h*w, 4]", "%y = aten.scaled_dot_product_attention.default(%p, %k, %k, dropout_p=0.5) : (f32[1, 2, h*w, 4], f32[1, 2, n, 4], f32[1, 2, n, 4]) -> f32[1, 2, h*w, 4]"), "dropout_p is 0.5"),
    (step(attend_from_image), ("%q: f32[1, h, w, 8], %k: f32[1, 1, n, 4]", "%v = aten.view.default(%q, [1, -1, 2, 4]) : (f32[1, h, w, 8]) -> f32[1, h*w, 2, 4]", "%p = aten.permute.default(%v, [0, 2, 1, 3]) : (f32[1, h*w, 2, 4]) -> f32[1, 2, h*w, 4]", "%y = aten.scaled_dot_product_attention.default(%p, %k, %k) : (f32[1, 2, h*w, 4], f32[1, 1, n, 4], f32[1, 1, n, 4]) -> f32[1, 2, h*w, 4]"), "not the same heads"),
    (FoldScaleIntoProjection(), ("%x: i32[2, 4]", '%w = stepwell.weight <"w"> "parameter" : i32[6, 4]', "%l = aten.linear.default(%x, %w) : (i32[2, 4], i32[6, 4]) -> i32[2, 6]", "%s = aten.slice.Tensor(%l, 1, 0, 3) : (i32[2, 6]) -> i32[2, 3]", "%y = aten.mul.Scalar(%s, 0.5) : (i32[2, 3]) -> f32[2, 3]"), "no float of"),
    (FoldScaleIntoProjection(), ("%x: i32[2, 4]", '%w = stepwell.weight <"w"> "parameter" : i32[6, 4]', "%l = aten.linear.default(%x, %w) : (i32[2, 4], i32[6, 4]) -> i32[2, 6]", "%s = aten.slice.Tensor(%l, 1, 0, 3) : (i32[2, 6]) -> i32[2, 3]", "%y = aten.mul.Scalar(%s, 2) : (i32[2, 3]) -> i32[2, 3]"), "no float of"),
    (FoldScaleIntoProjection(), ("%x: f32[6, 4]", '%w = stepwell.weight <"w"> "parameter" : f32[4]', "%l = aten.linear.default(%x, %w) : (f32[6, 4], f32[4]) -> f32[6]", "%s = aten.slice.Tensor(%l, 0, 0, 3) : (f32[6]) -> f32[3]", "%y = aten.mul.Scalar(%s, 0.5) : (f32[3]) -> f32[3]"), "weight is one row"),
    (FoldScaleIntoProjection(), ("%x: f32[2, 4]", WEIGHT, LAYER, "%s = aten.slice.Tensor(%l, 1, 0, 6, 2) : (f32[2, 6]) -> f32[2, 3]", "%y = aten.mul.Scalar(%s, 0.5) : (f32[2, 3]) -> f32[2, 3]"), "a slice has a step"),
    (step(skip_masked_attention), ("%q: f32[2, 4, 192, 32], %k: f32[1, 4, 192, 32], %v: f32[1, 4, 192, 32]", "%y = aten.scaled_dot_product_attention.default(%q, %k, %v, none, 0.0, true) : (f32[2, 4, 192, 32], f32[1, 4, 192, 32], f32[1, 4, 192, 32]) -> f32[2, 4, 192, 32]"), "different leading axes"),
    (step(skip_masked_attention), ("%q: f32[192, 32], %k: f32[192, 32], %v: f32[192, 32]", "%y = aten.scaled_dot_product_attention.default(%q, %k, %v, none, 0.0, true) : (f32[192, 32], f32[192, 32], f32[192, 32]) -> f32[192, 32]"), "or none"),
    (step(skip_masked_attention), ("%q: f32[2, 4, 192, 32], %k: f32[2, 4, 192, 32], %v: f32[2, 1, 192, 32]", "%y = aten.scaled_dot_product_attention.default(%q, %k, %v, none, 0.0, true) : (f32[2, 4, 192, 32], f32[2, 4, 192, 32], f32[2, 1, 192, 32]) -> f32[2, 4, 192, 32]"), "different heads"),
    (step(skip_masked_attention), ("%q: f32[1, 1, 100000, 32], %k: f32[1, 1, 100000, 32], %v: f32[1, 1, 100000, 32]", "%y = aten.scaled_dot_product_attention.default(%q, %k, %v, none, 0.0, true) : (f32[1, 1, 100000, 32], f32[1, 1, 100000, 32], f32[1, 1, 100000, 32]) -> f32[1, 1, 100000, 32]"), "there are more than"),
    (step(attention.expand_attention), ("%q: f32[1, 1, 100000, 32], %k: f32[1, 1, 100000, 32], %v: f32[1, 1, 100000, 32]", "%y = aten.scaled_dot_product_attention.default(%q, %k, %v, none, 0.0, true) : (f32[1, 1, 100000, 32], f32[1, 1, 100000, 32], f32[1, 1, 100000, 32]) -> f32[1, 1, 100000, 32]"), "would have more than"),
    (step(attention.expand_attention, lays_out_triangles=True), ("%q: f32[1, 1, ?, 8], %k: f32[1, 1, ?, 8], %v: f32[1, 1, ?, 8]", "%y = aten.scaled_dot_product_attention.default(%q, %k, %v, none, 0.0, true) : (f32[1, 1, ?, 8], f32[1, 1, ?, 8], f32[1, 1, ?, 8]) -> f32[1, 1, ?, 8]"), "the mask is no constant"),
    (step(keep_band), ("%q: f32[2]", '%x = stepwell.weight <"x"> "constant" : f32[3, 3]', "%y = aten.tril.default(%x) : (f32[3, 3]) -> f32[3, 3]"), "the value is a constant"),
    (step(keep_band), ("%x: f32[s0, s1, 3, 3]", "%y = aten.tril.default(%x) : (f32[s0, s1, 3, 3]) -> f32[s0, s1, 3, 3]"), "more than one size before it"),
    (step(keep_band), ("%x: f32[2, 3, s0]", "%y = aten.tril.default(%x) : (f32[2, 3, s0]) -> f32[2, 3, s0]"), "the matrix"),
    (step(keep_band), ("%x: f32[3]", '%m = stepwell.weight <"m#zeros"> "constant" : i1[3]', "%y = aten.masked_fill.Scalar(%x, %m, 0.0) : (f32[3], i1[3]) -> f32[3]"), "not a matrix"),
    (step(keep_band), ("%x: f32[3, 3], %z: f32[3, 3]", '%m = stepwell.weight <"m#causal"> "constant" : i1[3, 3]', "%y = aten.where.self(%m, %x, %z) : (i1[3, 3], f32[3, 3], f32[3, 3]) -> f32[3, 3]"), ""),
    (step(keep_band), ("%x: f32[3, 3]", '%m = stepwell.weight <"m#causal"> "constant" : i1[3, 3]', "%y = aten.masked_fill.Scalar(%x, %m, nan) : (f32[3, 3], i1[3, 3]) -> f32[3, 3]"), ""),
    (step(keep_band), ("%x: f32[3, 3, 3]", '%m = stepwell.weight <"m#ones"> "constant" : i1[3, 1, 3]', "%y = aten.where.ScalarOther(%m, %x, 0.0) : (i1[3, 1, 3], f32[3, 3, 3]) -> f32[3, 3, 3]"), "not a band"),
    (step(keep_band), ("%x: f32[2, 3, 3]", '%m = stepwell.weight <"m#causal"> "constant" : i1[2, 3, 3]', "%y = aten.where.ScalarOther(%m, %x, 0.0) : (i1[2, 3, 3], f32[2, 3, 3]) -> f32[2, 3, 3]"), "not a band"),
    (step(keep_band), ("%x: f32[3, 3]", '%m = stepwell.weight <"m#ones"> "constant" : i1[3, 3]', "%y = aten.masked_fill.Scalar(%x, %m, 0.0) : (f32[3, 3], i1[3, 3]) -> f32[3, 3]"), "not a band"),
    (step(attention.guard_softmax_in_floats), ("%s: f32[2, 3, 3], %t: f32[2, 3, 3]", "%p = aten._softmax.default(%s, 2, false) : (f32[2, 3, 3]) -> f32[2, 3, 3]", "%e = aten.eq.Scalar(%t, -inf) : (f32[2, 3, 3]) -> i1[2, 3, 3]", "%f = aten.logical_not.default(%e) : (i1[2, 3, 3]) -> i1[2, 3, 3]", "%g = aten.any.dim(%f, -1, true) : (i1[2, 3, 3]) -> i1[2, 3, 1]", "%h = aten.logical_not.default(%g) : (i1[2, 3, 1]) -> i1[2, 3, 1]", "%z = aten.full_like.default(%p, 0) : (f32[2, 3, 3]) -> f32[2, 3, 3]", "%y = aten.where.self(%h, %z, %p) : (i1[2, 3, 1], f32[2, 3, 3], f32[2, 3, 3]) -> f32[2, 3, 3]"), ""),
    (step(attention.guard_softmax_in_floats), ("%s: f32[2, 3, 3], %t: f32[2, 3, 3]", "%p = aten.relu.default(%s) : (f32[2, 3, 3]) -> f32[2, 3, 3]", "%e = aten.eq.Scalar(%s, -inf) : (f32[2, 3, 3]) -> i1[2, 3, 3]", "%f = aten.logical_not.default(%e) : (i1[2, 3, 3]) -> i1[2, 3, 3]", "%g = aten.any.dim(%f, -1, true) : (i1[2, 3, 3]) -> i1[2, 3, 1]", "%h = aten.logical_not.default(%g) : (i1[2, 3, 1]) -> i1[2, 3, 1]", "%z = aten.full_like.default(%p, 0) : (f32[2, 3, 3]) -> f32[2, 3, 3]", "%y = aten.where.self(%h, %z, %p) : (i1[2, 3, 1], f32[2, 3, 3], f32[2, 3, 3]) -> f32[2, 3, 3]"), ""),
    (step(attention.guard_softmax_in_floats), ("%s: f32[2, 3, 3], %t: f32[2, 3, 3]", "%p = aten._softmax.default(%s, 2, false) : (f32[2, 3, 3]) -> f32[2, 3, 3]", "%e = aten.eq.Scalar(%s, -inf) : (f32[2, 3, 3]) -> i1[2, 3, 3]", "%f = aten.logical_not.default(%e) : (i1[2, 3, 3]) -> i1[2, 3, 3]", "%g = aten.any.dim(%f, -1, true) : (i1[2, 3, 3]) -> i1[2, 3, 1]", "%h = aten.logical_not.default(%g) : (i1[2, 3, 1]) -> i1[2, 3, 1]", "%z = aten.full_like.default(%p, 1) : (f32[2, 3, 3]) -> f32[2, 3, 3]", "%y = aten.where.self(%h, %z, %p) : (i1[2, 3, 1], f32[2, 3, 3], f32[2, 3, 3]) -> f32[2, 3, 3]"), ""),
    (step(attention.guard_softmax_in_floats), ("%s: f32[2, 3, 3], %t: f32[2, 3, 3]", "%p = aten._softmax.default(%s, 2, false) : (f32[2, 3, 3]) -> f32[2, 3, 3]", "%e = aten.eq.Scalar(%s, -inf) : (f32[2, 3, 3]) -> i1[2, 3, 3]", "%f = aten.logical_not.default(%e) : (i1[2, 3, 3]) -> i1[2, 3, 3]", "%g = aten.any.dim(%f, -1, true) : (i1[2, 3, 3]) -> i1[2, 3, 1]", "%h = aten.logical_not.default(%g) : (i1[2, 3, 1]) -> i1[2, 3, 1]", "%z = aten.full.default([2, 2, 3, 3], 0, dtype=f32) : () -> f32[2, 2, 3, 3]", "%y = aten.where.self(%h, %z, %p) : (i1[2, 3, 1], f32[2, 2, 3, 3], f32[2, 3, 3]) -> f32[2, 2, 3, 3]"), ""),
    (step(attention.guard_softmax_in_floats), ("%x: f32[2, 3]", "%y = aten._safe_softmax.default(%x, 1, dtype=f64) : (f32[2, 3]) -> f64[2, 3]"), ""),
    (share_repeated_heads, ("%q: f32[1, 4, 4, 8], %k: f32[1, 2, 4, 8]", "%u = aten.unsqueeze.default(%k, 2) : (f32[1, 2, 4, 8]) -> f32[1, 2, 1, 4, 8]", "%e = aten.expand.default(%u, [1, 2, 2, 4, 8]) : (f32[1, 2, 1, 4, 8]) -> f32[1, 2, 2, 4, 8]", "%r = aten.view.default(%e, [1, 4, 4, 8]) : (f32[1, 2, 2, 4, 8]) -> f32[1, 4, 4, 8]", "%y = aten.scaled_dot_product_attention.default(%q, %r, %r, dropout_p=0.5) : (f32[1, 4, 4, 8], f32[1, 4, 4, 8], f32[1, 4, 4, 8]) -> f32[1, 4, 4, 8]"), "dropout_p is 0.5"),
]  # fmt: skip


@pytest.mark.parametrize("near_miss", CASES)
def test_variant_of_example_is_left(left: Any, written: Any, near_miss: Any) -> None:
    rewrite, lines, reason = near_miss
    left(written(*lines), rewrite, reason)


def test_a_triangle_of_any_length_is_laid_out(asked: Any) -> None:
    rewrite = step(attention.expand_attention, lays_out_triangles=True)
    assert asked(
        """
        %y = aten.scaled_dot_product_attention.default(%q: f32[1, 1, s, 8], %q, %q, none, 0.0, true)
        """,
        rewrite,
    ) == (1, [])


TRUTHS = "%s = aten._to_copy.default(%t, dtype=f32) : (i1[2, 3, 3]) -> f32[2, 3, 3]"
EXACT: dict[str, tuple[Any, tuple[str, ...]]] = {
    "a mask added to numbers": (
        step(add_mask_to_scores),
        ("%t: i1[2, 3, 3], %l: i1[3, 3]", TRUTHS, "%f = aten.where.ScalarOther(%l, %s, -inf) : (i1[3, 3], f32[2, 3, 3]) -> f32[2, 3, 3]", SOFTMAX),
    ),
    "limits of numbers": (
        step(limit_by_mask),
        ("%t: i1[2, 3, 3]", MASK, TRUTHS, "%y = aten.where.ScalarOther(%m, %s, 2.0) : (i1[3, 3], f32[2, 3, 3]) -> f32[2, 3, 3]"),
    ),
    "what is masked of numbers": (
        step(skip_masked_attention),
        ("%t: i1[2]", '%q = stepwell.weight <"q"> "constant" : f32[2, 4, 192, 32]', "%y = aten.scaled_dot_product_attention.default(%q, %q, %q, none, 0.0, true) : (f32[2, 4, 192, 32], f32[2, 4, 192, 32], f32[2, 4, 192, 32]) -> f32[2, 4, 192, 32]"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_where_nothing_is_nan_nothing_is_lost(asked: Any, written: Any, name: str) -> None:
    rewrite, lines = EXACT[name]
    assert asked(written(*lines), rewrite, "xnnpack", numerics="strict") == (1, [])


test_what_rewrites_of_attention_leave = cases(step(recognize_attention))("""
what is no scale stays in front of attention -> aten.mul.Scalar, aten.permute.default, aten.scaled_dot_product_attention.default
    %s = aten.mul.Scalar(%q: i32[1, 2, 4, 8], 0.5)
    %c = aten.matmul.default(%s, %k: f32[1, 2, 8, 4]); %w = aten._softmax.default(%c, -1, false)
    %y = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a number known only at run time -> aten.sym_size.int, aten.mul.Scalar, aten.permute.default, aten.scaled_dot_product_attention.default
    %n = aten.sym_size.int(%q: f32[1, 2, 4, 8], 1); %s = aten.mul.Scalar(%q, %n)
    %c = aten.matmul.default(%s, %k: f32[1, 2, 8, 4]); %w = aten._softmax.default(%c, -1, false)
    %y = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
""")
