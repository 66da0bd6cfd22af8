"""Intervals hold for whatever the inputs are; nothing is assumed of them."""

from math import inf
from typing import Any

import pytest
from rewrite_runs import program_of

from stepwell.translate.range_analysis import interval, is_away_from_zero, is_bounded, is_never_nan


def value(text: str) -> Any:
    program = program_of(text)
    return program.method().body.block.last_op.operands[0], program


@pytest.mark.parametrize(
    ("call", "away", "bounded"),
    [
        ("sigmoid.default(%x: f32[3])", False, True),
        ("exp.default(%x: f32[3])", False, False),
        ("clamp.default(%x: f32[3], 0.5, 2.0)", True, True),
        ("clamp.default(%x: f32[3], 1.0e-40, 2.0)", False, True),
        ("neg.default(%x: f32[3])", False, False),
    ],
)
def test_one_op(call: str, away: bool, bounded: bool) -> None:
    asked = value(f"%y = aten.{call}")
    found = tuple(bool(of(*asked)) for of in (is_away_from_zero, is_bounded, is_never_nan))
    assert found == (away, bounded, False)


def test_a_square_plus_a_number_is_away_from_zero_and_may_be_infinite() -> None:
    asked = value("%s = aten.mul.Tensor(%x: f32[3], %x); %y = aten.add.Scalar(%s, 1.0e-05)")
    assert is_away_from_zero(*asked) and not is_bounded(*asked)


LARGEST = (2 - 2.0**-23) * 2.0**127
SIGMOID = "%s = aten.sigmoid.default(%x: f32[3])"
TRUTHS = "%t = aten.gt.Scalar(%x, 0.0)"


def limited_twice(least: float) -> str:
    return f"""
        %s = aten.clamp.default(%x: f32[3], {least}, 0.0)
        %t = aten.clamp.default(%x, {-LARGEST}, 0.0); %y = aten.add.Tensor(%s, %t)
    """


POOLED = """
    %s = aten.sigmoid.default(%x: f32[1, 1, 2, 2])
    %y = aten.max_pool2d.default(%s, [2, 2], [1, 1], [1, 1], {})
"""
BOTH_ENDS: dict[str, tuple[str, float, float]] = {
    "a fill": (  # It stays where x is no more than 0.
        f"{SIGMOID}; {TRUTHS}; %y = aten.masked_fill.Scalar(%s, %t, -inf)", -inf, 0.5,
    ),
    "a choice": (f"{SIGMOID}; {TRUTHS}; %y = aten.where.self(%t, %s, %x)", -inf, 1.0),
    "a padding": (f"{SIGMOID}; %y = aten.constant_pad_nd.default(%s, [1, -1], 3.0)", 0.0, 3.0),
    "a logarithm": (
        f"{SIGMOID}; %o = aten.add.Scalar(%s, 1.0); %y = aten.log.default(%o)", 0.0, 0.69315,
    ),
    "the logarithm of 0": (f"{SIGMOID}; %y = aten.log.default(%s)", -inf, 0.0),
    "a window": (POOLED.format("[1, 1]"), 0.0, 1.0),
    "a window of padding alone": (POOLED.format("[3, 3]"), -inf, inf),
    # Half of its last place is 1.0e31.
    "what the least number absorbs": (limited_twice(-9.9e29), -LARGEST, 0.0),
    "what it does not absorb": (limited_twice(-2.1e31), -inf, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", BOTH_ENDS)
def test_both_ends(name: str) -> None:
    text, low, high = BOTH_ENDS[name]
    found = interval(*value(text))
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


def root_mean(epsilon: str = "1.0e-05", of: str = "%x") -> str:
    return f"""
        %q = aten.mul.Tensor(%x: f32[2, 4], %x); %m = aten.mean.dim(%q, [-1], true); %z: f32[2, 4]
        %s = aten.add.Scalar(%m, {epsilon}); %r = aten.rsqrt.default(%s)
        %n = aten.mul.Tensor({of}, %r); %y = aten.neg.default(%n)
    """


PARTS = "%t = aten.sum.dim_IntList(%s, [0], true)"


@pytest.mark.parametrize(
    ("text", "bounded"),
    [
        ("%n = aten.layer_norm.default(%x: f32[2, 4], [4]); %y = aten.neg.default(%n)", True),
        ("%y = aten.layer_norm.default(%x: f32[2, 4], [4], none, none, 0.0)", False),
        (root_mean(), True),
        (root_mean(epsilon="0.0"), False),
        (root_mean(of="%z"), False),  # Another's norm.
        ("%s = aten.clamp.default(%x: f32[3], 0.0, 1.0e+30); %y = aten.mul.Tensor(%s, %s)", False),
        (
            f"{SIGMOID}; {PARTS}; %a = aten.add.Scalar(%t, 1.0e-20); %y = aten.div.Tensor(%s, %a)",
            True,
        ),
        # Parts of a sum that may cancel.
        (f"%s = aten.tanh.default(%x: f32[3]); {PARTS}; %y = aten.div.Tensor(%s, %t)", False),
    ],
)
def test_norms_and_parts_of_a_sum_are_bounded(text: str, bounded: bool) -> None:
    found, program = value(text)
    assert bool(is_bounded(found, program)) == bounded
    assert not is_never_nan(found, program)
