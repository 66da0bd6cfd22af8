"""Casts between reals and integers are typed, cancelled and moved, or stay."""

from rewrite_cases import cases

from stepwell.translate.rewrites.quant import CANCEL_CASTS, casts, constants
from stepwell.translate.rewrites.quant.hoist_quantize import HoistQuantize
from stepwell.translate.rewrites.quant.sink_dequantize import (
    SinkDequantize,
    SinkDequantizeAlongAxis,
)

test_casts = cases(casts, constants, HoistQuantize)("""
type-quantize: scales along an axis go into the type -> quant.qcast, quant.scast
    %y = quantized_decomposed.quantize_per_channel.default(%x: f32[2, 3], %s: constant "s#positive" f32[2], %z: constant "z#zeros" i32[2], 0, -127, 127, i8)
type-dequantize: a scale that is an input has no place in a type -> refused: computed at run time
    %y = quantized_decomposed.dequantize_per_channel.default(%x: i8[2, 3], %s: f32[2], %z: constant "z#zeros" i32[2], 0, -127, 127, i8)
type-dequantize: a scale of zero is no quantization -> refused: is not a positive number
    %y = quantized_decomposed.dequantize_per_tensor.default(%x: i8[2], 0.0, 0, -128, 127, i8)
type-quantize | type-dequantize: a dynamic quantization was never a candidate -> unchanged
    %s, %z = quantized_decomposed.choose_qparams.tensor(%x: f32[2, 3], -128, 127, 1e-07, i8)
    %q = quantized_decomposed.quantize_per_tensor.tensor(%x, %s, %z, -128, 127, i8)
    %y = quantized_decomposed.dequantize_per_tensor.tensor(%q, %s, %z, -128, 127, i8)
type-dequantize: integers of any width are typed -> quant.scast, quant.dcast
    - %y = quantized_decomposed.dequantize_per_tensor.default(%x: ui8[4], 0.5, 0, 0, 255, ui8)
    - %y = quantized_decomposed.dequantize_per_tensor.default(%x: i16[4], 0.5, 0, -32768, 32767, i16)
    - %y = quantized_decomposed.dequantize_per_tensor.default(%x: i32[4], 0.5, 0, -2147483648, 2147483647, i32)
store-constant + store-constant-anew: a stored weight in another quantization is stored anew -> quant.scast
    %t = quant.scast(%s: weight i8[4]) -> i8<0.5>[4]; %r = quant.dcast(%t)
    %y = quant.qcast(%r) -> i8<0.25>[4]
store-constant: a computed value is quantized when it is there -> unchanged
    %y = quant.qcast(%x: f32[4]) -> i8<0.25>[4]
store-constant: a weight of another float type -> refused: only float32 weights
    %y = quant.qcast(%w: weight f16[4]) -> !quant.uniform<i8:f16, 0.25>[4]
permute-constant + reshape-constant: a reshaped and a permuted weight are derived -> nothing
    %v = aten.view.default(%w: weight f32[4, 2], [2, 4]); %y = aten.t.default(%v)
permute-constant | reshape-constant: an input moves at run time -> unchanged
    %y = aten.t.default(%x: f32[4, 2])
permute-constant | reshape-constant: two weights joined -> unchanged
    %y = aten.cat.default([%w: weight f32[4, 2], %w])
permute-constant | reshape-constant: a weight split in parts -> unchanged
    %a, %b = aten.split.Tensor(%w: weight f32[4, 2], 2); %y = aten.add.Tensor(%a, %b)
permute-constant | reshape-constant: a part of a weight -> unchanged
    %y = aten.slice.Tensor(%w: weight f32[4, 2], 0, 0, 2)
permute-constant | reshape-constant: a weight of a shape known only at run time -> unchanged
    %y = aten.view.default(%w: weight f32[10], [%n: int<s0>, -1]) -> f32[s0, (10//s0)]
hoist-quantize: a concatenation quantizes each operand -> quant.qcast, quant.scast, quant.qcast, quant.scast, aten.cat.default, quant.scast
    %c = aten.cat.default([%a: f32[2], %b: f32[3]]); %y = quant.qcast(%c) -> i8<0.5>[5]
hoist-quantize: an op that computes is quantized after -> unchanged
    %c = aten.neg.default(%a: f32[2]); %y = quant.qcast(%c) -> i8<0.5>[2]
hoist-quantize: dropout in training computes -> unchanged
    %c = aten.dropout.default(%a: f32[2], 0.0, true); %y = quant.qcast(%c) -> i8<0.5>[2]
hoist-quantize: an input is quantized where it is -> unchanged
    %y = quant.qcast(%a: f32[2]) -> i8<0.5>[2]
hoist-quantize: scales along an axis do not follow a view -> refused: do not follow a movement
    %c = aten.view.default(%a: f32[6], [2, 3]); %y = quant.qcast(%c) -> i8<:0, {0.5, 0.25}>[2, 3]
hoist-quantize: a value that is read as a float too is moved as one -> unchanged
    %c = aten.view.default(%a: f32[6], [2, 3]); %y = quant.qcast(%c) -> i8<0.5>[2, 3]; return %y, %c
""")


