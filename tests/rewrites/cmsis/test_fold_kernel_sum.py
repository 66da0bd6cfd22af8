"""FoldKernelSum: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.rewrites.cmsis.operators.fold_kernel_sum import BiasForm, FoldKernelSum

test_fold_kernel_sum = cases(FoldKernelSum)("""
without a bias the sums are alone -> writes kernel_sum; omits bias
    %y = cmsis.quantized_linear(%x: i8[2, 4], %w: weight i8[3, 4], input_offset=5, filter_offset=0, output_offset=0, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127, activation_min=-128) -> i8[2, 3]
sums that are there -> unchanged
    %y = cmsis.quantized_linear(%x: i8[2, 4], %w: weight i8[3, 4], kernel_sum = %s: weight i32[1, 3], input_offset=5, filter_offset=0, output_offset=0, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127, activation_min=-128) -> i8[2, 3]
what is computed at run time has no known sums -> refused: the weight is computed at run time
    %y = cmsis.quantized_linear(%x: i8[2, 4], %w: i8[3, 4], input_offset=5, filter_offset=0, output_offset=0, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127, activation_min=-128) -> i8[2, 3]
what is computed at run time has no known sums -> refused: the bias is computed at run time
    %y = cmsis.quantized_linear(%x: i8[2, 4], %w: weight i8[3, 4], bias = %b: i32[3], input_offset=5, filter_offset=0, output_offset=0, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127, activation_min=-128) -> i8[2, 3]
""")


test_fold_kernel_sum_both = cases(FoldKernelSum(BiasForm.BOTH))("""
both are kept on request -> writes kernel_sum =; writes bias =
    %y = cmsis.quantized_linear(%x: i8[2, 4], %w: weight i8[3, 4], bias = %b: weight i32[3], input_offset=5, filter_offset=0, output_offset=0, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127, activation_min=-128) -> i8[2, 3]
""")


test_fold_kernel_sum_bias = cases(FoldKernelSum(BiasForm.BIAS))("""
the bias form folds nothing -> unchanged
    %y = cmsis.quantized_linear(%x: i8[2, 4], %w: weight i8[3, 4], bias = %b: weight i32[3], input_offset=5, filter_offset=0, output_offset=0, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127, activation_min=-128) -> i8[2, 3]
""")


test_fold_kernel_sum_run_time = cases(FoldKernelSum(BiasForm.RUN_TIME))("""
sums at run time -> refused: no scratch operand
    %y = cmsis.quantized_linear(%x: i8[2, 4], %w: weight i8[3, 4], input_offset=5, filter_offset=0, output_offset=0, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127, activation_min=-128) -> i8[2, 3]
""")
