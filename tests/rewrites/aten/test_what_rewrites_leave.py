"""What rewrites of sizes, slices and constants leave alone: programs that differ in the one thing."""

from typing import Any

import pytest

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.constants.fold_constants import FoldConstants
from stepwell.translate.rewrites.layers import fold_batch_norm
from stepwell.translate.rewrites.layers.lift_scales_from_filter import lift_scales_from_filter
from stepwell.translate.rewrites.mxfp import choose_mx_form
from stepwell.translate.rewrites.sizes import ask_inputs_for_sizes, part_before_permute
from stepwell.translate.rewrites.sizes.keep_axes_apart import keep_axes_apart
from stepwell.translate.rewrites.slices import store_row_in_table
from stepwell.translate.rewrites.slices.write_by_cat import write_by_cat

LOOKED_UP = "%e = aten.embedding.default(%t, %i) : (f32[4, 4], i64[2, 3]) -> f32[2, 3, 4]"
CHOSEN = "%y = aten.where.self(%c, %r, %e) : (i1[2, 3, 1], f32[4], f32[2, 3, 4]) -> f32[2, 3, 4]"
TABLE = '%t = stepwell.weight <"t"> "constant" : f32[4, 4]'
ROW = '%r = stepwell.weight <"r"> "constant" : f32[4]'
ROWS = "%c = aten.view.default(%m, [2, 3, 1]) : (i1[2, 3]) -> i1[2, 3, 1]"
B = '%b = aten.sym_size.int(%i, 1) : (i64[n, b]) -> !stepwell.int<"b">'
N = '%n = aten.sym_size.int(%i, 0) : (i64[n, b]) -> !stepwell.int<"n">'