STORAGE, QUANTIZED = CANCEL_CASTS


test_cancel_casts = cases(STORAGE, QUANTIZED)("""
a quantization of what was dequantized alike is nothing -> nothing
    %r = quant.dcast(%x: i8<0.5:3>[4]); %y = quant.qcast(%r) -> i8<0.5:3>[4]
cancel-quantization | cancel-storage-casts: other parameters are a requantization -> unchanged
    %r = quant.dcast(%x: i8<0.5:3>[4]); %y = quant.qcast(%r) -> i8<0.5:2>[4]
cancel-quantization | cancel-storage-casts: casts of different kinds do not undo each other -> unchanged
    %r = quant.dcast(%x: i8<0.5:3>[4]); %n = aten.neg.default(%r)
    %y = quant.qcast(%n) -> i8<0.5:3>[4]
""")


test_sink_dequantize = cases(SinkDequantize, SinkDequantizeAlongAxis)("""
sink-dequantize: a concatenation of equal scales moves integers -> quant.scast, quant.scast, aten.cat.default, quant.scast, quant.dcast
    %ar = quant.dcast(%a: i8<0.5:3>[4]); %br = quant.dcast(%b: i8<0.5:3>[4])
    %y = aten.cat.default([%ar, %br])
sink-dequantize: a concatenation of different scales moves reals -> unchanged
    %ar = quant.dcast(%a: i8<0.5:3>[4]); %br = quant.dcast(%b: i8<0.25>[4])
    %y = aten.cat.default([%ar, %br])
sink-dequantize: an operand that was never quantized moves as a real -> unchanged
    %ar = quant.dcast(%a: i8<0.5:3>[4]); %n = aten.neg.default(%b: f32[4])
    %y = aten.cat.default([%ar, %n])
sink-dequantize: all parts of a split are dequantized -> quant.scast, aten.split.Tensor, quant.scast, quant.dcast, quant.scast, quant.dcast
    %ar = quant.dcast(%a: i8<0.5:3>[4]); %p, %y = aten.split.Tensor(%ar, 2)
sink-dequantize: dropout in training computes -> unchanged
    %ar = quant.dcast(%a: i8<0.5:3>[4]); %y = aten.dropout.default(%ar, 0.0, true)
sink-dequantize-along-axis: scales along an axis follow nothing else -> refused: moved by a permutation only
    %ar = quant.dcast(%a: i8<:0, {0.5, 0.25}>[2, 3]); %y = aten.view.default(%ar, [6])
sink-dequantize-along-axis: one scale for all is no business of scales along an axis -> unchanged
    %ar = quant.dcast(%a: i8<0.5:3>[4]); %y = aten.view.default(%ar, [2, 2])
""")


test_sink_dequantize_along_axis = cases(SinkDequantizeAlongAxis)("""
scales along an axis follow its permutation -> writes f32:1, {0.5, 0.25}
    %ar = quant.dcast(%a: i8<:0, {0.5, 0.25}>[2, 3]); %y = aten.t.default(%ar)
""")
