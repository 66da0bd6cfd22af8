"""AbsorbFlatten: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.rewrites.cmsis.layout.absorb_flatten import AbsorbFlatten

test_absorb_flatten = cases(
    AbsorbFlatten,
    """
another order of the image is absorbed too -> quant.scast, aten.view.default, quant.scast, quant.scast, cmsis.quantized_linear
    %w = quant.scast(%ws: weight "w" i8[1, 12]) -> i8<0.25>[1, 12]; %x: i8<0.5:3>[2, 2, 2, 3]
    %t = cmsis.transpose(%x) {perm = array<i64: 0, 2, 3, 1>} : (i8<0.5:3>[2, 2, 2, 3]) -> i8<0.5:3>[2, 2, 3, 2]
    %r = quant.scast(%t) -> i8[2, 2, 3, 2]; %v = aten.view.default(%r, [2, 12])
    %f = quant.scast(%v) -> i8<0.5:3>[2, 12]
    %y = cmsis.quantized_linear(%f, %w) {input_offset = -3 : i64, filter_offset = 0 : i64, output_offset = -1 : i64, requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>, activation_max = 127 : i64, activation_min = -128 : i64} : (i8<0.5:3>[2, 12], i8<0.25>[1, 12]) -> i8<2.0:-1>[2, 1]
rows that are part of an image -> unchanged
    %w = quant.scast(%ws: weight "w" i8[1, 6]) -> i8<0.25>[1, 6]; %x: i8<0.5:3>[2, 2, 2, 3]
    %t = cmsis.transpose(%x) {perm = array<i64: 0, 3, 1, 2>} : (i8<0.5:3>[2, 2, 2, 3]) -> i8<0.5:3>[2, 3, 2, 2]
    %r = quant.scast(%t) -> i8[2, 3, 2, 2]; %v = aten.view.default(%r, [4, 6])
    %f = quant.scast(%v) -> i8<0.5:3>[4, 6]
    %y = cmsis.quantized_linear(%f, %w) {input_offset = -3 : i64, filter_offset = 0 : i64, output_offset = -1 : i64, requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>, activation_max = 127 : i64, activation_min = -128 : i64} : (i8<0.5:3>[4, 6], i8<0.25>[1, 6]) -> i8<2.0:-1>[4, 1]
an order that moves the batch -> unchanged
    %w = quant.scast(%ws: weight "w" i8[1, 12]) -> i8<0.25>[1, 12]; %x: i8<0.5:3>[2, 2, 2, 3]
    %t = cmsis.transpose(%x) {perm = array<i64: 1, 0, 2, 3>} : (i8<0.5:3>[2, 2, 2, 3]) -> i8<0.5:3>[2, 2, 2, 3]
    %r = quant.scast(%t) -> i8[2, 2, 2, 3]; %v = aten.view.default(%r, [2, 12])
    %f = quant.scast(%v) -> i8<0.5:3>[2, 12]
    %y = cmsis.quantized_linear(%f, %w) {input_offset = -3 : i64, filter_offset = 0 : i64, output_offset = -1 : i64, requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>, activation_max = 127 : i64, activation_min = -128 : i64} : (i8<0.5:3>[2, 12], i8<0.25>[1, 12]) -> i8<2.0:-1>[2, 1]
without a transposition there is nothing to absorb -> unchanged
    %w = quant.scast(%ws: weight "w" i8[1, 12]) -> i8<0.25>[1, 12]
    %r = quant.scast(%x: i8<0.5:3>[2, 2, 2, 3]) -> i8[2, 2, 2, 3]
    %v = aten.view.default(%r, [2, 12]); %f = quant.scast(%v) -> i8<0.5:3>[2, 12]
    %y = cmsis.quantized_linear(%f, %w) {input_offset = -3 : i64, filter_offset = 0 : i64, output_offset = -1 : i64, requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>, activation_max = 127 : i64, activation_min = -128 : i64} : (i8<0.5:3>[2, 12], i8<0.25>[1, 12]) -> i8<2.0:-1>[2, 1]
a weight that is computed keeps its columns -> refused: computed at run time
    %x: i8<0.5:3>[2, 2, 2, 3]
    %t = cmsis.transpose(%x) {perm = array<i64: 0, 3, 1, 2>} : (i8<0.5:3>[2, 2, 2, 3]) -> i8<0.5:3>[2, 3, 2, 2]
    %r = quant.scast(%t) -> i8[2, 3, 2, 2]; %v = aten.view.default(%r, [2, 12])
    %f = quant.scast(%v) -> i8<0.5:3>[2, 12]; %w: i8<0.25>[1, 12]
    %y = cmsis.quantized_linear(%f, %w) {input_offset = -3 : i64, filter_offset = 0 : i64, output_offset = -1 : i64, requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>, activation_max = 127 : i64, activation_min = -128 : i64} : (i8<0.5:3>[2, 12], i8<0.25>[1, 12]) -> i8<2.0:-1>[2, 1]
