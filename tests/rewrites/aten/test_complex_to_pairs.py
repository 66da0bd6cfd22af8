"""Complex numbers that are not taken apart, each with its reason."""

from typing import Any

import pytest

from stepwell.translate.decompositions.aten import complex
from stepwell.translate.lowerings.lowering import step

ROWS = 'tensor<?x3xcomplex<f32>, #stepwell.shape<["s0", 3]>>'
TWICE = 'tensor<?x6xcomplex<f32>, #stepwell.shape<["s0", 6]>>'
REAL = 'tensor<?x3xf32, #stepwell.shape<["s0", 3]>>'
ONE = "tensor<1x3xcomplex<f32>>"
SIZE = '!stepwell.int<"s0">'

CASES: dict[str, tuple[str, str, str, str]] = {
    "doubles": (
        "%x: tensor<3xcomplex<f64>>",
        "%y = aten.abs.default(%x) : (tensor<3xcomplex<f64>>) -> tensor<3xf64>",
        "tensor<3xf64>",
        "of single precision",
    ),
    "rows repeated as often as is known at run time": (
        f"%x: {ONE}, %z: {REAL}",
        f"%n = aten.sym_size.int(%z, 0) : ({REAL}) -> {SIZE}\n  "
        f"%y = aten.expand.default(%x, [%n, 3]) : ({ONE}, {SIZE}) -> {ROWS}",
        ROWS,
        "repeated as often as is known only at run time",
    ),
    "open rows beside one another": (
        f"%x: {ROWS}",
        f"%y = aten.cat.default([%x, %x], 1) : ({ROWS}, {ROWS}) -> {TWICE}",
        TWICE,
        "the shape is symbolic",
    ),
    "real rows of run time": (
        f"%x: {REAL}",
        f"%y = aten._to_copy.default(%x, dtype=complex<f32>) : ({REAL}) -> {ROWS}",
        ROWS,
        "the shape is symbolic",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_complex_numbers_that_are_left(refused: Any, name: str) -> None:
    arguments, line, gives, reason = CASES[name]
    text = (
        f"func.func @forward({arguments}) -> {gives} {{\n  {line}\n  func.return %y : {gives}\n}}\n"
    )
    refused(text, step(complex.complex_to_pairs), reason)
