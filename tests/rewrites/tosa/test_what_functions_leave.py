"""What the lowerings of powers, folds and functions to TOSA leave alone, each with its reason."""

from typing import Any

from rewrite_cases import cases

from stepwell.translate.lowerings.tosa import (
    block_scaled,
    casts,
    curves,
    discrete,
    elementwise,
    factories,
    functions,
    pooling,
    powers,
    reductions,
    resizing,
    transforms,
)

test_what_functions_leave = cases(powers)("""
a power of two types -> refused: operands and result have several dtypes
    %y = aten.pow.Tensor_Tensor(%x: f32[3], %z: f16[3])
an exponent that is a size -> refused: the exponent is not finite
    %n = aten.sym_size.int(%x: f32[s0, 3], 0); %y = aten.pow.Tensor_Scalar(%x, %n)
an infinite exponent -> refused: the exponent is not finite
    %y = aten.pow.Tensor_Scalar(%x: f32[3], inf)
ones computed at run time -> refused: the shape is symbolic
    %y = aten.pow.Tensor_Scalar(%x: f32[s0, 3], 0)
a large exponent -> refused: the exponent 65 is larger than 64
    %y = aten.pow.Tensor_Scalar(%x: f32[3], 65)
a base that is a size -> refused: the base is not a finite positive number, or is 1
    %n = aten.sym_size.int(%x: f32[s0, 3], 0); %y = aten.pow.Scalar(%n, %x)
a negative base -> refused: the base is not a finite positive number, or is 1
    %y = aten.pow.Scalar(-2, %x: f32[3])
a base of one -> refused: the base is not a finite positive number, or is 1
    %y = aten.pow.Scalar(1, %x: f32[3])
""")


test_reductions = cases(reductions)("""
any of bytes -> refused: the operand is int8
    %y = aten.any.dim(%x: i8[2, 3], 1)
a product of integers -> refused: reduces int64 to int64
    %y = aten.prod.dim_int(%x: i64[2, 3], 1)
a product in another type -> refused: reduces float16 to float32
    %y = aten.prod.dim_int(%x: f16[2, 3], 1, dtype=f32)
a running sum in another type -> refused: the op sums float16 to float32
    %y = aten.cumsum.default(%x: f16[3], 0, dtype=f32)
a running sum of unsigned integers -> refused: TOSA has no element type uint8
    %y = aten.cumsum.default(%x: ui8[3], 0)
a running sum of one number -> refused: a scalar, which has no axis
    %y = aten.cumsum.default(%x: f32[], 0)
a sum whose axes are not listed -> refused: not listed
    %y = aten.sum.default(%x: f32[2])
a running sum of integers in floats -> refused: the op sums int64 to float32
    %y = aten.cumsum.default(%x: i64[2], 0, dtype=f32)
a sum of fp8 -> refused: does not compute with float8_e4m3fn
    %y = aten.sum.dim_IntList(%x: f8E4M3FN[2, 3], [0], dtype=i64)
a running sum of 16 bits -> refused: the op sums int16 to int16
    %y = aten.cumsum.default(%x: i16[2], 0, dtype=i16)
""")


test_curves = cases(curves)("""
an angle of two types -> refused: operands and result have several dtypes
    %y = aten.atan2.default(%x: f32[3], %z: f16[3])
""")


test_discrete = cases(discrete)("""
a divisor that is a tensor -> refused: known only at run time
    %y = aten.fmod.Tensor(%x: f32[3], %z: f32[3])
a divisor that is a size -> refused: known only at run time
    %n = aten.sym_size.int(%x: f32[s0, 3], 0); %y = aten.remainder.Scalar(%x, %n)
a divisor that is no power of two -> refused: is not a power of two
    %y = aten.remainder.Scalar(%x: f32[3], 3.0)
a divisor next to the smallest -> refused: is not a power of two
    %y = aten.fmod.Scalar(%x: f32[3], 4.336808689942018e-19)
a truth next to 2 -> refused: neither 0 nor 1
    %y = aten.eq.Scalar(%x: i1[3], 2)
the truth of bytes -> refused: TOSA cannot compare int8
    %y = aten.logical_not.default(%x: i8[3])
bits that become wider -> unchanged
    %y = aten.bitwise_and.Tensor(%x: i32[3], %z: i64[3])
bits of two types -> refused: several dtypes
    %y = aten.bitwise_and.Tensor(%x: i8[3], %z: i32[3])
a bit beyond int32 -> refused: does not fit int32
    %y = aten.bitwise_and.Scalar(%x: i32[3], 2147483648)
places that are a size -> refused: known only at run time
    %n = aten.sym_size.int(%x: f32[s0, 3], 0)
    %y = aten.bitwise_left_shift.Tensor_Scalar(%z: i32[3], %n)
places beyond int32 -> refused: exceeds the 32 bits
    %y = aten.bitwise_left_shift.Tensor_Scalar(%x: i32[3], 2147483648)
lower-whole-division-to-tosa: a remainder of floats as a quotient -> unchanged
    %y = aten.remainder.Scalar(%x: f32[4], 2.0)
""")


