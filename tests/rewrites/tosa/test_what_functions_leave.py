"""What the lowerings of powers, folds and functions to TOSA leave alone, each with its reason."""

from typing import Any

import pytest

from stepwell.translate.lowerings.lowering import step
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

SIZE = '%n = aten.sym_size.int(%x, 0) : (f32[s0, 3]) -> !stepwell.int<"s0">'
FOURIER = "%y = aten._fft_r2c.default(%x, [1], 0, true)"
ROWS = '(f32[s0, 3], !stepwell.int<"s0">)'

CASES: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "a power of two types": (
        powers,
        (
            "%x: f32[3], %z: f16[3]",
            "%y = aten.pow.Tensor_Tensor(%x, %z) : (f32[3], f16[3]) -> f32[3]",
        ),
        "operands and result have several dtypes",
    ),
    "an exponent that is a size": (
        powers,
        ("%x: f32[s0, 3]", SIZE, f"%y = aten.pow.Tensor_Scalar(%x, %n) : {ROWS} -> f32[s0, 3]"),
        "the exponent is not finite",
    ),
    "an infinite exponent": (
        powers,
        ("%x: f32[3]", "%y = aten.pow.Tensor_Scalar(%x, inf) : (f32[3]) -> f32[3]"),
        "the exponent is not finite",
    ),
    "ones of run time": (
        powers,
        ("%x: f32[s0, 3]", "%y = aten.pow.Tensor_Scalar(%x, 0) : (f32[s0, 3]) -> f32[s0, 3]"),
        "the shape is symbolic",
    ),
    "a large exponent": (
        powers,
        ("%x: f32[3]", "%y = aten.pow.Tensor_Scalar(%x, 65) : (f32[3]) -> f32[3]"),
        "is beyond 64",
    ),
    "a base that is a size": (
        powers,
        (
            "%x: f32[s0, 3]",
            SIZE,
            '%y = aten.pow.Scalar(%n, %x) : (f32[s0, 3], !stepwell.int<"s0">) -> f32[s0, 3]',
        ),
        "the base is not a finite number above 0",
    ),
    "a negative base": (
        powers,
        ("%x: f32[3]", "%y = aten.pow.Scalar(-2, %x) : (f32[3]) -> f32[3]"),
        "the base is not a finite number above 0",
    ),
    "a base of one": (
        powers,
        ("%x: f32[3]", "%y = aten.pow.Scalar(1, %x) : (f32[3]) -> f32[3]"),
        "or it is 1",
    ),
    "any of bytes": (
        reductions,
        ("%x: i8[2, 3]", "%y = aten.any.dim(%x, 1) : (i8[2, 3]) -> i1[2]"),
        "compare it with 0 first",
    ),
    "a product of integers": (
        reductions,
        ("%x: i64[2, 3]", "%y = aten.prod.dim_int(%x, 1) : (i64[2, 3]) -> i64[2]"),
        "reduces int64 to int64",
    ),
    "a product in another type": (
        reductions,
        ("%x: f16[2, 3]", "%y = aten.prod.dim_int(%x, 1, dtype=f32) : (f16[2, 3]) -> f32[2]"),
        "reduces float16 to float32",
    ),
    "an angle of two types": (
        curves,
        (
            "%x: f32[3], %z: f16[3]",
            "%y = aten.atan2.default(%x, %z) : (f32[3], f16[3]) -> f32[3]",
        ),
        "operands and result have several dtypes",
    ),
    "a running sum in another type": (
        reductions,
        ("%x: f16[3]", "%y = aten.cumsum.default(%x, 0, dtype=f32) : (f16[3]) -> f32[3]"),
        "it sums float16 to float32",
    ),
    "a running sum of unsigned integers": (
        reductions,
        ("%x: ui8[3]", "%y = aten.cumsum.default(%x, 0) : (ui8[3]) -> i64[3]"),
        "TOSA has no element type uint8",
    ),
    "a running sum of one number": (
        reductions,
        ("%x: f32[]", "%y = aten.cumsum.default(%x, 0) : (f32[]) -> f32[]"),
        "a scalar, which has no axis",
    ),
    "a divisor that is a tensor": (
        discrete,
        (
            "%x: f32[3], %z: f32[3]",
            "%y = aten.fmod.Tensor(%x, %z) : (f32[3], f32[3]) -> f32[3]",
        ),
        "known only at run time",
    ),
    "a divisor that is a size": (
        discrete,
        ("%x: f32[s0, 3]", SIZE, f"%y = aten.remainder.Scalar(%x, %n) : {ROWS} -> f32[s0, 3]"),
        "known only at run time",
    ),
    "a divisor that is no power of two": (
        discrete,
        ("%x: f32[3]", "%y = aten.remainder.Scalar(%x, 3.0) : (f32[3]) -> f32[3]"),
        "is no power of two",
    ),
    "a divisor next to the smallest": (
        discrete,
        (
            "%x: f32[3]",
            f"%y = aten.fmod.Scalar(%x, {2.0**-61!r}) : (f32[3]) -> f32[3]",
        ),
        "is no power of two",
    ),
    "the larger of two types": (
        elementwise,
        ("%x: f32[3], %z: f16[3]", "%y = aten.fmax.default(%x, %z) : (f32[3], f16[3]) -> f32[3]"),
        "several dtypes",
    ),
    "the larger of integers": (
        elementwise,
        ("%x: i32[3], %z: i32[3]", "%y = aten.fmin.default(%x, %z) : (i32[3], i32[3]) -> i32[3]"),
        "TOSA has no operator",
    ),
    "a slope that is a size": (
        functions,
        ("%x: f32[s0, 3]", SIZE, f"%y = aten.leaky_relu.default(%x, %n) : {ROWS} -> f32[s0, 3]"),
        "negative_slope is known only at run time",
    ),
    "a truth beside 2": (
        discrete,
        ("%x: i1[3]", "%y = aten.eq.Scalar(%x, 2) : (i1[3]) -> i1[3]"),
        "neither 0 nor 1",
    ),
    "the truth of bytes": (
        discrete,
        ("%x: i8[3]", "%y = aten.logical_not.default(%x) : (i8[3]) -> i1[3]"),
        "TOSA compares no int8",
    ),
    "bits that become wider": (
        discrete,
        (
            "%x: i32[3], %z: i64[3]",
            "%y = aten.bitwise_and.Tensor(%x, %z) : (i32[3], i64[3]) -> i64[3]",
        ),
        "",
    ),
    "bits of two types": (
        discrete,
        (
            "%x: i8[3], %z: i32[3]",
            "%y = aten.bitwise_and.Tensor(%x, %z) : (i8[3], i32[3]) -> i32[3]",
        ),
        "several dtypes",
    ),
    "a bit beyond int32": (
        discrete,
        ("%x: i32[3]", f"%y = aten.bitwise_and.Scalar(%x, {1 << 31}) : (i32[3]) -> i32[3]"),
        "does not fit int32",
    ),
    "places that are a size": (
        discrete,
        (
            "%x: f32[s0, 3], %z: i32[3]",
            SIZE,
            "%y = aten.bitwise_left_shift.Tensor_Scalar(%z, %n) :"
            ' (i32[3], !stepwell.int<"s0">) -> i32[3]',
        ),
        "known only at run time",
    ),
    "places beyond int32": (
        discrete,
        (
            "%x: i32[3]",
            f"%y = aten.bitwise_left_shift.Tensor_Scalar(%x, {1 << 31}) : (i32[3]) -> i32[3]",
        ),
        "exceeds the 32 bits",
    ),
    "a float over integers": (
        elementwise,
        ("%x: f32[3], %z: i32[3]", "%y = aten.div.Tensor(%x, %z) : (f32[3], i32[3]) -> f32[3]"),
        "integer division",
    ),
    "a number times alpha": (
        elementwise,
        ("%x: i32[3]", "%y = aten.add.Scalar(%x, 2, 3) : (i32[3]) -> i32[3]"),
        "alpha is 3",
    ),
    "a value that is a size": (
        factories,
        (
            "%x: f32[s0, 3]",
            SIZE,
            '%y = aten.full.default([%n], %n) : (!stepwell.int<"s0">, !stepwell.int<"s0">) -> i64[s0]',
        ),
        "known only at run time",
    ),
    "zeros of a known size": (
        factories,
        ("%x: f32[2]", "%y = aten.zeros_like.default(%x) : (f32[2]) -> f32[2]"),
        "",
    ),
    "a sum whose axes are not listed": (
        reductions,
        ("%x: f32[2]", "%y = aten.sum.default(%x) : (f32[2]) -> f32[]"),
        "not listed",
    ),
    "a running sum of integers in floats": (
        reductions,
        ("%x: i64[2]", "%y = aten.cumsum.default(%x, 0, dtype=f32) : (i64[2]) -> f32[2]"),
        "it sums int64 to float32",
    ),
    "a sum of fp8": (
        reductions,
        (
            "%x: f8E4M3FN[2, 3]",
            "%y = aten.sum.dim_IntList(%x, [0], dtype=i64) : (f8E4M3FN[2, 3]) -> i64[3]",
        ),
        "does not compute with float8_e4m3fn",
    ),
    "an image by another scale": (
        resizing,
        (
            "%x: f32[1, 2, 3, 3]",
            "%y = aten.upsample_nearest2d.default(%x, [6, 6], 1.0, 2.0) :"
            " (f32[1, 2, 3, 3]) -> f32[1, 2, 6, 6]",
        ),
        "3 elements by a scale of 1.0 are not 6",
    ),
    "a transform in double precision": (
        transforms,
        ("%x: f64[3, 8]", f"{FOURIER} : (f64[3, 8]) -> tensor<3x5xcomplex<f64>>"),
        "of single precision",
    ),
    "a transform of many rows": (
        transforms,
        (
            "%x: f32[s0, 8]",
            f'{FOURIER} : (f32[s0, 8]) -> tensor<?x5xcomplex<f32>, #stepwell.shape<["s0", 5]>>',
        ),
        "symbolic",
    ),
    "a transform along no axis": (
        transforms,
        (
            "%x: tensor<3xcomplex<f32>>",
            "%y = aten._fft_c2c.default(%x, [], 0, true) :"
            " (tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>>",
        ),
        "no axis is transformed",
    ),
    "a remainder of floats as a quotient": (
        step(discrete.whole_division),
        ("%x: f32[4]", "%y = aten.remainder.Scalar(%x, 2.0) : (f32[4]) -> f32[4]"),
        "",
    ),
    "a running sum of 16 bits": (
        reductions,
        ("%x: i16[2]", "%y = aten.cumsum.default(%x, 0, dtype=i16) : (i16[2]) -> i16[2]"),
        "it sums int16 to int16",
    ),
}

