"""What lowerings to XNNPACK leave alone: programs that differ in the one thing."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from rewrite_cases import cases

from stepwell.dialects.xnnpack.costs import COSTS
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import images, quantized_nodes, reductions, resizing
from stepwell.translate.rewrites.xnnpack.convolutions.convolve_by_winograd import (
    convolve_by_winograd,
)
from stepwell.translate.rewrites.xnnpack.convolutions.split_wide_depthwise import (
    split_wide_depthwise,
)
from stepwell.translate.rewrites.xnnpack.expressions import rectify_before_scale
from stepwell.translate.rewrites.xnnpack.expressions.pick_by_slices import pick_by_slices
from stepwell.translate.rewrites.xnnpack.nodes import lower_elementwise, lower_shape
from stepwell.translate.rewrites.xnnpack.partitioning.narrow_to_what_is_read import (
    NarrowToWhatIsRead,
)
from stepwell.translate.rewrites.xnnpack.partitioning.unroll_axis import unroll_axis

SIZE = '%n = aten.sym_size.int(%q, 0) : (f32[2]) -> !stepwell.int<"2">'
TILES_ARE_CHEAP = step(convolve_by_winograd, costs=replace(COSTS, product=1e3))

CASES: list[tuple[Any, tuple[str, ...], str]] = [
    (images, ("%x: f32[1, 2, 3, 3]", "%y = aten.upsample_bilinear2d.default(%x, [6, 6], false, 1.9, 2.0) : (f32[1, 2, 3, 3]) -> f32[1, 2, 6, 6]"), "not the ratio of the sizes"),
    (images, ("%x: f32[1, c, s, 4]", "%y = aten.upsample_nearest2d.vec(%x, none, [2.0, 2.0]) : (f32[1, c, s, 4]) -> f32[1, c, 2*s, 8]"), "the image's size is symbolic"),
    (images, ("%x: f32[1, 2, s, 4]", "%y = aten.upsample_nearest2d.vec(%x, none, [1.5, 2.0]) : (f32[1, 2, s, 4]) -> f32[1, 2, 3*s//2, 8]"), "the image's size is symbolic"),
    (images, ("%x: f32[1, 2, 4, s]", "%y = aten.upsample_nearest2d.vec(%x, none, [2.0, 1.5]) : (f32[1, 2, 4, s]) -> f32[1, 2, 8, 3*s//2]"), "the image's size is symbolic"),
    (images, ("%x: f32[1, 2, s, 4]", "%y = aten.upsample_nearest2d.vec(%x, none, [2.0, 2.1]) : (f32[1, 2, s, 4]) -> f32[1, 2, 2*s, 8]"), "the stated scale is not the ratio of the sizes"),
    (images, ("%x: f32[1, 2, s, 4]", "%y = aten.upsample_nearest2d.vec(%x, none, [3.0, 3.0]) : (f32[1, 2, s, 4]) -> f32[1, 2, 3*s, 12]"), "torch rounds the source positions of some pixels to neighboring pixels"),
    (images, ("%x: f32[8, s, 3]", "%y = aten.pixel_shuffle.default(%x, 2) : (f32[8, s, 3]) -> f32[2, 2*s, 6]"), "the value is not a batch of images with a static number of channels"),
    (images, ("%x: f32[1, 4*c, s, 3]", "%y = aten.pixel_shuffle.default(%x, 2) : (f32[1, 4*c, s, 3]) -> f32[1, c, 2*s, 6]"), "a static number of channels"),
    (images, ("%x: f16[1, 8, s, 3]", "%y = aten.pixel_shuffle.default(%x, 2) : (f16[1, 8, s, 3]) -> f16[1, 2, 2*s, 6]"), "only in float32"),
    (quantized_nodes, ("%x: i8<0.5:3>[1, 2, 3, 3]", "%a = quant.dcast %x : i8<0.5:3>[1, 2, 3, 3] to f32[1, 2, 3, 3]", "%z = aten.mean.dim(%a, [2, 3], true) : (f32[1, 2, 3, 3]) -> f32[1, 2, 1, 1]", "%w = aten.clamp.default(%z, -1, 1) : (f32[1, 2, 1, 1]) -> f32[1, 2, 1, 1]", "%y = quant.qcast %w : f32[1, 2, 1, 1] to i8<0.5:3>[1, 2, 1, 1]"), "there is a clamp between"),
    (quantized_nodes, ("%x: i8<0.5:3>[4]", "%a = quant.dcast %x : i8<0.5:3>[4] to f32[4]", "%z = aten.view.default(%a, [2, 2]) : (f32[4]) -> f32[2, 2]", "%w = aten.clamp.default(%z, -1, 1) : (f32[2, 2]) -> f32[2, 2]", "%y = quant.qcast %w : f32[2, 2] to i8<0.5:3>[2, 2]"), "the result is clamped"),
    (quantized_nodes, ("%x: i8<0.5>[4], %q: f32[2]", "%a = quant.dcast %x : i8<0.5>[4] to f32[4]", SIZE, '%z = aten.clamp.default(%a, 0, %n) : (f32[4], !stepwell.int<"2">) -> f32[4]', "%y = quant.qcast %z : f32[4] to i8<0.5>[4]"), ""),
    (quantized_nodes, ("%x: i8<0.5:3>[4]", "%a = quant.dcast %x : i8<0.5:3>[4] to f32[4]", "%z = aten.clamp.default(%a, 2, 1) : (f32[4]) -> f32[4]", "%y = quant.qcast %z : f32[4] to i8<0.5:3>[4]"), "not below the upper bound"),
    (step(reductions.reduction), ("%x: f32[?, 4]", "%y = aten.mean.dim(%x, [1], true) : (f32[?, 4]) -> f32[?, 1]"), "not even as an expression"),
    (step(reductions.reduction), ("%x: f32[s, 2, 3, 4]", "%y = aten.mean.dim(%x, [0, 2], true) : (f32[s, 2, 3, 4]) -> f32[1, 2, 1, 4]"), "several axes of symbolic size are reduced that are not the planes of an image"),
    (step(reductions.reduction), ("%x: f32[1, 1, 1, 1, s, 4]", "%y = aten.mean.dim(%x, [4], true) : (f32[1, 1, 1, 1, s, 4]) -> f32[1, 1, 1, 1, 1, 4]"), "several axes of symbolic size are reduced that are not the planes of an image"),
    (step(reductions.reduction), ("%x: f32[s, t, 4]", "%y = aten.mean.dim(%x, [0, 1], true) : (f32[s, t, 4]) -> f32[1, 1, 4]"), "several axes of symbolic size are reduced that are not the planes of an image"),
    (step(reductions.greatest), ("%x: f32[t, 4, s]", "%y = aten.amax.default(%x, [1], true) : (f32[t, 4, s]) -> f32[t, 1, s]"), "axes of symbolic size are adjacent to a reduced axis"),
    (resizing, ("%x: f16[1, 2, s, 8]", "%y = aten.upsample_bilinear2d.vec(%x, none, false, [2.0, 1.0]) : (f16[1, 2, s, 8]) -> f16[1, 2, 2*s, 8]"), "in half precision"),
    (resizing, ("%z: f32[1, 2, t, 8]", "%x = aten.slice.Tensor(%z, 2, 1, 9223372036854775807) : (f32[1, 2, t, 8]) -> f32[1, 2, t - 1, 8]", "%y = aten.upsample_bilinear2d.vec(%x, none, false, [2.0, 1.0]) : (f32[1, 2, t - 1, 8]) -> f32[1, 2, 2*t - 2, 8]"), "the size t - 1 is not a fraction of an input's size"),
    (step(pick_by_slices), ("%x: f32[8], %q: f32[2]", SIZE, '%y = aten.unfold.default(%x, 0, %n, 2) : (f32[8], !stepwell.int<"2">) -> f32[4, 2]'), "a window's size is known only at run time"),
    (step(pick_by_slices), ("%x: f32[8], %q: f32[2]", SIZE, '%y = aten.unfold.default(%x, 0, 2, %n) : (f32[8], !stepwell.int<"2">) -> f32[4, 2]'), "a window's size is known only at run time"),
    (step(pick_by_slices), ("%x: f32[]", "%y = aten.unfold.default(%x, 0, 1, 1) : (f32[]) -> f32[1]"), "a window's size is known only at run time"),
    (step(pick_by_slices), ("%x: f32[2, 1]", '%i = stepwell.weight <"i#ones"> "constant" : i64[2, 1]', "%y = aten.gather.default(%x, 1, %i) : (f32[2, 1], i64[2, 1]) -> f32[2, 1]"), "is outside its axis"),
    (step(pick_by_slices), ("%x: f32[2, 4]", '%i = stepwell.weight <"i#ones"> "constant" : i1[4]', "%y = aten.index.Tensor(%x, [none, %i]) : (f32[2, 4], i1[4]) -> f32[2, u0]"), "a mask selects"),
    (step(pick_by_slices), ("%x: f32[2, 2]", '%i = stepwell.weight <"i#rolled"> "constant" : i64[3]', "%y = aten.index_select.default(%x, 1, %i) : (f32[2, 2], i64[3]) -> f32[2, 3]"), "is outside its axis"),
    (step(pick_by_slices), ("%x: f32[2, 2]", "%y = aten.index.Tensor(%x, [none]) : (f32[2, 2]) -> f32[2, 2]"), "are not neighbors"),
    (step(pick_by_slices), ("%x: f32[4]", '%i = stepwell.weight <"i#rolled"> "constant" : i64[4]', "%y = aten.gather.default(%x, 0, %i) : (f32[4], i64[4]) -> f32[4]"), "or its operand has one axis"),
    (lower_elementwise, ("%x: f32[2147483648]", "%y = aten.neg.default(%x) : (f32[2147483648]) -> f32[2147483648]"), "a dimension is 2147483648"),
    (lower_elementwise, ("%x: f32[]", '%w = stepwell.weight <"w"> "parameter" : f32[1]', "%y = aten.prelu.default(%x, %w) : (f32[], f32[1]) -> f32[]"), "no axis for slopes"),
    (lower_shape, ("%x: f32[s, 4]", "%y = aten.slice.Tensor(%x, 0, 0, 9223372036854775807, 2) : (f32[s, 4]) -> f32[(s + 1)//2, 4]"), "slices with step 1"),
    (images, ("%x: f32[8, 3, s]", "%y = aten.pixel_shuffle.default(%x, 2) : (f32[8, 3, s]) -> f32[2, 6, 2*s]"), "the value is not a batch of images with a static number of channels"),
    (quantized_nodes, ("%x: i8<0.5>[2, 3, 4]", "%a = quant.dcast %x : i8<0.5>[2, 3, 4] to f32[2, 3, 4]", "%z = aten.mean.dim(%a, [1], true) : (f32[2, 3, 4]) -> f32[2, 1, 4]", "%y = quant.qcast %z : f32[2, 1, 4] to i8<0.5>[2, 1, 4]"), ""),
    (step(unroll_axis), ("%x: f32[b, n, 6], %z: f32[b, n, 2, 3]", '%b = aten.sym_size.int(%x, 0) : (f32[b, n, 6]) -> !stepwell.int<"b">', '%n = aten.sym_size.int(%x, 1) : (f32[b, n, 6]) -> !stepwell.int<"n">', '%p = aten.view.default(%x, [%b, %n, 2, 3]) : (f32[b, n, 6], !stepwell.int<"b">, !stepwell.int<"n">) -> f32[b, n, 2, 3]', "%s = xnnpack.add(%p, %z) : (f32[b, n, 2, 3], f32[b, n, 2, 3]) -> f32[b, n, 2, 3]", '%y = aten.view.default(%s, [%b, %n, 6]) : (f32[b, n, 2, 3], !stepwell.int<"b">, !stepwell.int<"n">) -> f32[b, n, 6]'), "comes from an input"),
    (step(unroll_axis), ("%x: f32[b, n, 6]", '%b = aten.sym_size.int(%x, 0) : (f32[b, n, 6]) -> !stepwell.int<"b">', '%n = aten.sym_size.int(%x, 1) : (f32[b, n, 6]) -> !stepwell.int<"n">', '%p = aten.view.default(%x, [%b, %n, 2, 3]) : (f32[b, n, 6], !stepwell.int<"b">, !stepwell.int<"n">) -> f32[b, n, 2, 3]', '%w = stepwell.weight <"w"> "parameter" : f32[2, 2]', "%t = xnnpack.static_transpose(%p, perm=[0, 1, 3, 2]) : (f32[b, n, 2, 3]) -> f32[b, n, 3, 2]", "%f = xnnpack.fully_connected(%t, %w) : (f32[b, n, 3, 2], f32[2, 2]) -> f32[b, n, 3, 2]", "%s = xnnpack.static_transpose(%f, perm=[0, 1, 3, 2]) : (f32[b, n, 3, 2]) -> f32[b, n, 2, 3]", '%y = aten.view.default(%s, [%b, %n, 6]) : (f32[b, n, 2, 3], !stepwell.int<"b">, !stepwell.int<"n">) -> f32[b, n, 6]'), "computes along an axis"),
    (step(unroll_axis), ("%x: f32[b, n, 4096]", '%b = aten.sym_size.int(%x, 0) : (f32[b, n, 4096]) -> !stepwell.int<"b">', '%n = aten.sym_size.int(%x, 1) : (f32[b, n, 4096]) -> !stepwell.int<"n">', '%p = aten.view.default(%x, [%b, %n, 2048, 2]) : (f32[b, n, 4096], !stepwell.int<"b">, !stepwell.int<"n">) -> f32[b, n, 2048, 2]', "%s = xnnpack.softmax(%p) : (f32[b, n, 2048, 2]) -> f32[b, n, 2048, 2]", '%y = aten.view.default(%s, [%b, %n, 4096]) : (f32[b, n, 2048, 2], !stepwell.int<"b">, !stepwell.int<"n">) -> f32[b, n, 4096]'), "unrolling 2048 times 1 nodes is too much"),
    (step(split_wide_depthwise), ("%x: f32[1, 24, 24, 400]", '%w = stepwell.weight <"w"> "parameter" : f32[1, 5, 5, 800]', "%y = xnnpack.depthwise_convolution_2d(%x, %w, padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1]) : (f32[1, 24, 24, 400], f32[1, 5, 5, 800]) -> f32[1, 24, 24, 800]"), ""),
    (step(split_wide_depthwise), ("%x: f16[1, 24, 24, 400]", '%w = stepwell.weight <"w"> "parameter" : f16[1, 5, 5, 400]', "%y = xnnpack.depthwise_convolution_2d(%x, %w, padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1]) : (f16[1, 24, 24, 400], f16[1, 5, 5, 400]) -> f16[1, 24, 24, 400]"), ""),
    (step(split_wide_depthwise), ("%x: f32[1, 24, 24, 8]", '%w = stepwell.weight <"w"> "parameter" : f32[1, 5, 5, 8]', "%y = xnnpack.depthwise_convolution_2d(%x, %w, padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1]) : (f32[1, 24, 24, 8], f32[1, 5, 5, 8]) -> f32[1, 24, 24, 8]"), ""),
    (TILES_ARE_CHEAP, ("%x: f16[1, 8, 8, 4]", '%w = stepwell.weight <"w"> "parameter" : f16[6, 3, 3, 4]', "%y = xnnpack.convolution_2d(%x, %w, groups=1, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1]) : (f16[1, 8, 8, 4], f16[6, 3, 3, 4]) -> f16[1, 8, 8, 6]"), ""),
    (rectify_before_scale, ("%x: f32[3, 3, 1, 1], %i: f32[1, 3, 4, 4]", '%g = stepwell.weight <"g#positive"> "parameter" : f32[3, 1, 1]', '%b = stepwell.weight <"b"> "parameter" : f32[3, 1, 1]', "%s = aten.mul.Tensor(%x, %g) : (f32[3, 3, 1, 1], f32[3, 1, 1]) -> f32[3, 3, 1, 1]", "%a = aten.add.Tensor(%s, %b) : (f32[3, 3, 1, 1], f32[3, 1, 1]) -> f32[3, 3, 1, 1]", "%r = aten.relu.default(%a) : (f32[3, 3, 1, 1]) -> f32[3, 3, 1, 1]", "%y = aten.convolution.default(%i, %r, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (f32[1, 3, 4, 4], f32[3, 3, 1, 1]) -> f32[1, 3, 4, 4]"), "reads the scaled value too"),
    (step(unroll_axis), ('%p: tensor<?x?x2x3xf32, #stepwell.shape<["?", "n", 2, 3]>>, %z: f32[n]', '%s = xnnpack.softmax(%p) : (tensor<?x?x2x3xf32, #stepwell.shape<["?", "n", 2, 3]>>) -> tensor<?x?x2x3xf32, #stepwell.shape<["?", "n", 2, 3]>>', '%n = aten.sym_size.int(%z, 0) : (f32[n]) -> !stepwell.int<"n">', '%y = aten.view.default(%s, [-1, %n, 6]) : (tensor<?x?x2x3xf32, #stepwell.shape<["?", "n", 2, 3]>>, !stepwell.int<"n">) -> tensor<?x?x6xf32, #stepwell.shape<["?", "n", 6]>>'), ""),
    (lower_shape, ("%x: f32[s, 4]", "%y = aten.slice.Tensor(%x, 0, 1) : (f32[s, 4]) -> f32[s - 1, 4]"), "constant bounds"),
]  # fmt: skip


@pytest.mark.parametrize("near_miss", CASES)
def test_variant_of_example_is_left(left: Any, written: Any, near_miss: Any) -> None:
    rewrite, lines, reason = near_miss
    left(written(*lines), rewrite, reason)


def test_a_mean_of_planes_of_two_open_sizes_is_a_pool(asked: Any) -> None:
    assert asked(
        "%y = aten.mean.dim(%x: f32[1, 2, s, t], [2, 3], true)", step(reductions.reduction)
    ) == (1, [])


def test_the_greatest_of_numbers_loses_no_nan(asked: Any) -> None:
    assert asked(
        """
        %x: f32[2]
        %y = aten.amax.default(%w: constant f32[2, 4], [1], true)
        """,
        step(reductions.greatest),
        "xnnpack",
        numerics="strict",
    ) == (1, [])


test_what_lowerings_leave = cases(NarrowToWhatIsRead)("""
every second row -> applied 0 times
    %e = xnnpack.exp(%x: f32[s, 4]); %y = aten.slice.Tensor(%e, 0, 0, 9223372036854775807, 2)
