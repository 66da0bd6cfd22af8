"""AskInputsForSizes: beyond its documented example, and what it leaves alone."""

from fractions import Fraction
from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.ir.dtypes import f32
from stepwell.ir.sizes.size_text import dim_of
from stepwell.ir.types import tensor
from stepwell.translate.rewrites.sizes.ask_inputs_for_sizes import AskInputsForSizes
from stepwell.translate.rewrites.sizes.sizes import can_compute, share_of

test_ask_inputs_for_sizes = cases(
    AskInputsForSizes,
    """
a size asked of an input -> unchanged
    %n = aten.sym_size.int(%x: f32[s, 4], 0)
    %y = aten.add.Tensor(%x, %n)
a size that is no share of an input's -> unchanged
    %z = aten.slice.Tensor(%x: f32[s, 4], 0, 1, 9223372036854775807, 1)
    %n = aten.sym_size.int(%z, 0)
    %y = aten.add.Tensor(%x, %n)
""",
)


def test_a_multiple_of_an_inputs_size_is_computed_from_it(apply: Any) -> None:
    done = apply(
        """
        %z = aten.cat.default([%x: f32[s, 4], %x], 0)
        %n = aten.sym_size.int(%z, 0)
        %y = aten.add.Tensor(%x, %n)
        """,
        AskInputsForSizes(),
    )
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