a transposed value with another user is transposed anyway -> unchanged
    %w = quant.scast(%ws: weight "w" i8[1, 12]) -> i8<0.25>[1, 12]; %x: i8<0.5:3>[2, 2, 2, 3]
    %t = cmsis.transpose(%x) {perm = array<i64: 0, 3, 1, 2>} : (i8<0.5:3>[2, 2, 2, 3]) -> i8<0.5:3>[2, 3, 2, 2]
    %r = quant.scast(%t) -> i8[2, 3, 2, 2]; %v = aten.view.default(%r, [2, 12])
    %f = quant.scast(%v) -> i8<0.5:3>[2, 12]
    %y = cmsis.quantized_linear(%f, %w) {input_offset = -3 : i64, filter_offset = 0 : i64, output_offset = -1 : i64, requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>, activation_max = 127 : i64, activation_min = -128 : i64} : (i8<0.5:3>[2, 12], i8<0.25>[1, 12]) -> i8<2.0:-1>[2, 1]
    return %y, %t
a weight with another user keeps its columns -> refused: used elsewhere
    %w = quant.scast(%ws: weight "w" i8[1, 12]) -> i8<0.25>[1, 12]; %x: i8<0.5:3>[2, 2, 2, 3]
    %t = cmsis.transpose(%x) {perm = array<i64: 0, 3, 1, 2>} : (i8<0.5:3>[2, 2, 2, 3]) -> i8<0.5:3>[2, 3, 2, 2]
    %r = quant.scast(%t) -> i8[2, 3, 2, 2]; %v = aten.view.default(%r, [2, 12])
    %f = quant.scast(%v) -> i8<0.5:3>[2, 12]
    %y = cmsis.quantized_linear(%f, %w) {input_offset = -3 : i64, filter_offset = 0 : i64, output_offset = -1 : i64, requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>, activation_max = 127 : i64, activation_min = -128 : i64} : (i8<0.5:3>[2, 12], i8<0.25>[1, 12]) -> i8<2.0:-1>[2, 1]
    return %y, %w
a window over rows is no layer over each -> unchanged
    %w = quant.scast(%ws: weight "w" i8[1, 2, 1, 12]) -> i8<0.25>[1, 2, 1, 12]
    %x: i8<0.5:3>[2, 2, 2, 3]
    %t = cmsis.transpose(%x) {perm = array<i64: 0, 3, 1, 2>} : (i8<0.5:3>[2, 2, 2, 3]) -> i8<0.5:3>[2, 3, 2, 2]
    %r = quant.scast(%t) -> i8[2, 3, 2, 2]; %v = aten.view.default(%r, [1, 2, 1, 12])
    %f = quant.scast(%v) -> i8<0.5:3>[1, 2, 1, 12]
    %y = cmsis.quantized_conv2d_nhwc(%f, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, input_offset = -3 : i64, output_offset = -1 : i64, requantize_multipliers = array<i32: 1073741824>, requantize_shifts = array<i32: -3>, activation_min = -128 : i64, activation_max = 127 : i64, scratch = 0 : i64} : (i8<0.5:3>[1, 2, 1, 12], i8<0.25>[1, 2, 1, 12]) -> i8<2.0:-1>[1, 1, 1, 1]
a batch known only at run time -> unchanged
    %w = quant.scast(%ws: weight "w" i8[1, 12]) -> i8<0.25>[1, 12]; %x: i8<0.5:3>[s0, 2, 2, 3]
    %t = cmsis.transpose(%x) {perm = array<i64: 0, 3, 1, 2>} : (i8<0.5:3>[s0, 2, 2, 3]) -> i8<0.5:3>[s0, 3, 2, 2]
    %r = quant.scast(%t) -> i8[s0, 3, 2, 2]; %v = aten.flatten.using_ints(%r, 1)
    %f = quant.scast(%v) -> i8<0.5:3>[s0, 12]
    %y = cmsis.quantized_linear(%f, %w) {input_offset = -3 : i64, filter_offset = 0 : i64, output_offset = -1 : i64, requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>, activation_max = 127 : i64, activation_min = -128 : i64} : (i8<0.5:3>[s0, 12], i8<0.25>[1, 12]) -> i8<2.0:-1>[s0, 1]
""",
)
