"""What lowerings to CMSIS-NN leave alone: programs that differ in the one thing."""

from typing import Any

import pytest

from stepwell.translate.lowerings.cmsis import borders, carried, elementwise, layers, pooling
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.cmsis.operators import fold_hard_sigmoid

SIZE = '%n = aten.sym_size.int(%q, 0) : (f32[2]) -> !stepwell.int<"2">'
REALS = "%a = quant.dcast %x : i8<0.5:3>[4] to f32[4]"

CASES: list[tuple[Any, tuple[str, ...], str]] = [
    (step(borders.pad), ("%x: i8<0.5:3>[2, 3]", "%a = quant.dcast %x : i8<0.5:3>[2, 3] to f32[2, 3]", "%z = aten.constant_pad_nd.default(%a, [0, 1], nan) : (f32[2, 3]) -> f32[2, 4]", "%y = quant.qcast %z : f32[2, 4] to i8<0.5:3>[2, 4]"), "pads with NaN"),
    (step(borders.boundary), ("%x: f64[4]", "%y = quant.qcast %x : f64[4] to tensor<4x!quant.uniform<i8:f64, 0.5>>"), "expresses float64"),
    (step(carried.pick), ("%x: f32[4, 2], %i: i64[3, 2]", "%y = aten.gather.default(%x, 0, %i) : (f32[4, 2], i64[3, 2]) -> f32[3, 2]"), ""),
    (step(carried.pick), ("%x: i8<0.5:3>[s, 2], %i: i64[3, 2]", "%a = quant.dcast %x : i8<0.5:3>[s, 2] to f32[s, 2]", "%z = aten.gather.default(%a, 0, %i) : (f32[s, 2], i64[3, 2]) -> f32[3, 2]", "%y = quant.qcast %z : f32[3, 2] to i8<0.5:3>[3, 2]"), "known only at run time"),
    (step(carried.compare), ("%x: f32[4]", "%y = aten.gt.Scalar(%x, 1.0) : (f32[4]) -> i1[4]"), ""),
    (step(carried.compare), ("%x: i8<0.5:3>[4], %w: f32[4]", REALS, "%y = aten.gt.Tensor(%a, %w) : (f32[4], f32[4]) -> i1[4]"), "is not quantized"),
    (step(carried.compare), ("%x: i8<0.5:3>[4], %q: f32[2]", REALS, SIZE, '%y = aten.gt.Scalar(%a, %n) : (f32[4], !stepwell.int<"2">) -> i1[4]'), "known only at run time"),
    (elementwise, ("%x: i8<0.5:3>[]", "%a = quant.dcast %x : i8<0.5:3>[] to f32[]", "%z = aten._softmax.default(%a, 0, false) : (f32[]) -> f32[]", "%y = quant.qcast %z : f32[] to i8<0.5:3>[]"), "a scalar has no rows"),
    (layers, ("%x: i8<0.5:3>[2, 4]", "%a = quant.dcast %x : i8<0.5:3>[2, 4] to f32[2, 4]", '%n = stepwell.weight <"n"> "constant" : i8[4]', "%t = quant.scast %n : i8[4] to i8<0.1>[4]", "%c = quant.dcast %t : i8<0.1>[4] to f32[4]", "%z = aten.linear.default(%a, %c) : (f32[2, 4], f32[4]) -> f32[2]", "%y = quant.qcast %z : f32[2] to i8<0.5:3>[2]"), "the weight is one row"),
    (layers, ("%x: i8<0.5:3>[1, 2, 2, 2, 2]", "%a = quant.dcast %x : i8<0.5:3>[1, 2, 2, 2, 2] to f32[1, 2, 2, 2, 2]", '%n = stepwell.weight <"n"> "constant" : i8[2, 3, 1, 1, 1]', "%t = quant.scast %n : i8[2, 3, 1, 1, 1] to i8<0.1>[2, 3, 1, 1, 1]", "%c = quant.dcast %t : i8<0.1>[2, 3, 1, 1, 1] to f32[2, 3, 1, 1, 1]", "%z = aten.convolution.default(%a, %c, none, [1, 1, 1], [0, 0, 0], [1, 1, 1], true, [0, 0, 0], 1) : (f32[1, 2, 2, 2, 2], f32[2, 3, 1, 1, 1]) -> f32[1, 3, 2, 2, 2]", "%y = quant.qcast %z : f32[1, 3, 2, 2, 2] to i8<0.5:3>[1, 3, 2, 2, 2]"), "takes batches of images"),
    (step(layers.linear), ("%x: i8<0.5:3>[2, 4], %w: i8<0.1>[4, 3]", "%a = quant.dcast %x : i8<0.5:3>[2, 4] to f32[2, 4]", "%c = quant.dcast %w : i8<0.1>[4, 3] to f32[4, 3]", "%z = aten.mm.default(%a, %c) : (f32[2, 4], f32[4, 3]) -> f32[2, 3]", "%y = quant.qcast %z : f32[2, 3] to i8<0.5>[2, 3]"), ""),
    (pooling, ("%x: i8<0.5:3>[1, 2, 4, 4]", "%a = quant.dcast %x : i8<0.5:3>[1, 2, 4, 4] to f32[1, 2, 4, 4]", "%z = aten.avg_pool2d.default(%a, [3, 3], [1, 1], [1, 1], false, false) : (f32[1, 2, 4, 4]) -> f32[1, 2, 4, 4]", "%y = quant.qcast %z : f32[1, 2, 4, 4] to i8<0.1>[1, 2, 4, 4]"), "finer than its input"),
    (pooling, ("%x: i8<0.5:3>[1, 2, 4, 4]", "%a = quant.dcast %x : i8<0.5:3>[1, 2, 4, 4] to f32[1, 2, 4, 4]", "%z = aten.avg_pool2d.default(%a, [3, 3], [2, 2], [0, 0], true, false) : (f32[1, 2, 4, 4]) -> f32[1, 2, 2, 2]", "%y = quant.qcast %z : f32[1, 2, 2, 2] to i8<0.1>[1, 2, 2, 2]"), "finer than its input"),
    (pooling, ("%x: i8<0.5:3>[1, 4, 4]", "%a = quant.dcast %x : i8<0.5:3>[1, 4, 4] to f32[1, 4, 4]", "%z = aten.avg_pool1d.default(%a, [2], [1]) : (f32[1, 4, 4]) -> f32[1, 4, 3]", "%y = quant.qcast %z : f32[1, 4, 3] to i8<0.1>[1, 4, 3]"), "finer than its input"),
    (pooling, ("%x: i8<0.5:3>[1, 2, 4, 4]", "%a = quant.dcast %x : i8<0.5:3>[1, 2, 4, 4] to f32[1, 2, 4, 4]", "%z = aten.avg_pool2d.default(%a, [2, 2], [1, 1], [0, 0], false, false) : (f32[1, 2, 4, 4]) -> f32[1, 2, 3, 3]", "%y = quant.qcast %z : f32[1, 2, 3, 3] to i8<0.00000001>[1, 2, 3, 3]"), "takes the sum past int32"),
    (pooling, ("%x: i8<0.5:3>[2, 3, 4]", "%a = quant.dcast %x : i8<0.5:3>[2, 3, 4] to f32[2, 3, 4]", "%z = aten.amax.default(%a, [0, 2], true) : (f32[2, 3, 4]) -> f32[1, 3, 1]", "%y = quant.qcast %z : f32[1, 3, 1] to i8<0.5:3>[1, 3, 1]"), ""),
    (pooling, ("%x: i8<0.5:3>[]", "%a = quant.dcast %x : i8<0.5:3>[] to f32[]", "%z = aten.amax.default(%a, [], true) : (f32[]) -> f32[]", "%y = quant.qcast %z : f32[] to i8<0.5:3>[]"), ""),
    (fold_hard_sigmoid, ("%x: i8<0.5:3>[2, 4, 5]", "%a = quant.dcast %x : i8<0.5:3>[2, 4, 5] to f32[2, 4, 5]", '%n = stepwell.weight <"n"> "constant" : i8[4, 3, 1]', "%t = quant.scast %n : i8[4, 3, 1] to i8<0.1>[4, 3, 1]", "%c = quant.dcast %t : i8<0.1>[4, 3, 1] to f32[4, 3, 1]", "%l = aten.convolution.default(%a, %c, none, [1], [0], [1], true, [0], 1) : (f32[2, 4, 5], f32[4, 3, 1]) -> f32[2, 3, 5]", "%h = aten.hardsigmoid.default(%l) : (f32[2, 3, 5]) -> f32[2, 3, 5]", "%y = quant.qcast %h : f32[2, 3, 5] to i8<0.00390625:-128>[2, 3, 5]"), "not rows of its weight"),
]  # fmt: skip


@pytest.mark.parametrize("near_miss", CASES)
def test_variant_of_example_is_left(left: Any, written: Any, near_miss: Any) -> None:
    rewrite, lines, reason = near_miss
    left(written(*lines), rewrite, reason)
