"""What the lowerings of powers, folds and functions to TOSA leave alone, each with its reason."""

from typing import Any

import pytest

from stepwell.translate.lowerings.tosa import (
    curves,
    discrete,
    elementwise,
    functions,
    powers,
    reductions,
)

SIZE = '%n = aten.sym_size.int(%x, 0) : (f32[s0, 3]) -> !stepwell.int<"s0">'
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
}


@pytest.mark.parametrize("name", CASES)
def test_what_has_no_form_for_every_number_is_left(refused: Any, written: Any, name: str) -> None:
    rewrite, lines, reason = CASES[name]
    refused(written(*lines), rewrite, reason)
