"""Which casts between reals and integers TOSA has no operators for, each with its reason."""

from typing import Any

import pytest

from stepwell.translate.lowerings.tosa import borders

OF_DOUBLES = "tensor<3x!quant.uniform<i8:f64, 0.5>>"
ALONG = "tensor<2x3x!quant.uniform<i8:f32:0, {0.5:1, 0.25:2}>>"
EMPTY = "tensor<0x3x!quant.uniform<i8:f32, 0.5>>"

CASES: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "no elements": (
        borders,
        ("%x: f32[0, 3]", f"%y = quant.qcast %x : f32[0, 3] to {EMPTY}"),
        "no empty tensors",
    ),
    "doubles": (
        borders,
        ("%x: tensor<3xf64>", f"%y = quant.qcast %x : tensor<3xf64> to {OF_DOUBLES}"),
        "TOSA has no element type float64",
    ),
    "unsigned integers": (
        borders,
        ("%x: f32[3]", "%y = quant.qcast %x : f32[3] to tensor<3x!quant.uniform<u8:f32, 0.5>>"),
        "TOSA has no uint8",
    ),
    "integers of 32 bits": (
        borders,
        ("%x: f32[3]", "%y = quant.qcast %x : f32[3] to i32<0.5>[3]"),
        "activations are int32",
    ),
    "a zero point of 16 bits": (
        borders,
        ("%x: f32[3]", "%y = quant.qcast %x : f32[3] to i16<0.5:3>[3]"),
        "zero points for 8-bit integers only",
    ),
    "zero points along an axis": (
        borders,
        ("%x: f32[2, 3]", f"%y = quant.qcast %x : f32[2, 3] to {ALONG}"),
        "one zero point",
    ),
    "unsigned integers as reals": (
        borders,
        (
            "%x: tensor<3x!quant.uniform<u8:f32, 0.5>>",
            "%y = quant.dcast %x : tensor<3x!quant.uniform<u8:f32, 0.5>> to f32[3]",
        ),
        "TOSA has no uint8",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_tosa_does_not_quantize_is_left(refused: Any, written: Any, name: str) -> None:
    rewrite, lines, reason = CASES[name]
    refused(written(*lines), rewrite, reason)


TAKEN = {
    "a zero point": "tensor<2x3x!quant.uniform<i8:f32, 0.1:-5>>",
    "a narrow range": "tensor<2x3x!quant.uniform<i8<-7:7>:f32, 0.1:2>>",
    "a scale of one": "tensor<2x3x!quant.uniform<i8:f32, 1.0>>",
    "16 bits": "tensor<2x3x!quant.uniform<i16:f32, 0.001>>",
    "scales along an axis": "tensor<2x3x!quant.uniform<i8:f32:0, {0.5, 0.25}>>",
    "halves": "tensor<2x3x!quant.uniform<i8:f16, 0.1:3>>",
}


@pytest.mark.parametrize("name", TAKEN)
def test_reals_of_the_integers_are_the_same_to_the_bit(apply: Any, name: str) -> None:
    held = TAKEN[name]
    reals = "tensor<2x3xf16>" if "f16" in held else "tensor<2x3xf32>"
    text = (
        f"func.func @forward(%x: {reals}) -> {reals} {{\n"
        f"  %q = quant.qcast %x : {reals} to {held}\n"
        f"  %y = quant.dcast %q : {held} to {reals}\n"
        f"  func.return %y : {reals}\n}}\n"
    )
    done = apply(text, *(rule() for rule in borders.RULES))
    assert done.count == 2 and not any(name.startswith("quant.q") for name in done.ops())


def test_zero_points_along_an_axis_are_subtracted(apply: Any) -> None:
    text = (
        f"func.func @forward(%x: {ALONG}) -> tensor<2x3xf32> {{\n"
        f"  %y = quant.dcast %x : {ALONG} to tensor<2x3xf32>\n"
        "  func.return %y : tensor<2x3xf32>\n}\n"
    )
    assert "tosa.sub" in apply(text, *(rule() for rule in borders.RULES)).ops()