NOT_RUN: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "a whole divisor beyond int32": (
        discrete,
        ("%x: i32[3]", f"%y = aten.floor_divide.Scalar(%x, {1 << 40}) : (i32[3]) -> i32[3]"),
        "does not fit int32",
    ),
    "a transform of no rows": (
        transforms,
        ("%x: f32[0, 8]", f"{FOURIER} : (f32[0, 8]) -> tensor<0x5xcomplex<f32>>"),
        "there are no elements",
    ),
    "matrices that are no batches": (
        block_scaled,
        (
            "%x: f32[2, 32], %z: f32[3, 32]",
            '%y = stepwell_mx.matmul_t.default(%x, %z, "fp4e2m1", "fp4e2m1") :'
            " (f32[2, 32], f32[3, 32]) -> f32[3, 32, 32]",
        ),
        "two batches of matrices",
    ),
    "a cast to the scale of a block": (
        casts,
        (
            "%x: f32[3]",
            "%y = aten.to.dtype(%x, f8E8M0FNU) : (f32[3]) -> tensor<3xf8E8M0FNU>",
        ),
        "no cast from or to float8_e8m0fnu",
    ),
    "a triangle of many": (
        factories,
        (
            "%x: f32[65536, 65536]",
            "%y = aten.tril.default(%x) : (f32[65536, 65536]) -> f32[65536, 65536]",
        ),
        "a mask of 65536 × 65536 is above",
    ),
    "a count from a size": (
        factories,
        (
            "%x: f32[a], %z: f32[b]",
            '%m = aten.sym_size.int(%x, 0) : (f32[a]) -> !stepwell.int<"a">',
            '%n = aten.sym_size.int(%z, 0) : (f32[b]) -> !stepwell.int<"b">',
            '%y = aten.arange.start(%m, %n) : (!stepwell.int<"a">, !stepwell.int<"b">) -> i64[b - a]',
        ),
        "does not count by constant integers",
    ),
    "a transform scaled otherwise": (
        transforms,
        (
            "%x: f32[3, 8]",
            "%y = aten._fft_r2c.default(%x, [1], 3, true) : (f32[3, 8]) -> tensor<3x5xcomplex<f32>>",
        ),
        "the normalization is none",
    ),
    "an average whose last window hangs over an open edge": (
        pooling,
        (
            "%x: f32[1, 1, s, 4]",
            "%y = aten.avg_pool2d.default(%x, [2, 2], [2, 2], [0, 0], true) : (f32[1, 1, s, 4]) -> f32[1, 1, (s + 1)//2, 2]",
        ),
        "a symbolic size decides",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_has_no_form_for_every_number_is_left(refused: Any, written: Any, name: str) -> None:
    rewrite, lines, reason = CASES[name]
    refused(written(*lines), rewrite, reason)


@pytest.mark.parametrize("name", NOT_RUN)
def test_what_is_not_run_is_left(left: Any, written: Any, name: str) -> None:
    rewrite, lines, reason = NOT_RUN[name]
    left(written(*lines), rewrite, reason)


def test_a_long_transform_needs_the_extension(asked: Any, written: Any) -> None:
    of = "tensor<4096xcomplex<f32>>"
    text = written(f"%x: {of}", f"%y = aten._fft_c2c.default(%x, [0], 0, true) : ({of}) -> {of}")
    found = asked(text, transforms, "tosa-1.0+fp")
    assert found == (0, ["a transform of 4096 points needs the extension fft"])
    assert asked(text, transforms, "tosa-1.0+fp+fft") == (1, [])