test_elementwise = cases(elementwise)("""
the larger of two types -> refused: several dtypes
    %y = aten.fmax.default(%x: f32[3], %z: f16[3])
the larger of integers -> refused: TOSA has no operator
    %y = aten.fmin.default(%x: i32[3], %z: i32[3])
a float over integers -> refused: integer division
    %y = aten.div.Tensor(%x: f32[3], %z: i32[3])
a number times alpha -> refused: alpha is 3
    %y = aten.add.Scalar(%x: i32[3], 2, 3)
""")


test_functions = cases(functions)("""
a slope that is a size -> refused: negative_slope is known only at run time
    %n = aten.sym_size.int(%x: f32[s0, 3], 0); %y = aten.leaky_relu.default(%x, %n)
""")


test_factories = cases(factories)("""
a value that is a size -> refused: known only at run time
    %n = aten.sym_size.int(%x: f32[s0, 3], 0); %y = aten.full.default([%n], %n)
zeros of a known size -> unchanged
    %y = aten.zeros_like.default(%x: f32[2])
""")


test_resizing = cases(resizing)("""
an image by another scale -> refused: 3 elements times scale 1.0 are not 6
    %y = aten.upsample_nearest2d.default(%x: f32[1, 2, 3, 3], [6, 6], 1.0, 2.0)
""")


test_transforms = cases(transforms)("""
a transform in double precision -> refused: of single precision
    %y = aten._fft_r2c.default(%x: f64[3, 8], [1], 0, true)
a transform of many rows -> refused: symbolic
    %y = aten._fft_r2c.default(%x: f32[s0, 8], [1], 0, true) -> complex<f32>[s0, 5]
a transform along no axis -> refused: no axis is transformed
    %y = aten._fft_c2c.default(%x: complex<f32>[3], [], 0, true)
""")


test_what_functions_leave_unrun = cases(discrete, run=False)("""
a whole divisor beyond int32 -> refused: does not fit int32
    %y = aten.floor_divide.Scalar(%x: i32[3], 1099511627776)
""")


test_transforms_unrun = cases(transforms, run=False)("""
a transform of no rows -> refused: no axis is transformed
    %y = aten._fft_r2c.default(%x: f32[0, 8], [1], 0, true)
a transform scaled otherwise -> refused: the normalization is not one of PyTorch's
    %y = aten._fft_r2c.default(%x: f32[3, 8], [1], 3, true)
""")


test_block_scaled_unrun = cases(block_scaled, run=False)("""
matrices that are no batches -> refused: two batches of matrices
    %y = stepwell_mx.matmul_t.default(%x: f32[2, 32], %z: f32[3, 32], "fp4e2m1", "fp4e2m1")
""")


test_casts_unrun = cases(casts, run=False)("""
a cast to the scale of a block -> refused: no cast from or to float8_e8m0fnu
    %x: f32[3]; %y = aten.to.dtype(%x, f8E8M0FNU) : (f32[3]) -> f8E8M0FNU[3]
""")


test_factories_unrun = cases(factories, run=False)("""
a triangle of many -> refused: a mask of 65536 × 65536 is above
    %y = aten.tril.default(%x: f32[65536, 65536])
a count from a size -> refused: start and step are not constant integers
    %y = aten.arange.start(%m: int<a>, %n: int<b>)
""")


test_pooling_unrun = cases(pooling, run=False)("""
an average whose last window hangs over an dynamic edge -> refused: a symbolic size decides
    %y = aten.avg_pool2d.default(%x: f32[1, 1, s, 4], [2, 2], [2, 2], [0, 0], true)
""")


def test_a_long_transform_has_an_operator_with_the_extension(asked: Any) -> None:
    transform = "%y = aten._fft_c2c.default(%x: complex<f32>[4096], [0], 0, true)"
    for extension, count in (("", 0), ("+fft", 1)):
        assert asked(transform, transforms, f"tosa-1.0+fp{extension}") == (count, [])