CASES: list[tuple[Any, tuple[str, ...], str]] = [
    (step(keep_axes_apart), ("%x: f32[?, ?, 8]", "%v = aten.view.default(%x, [-1, 8]) : (f32[?, ?, 8]) -> f32[?, 8]", "%y = aten.relu.default(%v) : (f32[?, 8]) -> f32[?, 8]"), ""),
    (step(keep_axes_apart), ("%x: f32[a, 4, 8]", "%v = aten.view.default(%x, [-1, 8]) : (f32[a, 4, 8]) -> f32[4*a, 8]", "%y = aten.relu.default(%v) : (f32[4*a, 8]) -> f32[4*a, 8]"), ""),
    (part_before_permute, ("%x: f32[n, b, 6]", '%b = aten.sym_size.int(%x, 1) : (f32[n, b, 6]) -> !stepwell.int<"b">', '%n = aten.sym_size.int(%x, 0) : (f32[n, b, 6]) -> !stepwell.int<"n">', "%p = aten.permute.default(%x, [2, 1, 0]) : (f32[n, b, 6]) -> f32[6, b, n]", '%y = aten.view.default(%p, [6, %b, %n]) : (f32[6, b, n], !stepwell.int<"b">, !stepwell.int<"n">) -> f32[6, b, n]'), ""),
    (part_before_permute, ("%x: f32[n, 4, 6]", "%p = aten.permute.default(%x, [2, 1, 0]) : (f32[n, 4, 6]) -> f32[6, 4, n]", "%y = aten.view.default(%p, [2, 3, 4, -1]) : (f32[6, 4, n]) -> f32[2, 3, 4, n]"), ""),
    (part_before_permute, ("%x: f32[?, ?, 6], %i: i64[n, b]", B, N, "%p = aten.permute.default(%x, [2, 1, 0]) : (f32[?, ?, 6]) -> f32[6, ?, ?]", '%y = aten.view.default(%p, [2, 3, %b, %n]) : (f32[6, ?, ?], !stepwell.int<"b">, !stepwell.int<"n">) -> f32[2, 3, ?, ?]'), ""),
    (part_before_permute, ("%x: f32[6*n, b*n], %i: i64[n, b]", B, N, "%p = aten.permute.default(%x, [1, 0]) : (f32[6*n, b*n]) -> f32[b*n, 6*n]", '%y = aten.view.default(%p, [%b, %n, -1]) : (f32[b*n, 6*n], !stepwell.int<"b">, !stepwell.int<"n">) -> f32[b, n, 6*n]'), "are computed at run time"),
    (ask_inputs_for_sizes, ("%x: f32[0, 4]", "%a = aten.neg.default(%x) : (f32[0, 4]) -> f32[0, 4]", '%n = aten.sym_size.int(%a, 0) : (f32[0, 4]) -> !stepwell.int<"0">', '%y = aten.full.default([%n], 1) : (!stepwell.int<"0">) -> i64[0]'), ""),
    (store_row_in_table, ("%i: i64[2, 3]", TABLE, ROW, "%m = aten.ne.Scalar(%i, 2) : (i64[2, 3]) -> i1[2, 3]", ROWS, LOOKED_UP, CHOSEN), ""),
    (store_row_in_table, ("%i: i64[2, 3], %j: i64[2, 3]", TABLE, ROW, "%m = aten.eq.Scalar(%j, 2) : (i64[2, 3]) -> i1[2, 3]", ROWS, LOOKED_UP, CHOSEN), ""),
    (step(write_by_cat), ("%x: f32[4, 5], %u: f32[s0, 5]", "%y = aten.slice_scatter.default(%x, %u, 0, 1, 3) : (f32[4, 5], f32[s0, 5]) -> f32[4, 5]"), "the written value is symbolic"),
    (step(write_by_cat), ("%u: f32[2, 5]", '%x = stepwell.state <"x"> : f32[4, 5]', "%y = aten.slice_scatter.default(%x, %u, 0, 1, 3) : (f32[4, 5], f32[2, 5]) -> f32[4, 5]"), "written in place"),
    (ask_inputs_for_sizes, ("%x: f32[0, s]", "%a = aten.neg.default(%x) : (f32[0, s]) -> f32[0, s]", '%n = aten.sym_size.int(%a, 0) : (f32[0, s]) -> !stepwell.int<"0">', '%y = aten.full.default([%n], 1) : (!stepwell.int<"0">) -> i64[0]'), ""),
    (fold_batch_norm, ("%x: f32[2, 4, 3]", '%w = stepwell.weight <"w"> "parameter" : f32[3, 4, 1]', '%m = stepwell.weight <"m"> "buffer" : f32[3, 1]', '%v = stepwell.weight <"v#ones"> "buffer" : f32[3]', "%c = aten.convolution.default(%x, %w, none, [1], [0], [1], false, [0], 1) : (f32[2, 4, 3], f32[3, 4, 1]) -> f32[2, 3, 3]", "%y = aten.batch_norm.default(%c, none, none, %m, %v, false, 0.1, 1.0e-05, false) : (f32[2, 3, 3], f32[3, 1], f32[3]) -> f32[2, 3, 3]"), "a parameter has several axes"),
    (FoldConstants(), ("%x: f32[1]", '%w = stepwell.weight <"w"> "parameter" : tensor<3x4xcomplex<f32>>', "%y = aten.istft.default(%w, 4, 2) : (tensor<3x4xcomplex<f32>>) -> f32[6]"), "aten.istft"),
    (choose_mx_form, ("%x: f32[2, 32], %z: f32[3, 32]", '%y = stepwell_mx.matmul_t.default(%x, %z, "fp4e2m1", "fp4e2m1") : (f32[2, 32], f32[3, 32]) -> f32[3, 32, 32]'), "two batches of matrices"),
    (step(lift_scales_from_filter), ("%x: f32[1, 3, h, 4], %s: f32[1, 3, 1, 1]", '%w = stepwell.weight <"w"> "parameter" : f32[5, 3, 1, 1]', "%f = aten.mul.Tensor(%w, %s) : (f32[5, 3, 1, 1], f32[1, 3, 1, 1]) -> f32[5, 3, 1, 1]", "%y = aten.convolution.default(%x, %f, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (f32[1, 3, h, 4], f32[5, 3, 1, 1]) -> f32[1, 5, h, 4]"), ""),
    (step(lift_scales_from_filter), ("%x: f32[1, 3, 4, 4], %g: f32[5, 3, 1, 1]", "%f = aten.relu.default(%g) : (f32[5, 3, 1, 1]) -> f32[5, 3, 1, 1]", "%y = aten.convolution.default(%x, %f, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (f32[1, 3, 4, 4], f32[5, 3, 1, 1]) -> f32[1, 5, 4, 4]"), ""),
    (step(lift_scales_from_filter), ("%x: f32[1, 3, 4, 4]", '%w = stepwell.weight <"w"> "parameter" : f32[3, 5, 1, 1]', "%f = aten.permute.default(%w, [1, 0, 2, 3]) : (f32[3, 5, 1, 1]) -> f32[5, 3, 1, 1]", "%y = aten.convolution.default(%x, %f, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (f32[1, 3, 4, 4], f32[5, 3, 1, 1]) -> f32[1, 5, 4, 4]"), ""),
    (step(lift_scales_from_filter), ("%x: f32[2, 6, 4, 4], %s: f32[1, 3, 1, 1]", '%w = stepwell.weight <"w"> "parameter" : f32[10, 3, 1, 1]', "%f = aten.mul.Tensor(%w, %s) : (f32[10, 3, 1, 1], f32[1, 3, 1, 1]) -> f32[10, 3, 1, 1]", "%y = aten.convolution.default(%x, %f, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 2) : (f32[2, 6, 4, 4], f32[10, 3, 1, 1]) -> f32[2, 10, 4, 4]"), "the batch size is not 1"),
    (step(lift_scales_from_filter), ("%x: f32[1, 3, 4, 4], %s: f32[1, 1, 1, 3, 1, 1]", '%w = stepwell.weight <"w"> "parameter" : f32[5, 3, 1, 1]', "%a = aten.view.default(%w, [1, 1, 5, 3, 1, 1]) : (f32[5, 3, 1, 1]) -> f32[1, 1, 5, 3, 1, 1]", "%m = aten.mul.Tensor(%a, %s) : (f32[1, 1, 5, 3, 1, 1], f32[1, 1, 1, 3, 1, 1]) -> f32[1, 1, 5, 3, 1, 1]", "%f = aten.view.default(%m, [5, 3, 1, 1]) : (f32[1, 1, 5, 3, 1, 1]) -> f32[5, 3, 1, 1]", "%y = aten.convolution.default(%x, %f, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (f32[1, 3, 4, 4], f32[5, 3, 1, 1]) -> f32[1, 5, 4, 4]"), "differs along its window"),
    (step(lift_scales_from_filter), ("%x: f32[1, 3, 4, 4], %s: f32[1, 3, 1, 1]", '%w = stepwell.weight <"w"> "parameter" : f32[15, 1, 1, 1]', "%a = aten.view.default(%w, [5, 3, 1, 1]) : (f32[15, 1, 1, 1]) -> f32[5, 3, 1, 1]", "%f = aten.mul.Tensor(%a, %s) : (f32[5, 3, 1, 1], f32[1, 3, 1, 1]) -> f32[5, 3, 1, 1]", "%y = aten.convolution.default(%x, %f, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (f32[1, 3, 4, 4], f32[5, 3, 1, 1]) -> f32[1, 5, 4, 4]"), ""),
    (step(lift_scales_from_filter), ("%x: f32[1, 3, 4, 4], %s: f32[1, 3, 1, 1, 1]", '%w = stepwell.weight <"w"> "parameter" : f32[1, 3, 5, 1, 1]', "%a = aten.mul.Tensor(%w, %s) : (f32[1, 3, 5, 1, 1], f32[1, 3, 1, 1, 1]) -> f32[1, 3, 5, 1, 1]", "%b = aten.view.default(%a, [3, 5, 1, 1]) : (f32[1, 3, 5, 1, 1]) -> f32[3, 5, 1, 1]", "%f = aten.permute.default(%b, [1, 0, 2, 3]) : (f32[3, 5, 1, 1]) -> f32[5, 3, 1, 1]", "%y = aten.convolution.default(%x, %f, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (f32[1, 3, 4, 4], f32[5, 3, 1, 1]) -> f32[1, 5, 4, 4]"), ""),
]  # fmt: skip


@pytest.mark.parametrize("near_miss", CASES)
def test_variant_of_example_is_left(left: Any, written: Any, near_miss: Any) -> None:
    rewrite, lines, reason = near_miss
    left(written(*lines), rewrite, reason)
