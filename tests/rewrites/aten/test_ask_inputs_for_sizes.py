"""AskInputsForSizes: beyond its documented example, and what it leaves alone."""

from fractions import Fraction
from typing import Any

import pytest

from stepwell.ir.dtypes import f32
from stepwell.ir.sizes.size_text import dim_of
from stepwell.ir.types import tensor
from stepwell.translate.rewrites.sizes.ask_inputs_for_sizes import AskInputsForSizes
from stepwell.translate.rewrites.sizes.sizes import can_compute, share_of

X = 'tensor<?x4xf32, #stepwell.shape<["s", 4]>>'
TWICE = 'tensor<?x4xf32, #stepwell.shape<["2*s", 4]>>'
LESS = 'tensor<?x4xf32, #stepwell.shape<["s - 1", 4]>>'


@pytest.mark.parametrize(
    "lines",
    [
        [f'%n = aten.sym_size.int(%x, 0) : ({X}) -> !stepwell.int<"s">'],
        [
            f"%z = aten.slice.Tensor(%x, 0, 1, 9223372036854775807, 1) : ({X}) -> {LESS}",
            f'%n = aten.sym_size.int(%z, 0) : ({LESS}) -> !stepwell.int<"s - 1">',
        ],
    ],
    ids=["a size asked of an input", "a size that is no share of an input's"],
)
def test_it_leaves(lines: list[str], refused: Any, method: Any) -> None:
    last = f'%y = aten.add.Tensor(%x, %n) : ({X}, !stepwell.int<"{"s - 1" if len(lines) > 1 else "s"}">) -> {X}'
    refused(method(f"%x: {X}", *lines, last, gives=X), AskInputsForSizes())


def test_a_multiple_of_an_inputs_size_is_computed_from_it(apply: Any, method: Any) -> None:
    text = method(
        f"%x: {X}",
        f"%z = aten.cat.default([%x, %x], 0) : ({X}, {X}) -> {TWICE}",
        f'%n = aten.sym_size.int(%z, 0) : ({TWICE}) -> !stepwell.int<"2*s">',
        f'%y = aten.add.Tensor(%x, %n) : ({X}, !stepwell.int<"2*s">) -> {X}',
        gives=X,
    )
    done = apply(text, AskInputsForSizes())
    assert done.count == 1
    assert "sym.mul [#aten.dyn, 2" in str(done.program) and "aten.cat" not in str(done.program)


@pytest.mark.parametrize(
    ("wanted", "given", "share"),
    [
        ("8*s", "32*s", Fraction(1, 4)),
        ("6*s*t", "4*s*t", Fraction(3, 2)),
        (12, 8, Fraction(3, 2)),
        ("s + 1", "s", None),
        ("2*s + 2", "4*s + 2", None),
        ("s", "t", None),
        ("?", "s", None),
    ],
)
def test_the_share_of_a_size_holds_whatever_the_symbols_are(
    wanted: int | str, given: int | str, share: Fraction | None
) -> None:
    assert share_of(dim_of(str(wanted)), dim_of(str(given))) == share


@pytest.mark.parametrize(
    ("wanted", "held", "inputs", "is_computed"),
    [
        ("8*s + 1", "32*s", (), True),
        ("s*t", "s", ("t",), True),
        ("s*t", "s", (), False),
        ("s + t", "s*t", (), False),
    ],
)
def test_a_size_is_computed_from_shares_of_what_is_at_hand_and_of_inputs(
    wanted: str, held: str, inputs: tuple[str, ...], is_computed: bool
) -> None:
    asked = frozenset(map(dim_of, inputs))
    assert can_compute(dim_of(wanted), [tensor([held, 2], f32)], asked) == is_computed