an end that is not stated -> applied 0 times
    %e = xnnpack.exp(%x: f32[s, 4]); %y = aten.slice.Tensor(%e, 0, 1)
no rows -> applied 0 times
    %e = xnnpack.exp(%x: f32[s, 4]); %y = aten.slice.Tensor(%e, 0, 5, 2)
rows of a known number -> applied 0 times
    %e = xnnpack.exp(%x: f32[6, 4]); %y = aten.slice.Tensor(%e, 0, 1, 3)
""")


HEADS = "f32[b, n, 2, 3]"
INTS = ', !stepwell.int<"b">, !stepwell.int<"n">'
UNROLLED = {
    "beside what XNNPACK works out": (
        "%x: f32[b, n, 6], %m: f32[n, 2, 3]",
        (
            f"%p = aten.view.default(%x, [%b, %n, 2, 3]) : (f32[b, n, 6]{INTS}) -> {HEADS}",
            f"%s = xnnpack.add(%p, %m) : ({HEADS}, f32[n, 2, 3]) -> {HEADS}",
            f"%y = aten.view.default(%s, [%b, %n, 6]) : ({HEADS}{INTS}) -> f32[b, n, 6]",
        ),
    ),
    "of an axis that is no layer's outputs": (
        "%x: f32[b, n, 6, 5]",
        (
            '%w = stepwell.weight <"w"> "parameter" : f32[4, 5]',
            "%f = xnnpack.fully_connected(%x, %w) : (f32[b, n, 6, 5], f32[4, 5]) -> f32[b, n, 6, 4]",
            f"%p = aten.view.default(%f, [%b, %n, 2, 3, 4]) : (f32[b, n, 6, 4]{INTS}) -> f32[b, n, 2, 3, 4]",
            "%s = xnnpack.softmax(%p) : (f32[b, n, 2, 3, 4]) -> f32[b, n, 2, 3, 4]",
            f"%y = aten.view.default(%s, [%b, %n, 6, 4]) : (f32[b, n, 2, 3, 4]{INTS}) -> f32[b, n, 6, 4]",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNROLLED)
def test_heads_are_computed_one_by_one(apply: Any, written: Any, name: str) -> None:
    arguments, lines = UNROLLED[name]
    x = arguments.partition(": ")[2].partition("]")[0] + "]"
    asks = [
        f'%{size} = aten.sym_size.int(%x, {at}) : ({x}) -> !stepwell.int<"{size}">'
        for at, size in enumerate("bn")
    ]
    inputs = [torch.randn(2, 5, *([6] if x == "f32[b, n, 6]" else [6, 5])), torch.randn(5, 2, 3)]
    text = written(arguments, *asks, *lines)
    assert apply(text, step(unroll_axis), inputs=inputs[: arguments.count("%")]).count == 1


def test_a_sum_of_halves_that_may_be_nan_asks_for_its_count(asked: Any) -> None:
    assert asked(
        "%y = aten.sum.dim_IntList(%x: f16[s, t, 4], [0], true)",
        step(reductions.reduction),
        "xnnpack",
        numerics="torch",
    ) == (1, [])
