"""FoldKernelSum: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.rewrites.cmsis.operators.fold_kernel_sum import BiasForm, FoldKernelSum

test_fold_kernel_sum = cases(FoldKernelSum)("""
without a bias the sums are alone -> writes kernel_sum; omits bias
    %x: i8[2, 4], %w: weight i8[3, 4]
    %y = cmsis.quantized_linear(%x, %w) {input_offset = 5 : i64, filter_offset = 0 : i64, output_offset = 0 : i64, requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>, activation_max = 127 : i64, activation_min = -128 : i64} : (i8[2, 4], i8[3, 4]) -> i8[2, 3]
sums that are there -> unchanged
    %x: i8[2, 4], %w: weight i8[3, 4], %s: weight i32[1, 3]
    %y = cmsis.quantized_linear(%x, %w, kernel_sum = %s) {input_offset = 5 : i64, filter_offset = 0 : i64, output_offset = 0 : i64, requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>, activation_max = 127 : i64, activation_min = -128 : i64} : (i8[2, 4], i8[3, 4], i32[1, 3]) -> i8[2, 3]
what is computed at run time has no known sums -> refused: its weight is computed at run time
    %x: i8[2, 4], %w: i8[3, 4]
    %y = cmsis.quantized_linear(%x, %w) {input_offset = 5 : i64, filter_offset = 0 : i64, output_offset = 0 : i64, requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>, activation_max = 127 : i64, activation_min = -128 : i64} : (i8[2, 4], i8[3, 4]) -> i8[2, 3]
what is computed at run time has no known sums -> refused: its bias is computed at run time
    %x: i8[2, 4], %w: weight i8[3, 4], %b: i32[3]
    %y = cmsis.quantized_linear(%x, %w, bias = %b) {input_offset = 5 : i64, filter_offset = 0 : i64, output_offset = 0 : i64, requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>, activation_max = 127 : i64, activation_min = -128 : i64} : (i8[2, 4], i8[3, 4], i32[3]) -> i8[2, 3]
""")


test_fold_kernel_sum_both = cases(FoldKernelSum(BiasForm.BOTH))("""
both are kept on request -> writes kernel_sum =; writes bias =
    %x: i8[2, 4], %w: weight i8[3, 4], %b: weight i32[3]
    %y = cmsis.quantized_linear(%x, %w, bias = %b) {input_offset = 5 : i64, filter_offset = 0 : i64, output_offset = 0 : i64, requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>, activation_max = 127 : i64, activation_min = -128 : i64} : (i8[2, 4], i8[3, 4], i32[3]) -> i8[2, 3]
""")


test_fold_kernel_sum_bias = cases(FoldKernelSum(BiasForm.BIAS))("""
the bias form folds nothing -> unchanged
    %x: i8[2, 4], %w: weight i8[3, 4], %b: weight i32[3]
    %y = cmsis.quantized_linear(%x, %w, bias = %b) {input_offset = 5 : i64, filter_offset = 0 : i64, output_offset = 0 : i64, requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>, activation_max = 127 : i64, activation_min = -128 : i64} : (i8[2, 4], i8[3, 4], i32[3]) -> i8[2, 3]
""")


test_fold_kernel_sum_run_time = cases(FoldKernelSum(BiasForm.RUN_TIME))("""
sums at run time -> refused: no scratch operand
    %x: i8[2, 4], %w: weight i8[3, 4]
    %y = cmsis.quantized_linear(%x, %w) {input_offset = 5 : i64, filter_offset = 0 : i64, output_offset = 0 : i64, requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>, activation_max = 127 : i64, activation_min = -128 : i64} : (i8[2, 4], i8[3, 4]) -> i8[2, 3]
""")
