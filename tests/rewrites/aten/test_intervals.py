"""Intervals hold for whatever the inputs are; nothing is assumed of them."""

from math import inf
from typing import Any

import pytest

from stepwell.ir.program import Program
from stepwell.ir.syntax.text import parse_module
from stepwell.translate.range_analysis import interval, is_away_from_zero, is_bounded, is_never_nan

F = "tensor<3xf32>"


def value(method: Any, *lines: str) -> Any:
    program = Program(parse_module(method(f"%x: {F}", *lines, gives=F)))
    return program.method().body.block.last_op.operands[0], program


@pytest.mark.parametrize(
    ("line", "away", "bounded", "known"),
    [
        (f"%y = aten.sigmoid.default(%x) : ({F}) -> {F}", False, True, False),
        (f"%y = aten.exp.default(%x) : ({F}) -> {F}", False, False, False),
        (f"%y = aten.clamp.default(%x, 0.5, 2.0) : ({F}) -> {F}", True, True, False),
        (f"%y = aten.clamp.default(%x, 1.0e-40, 2.0) : ({F}) -> {F}", False, True, False),
        (f"%y = aten.neg.default(%x) : ({F}) -> {F}", False, False, False),
    ],
)
def test_one_op(method: Any, line: str, away: bool, bounded: bool, known: bool) -> None:
    asked = value(method, line)
    found = tuple(bool(of(*asked)) for of in (is_away_from_zero, is_bounded, is_never_nan))
    assert found == (away, bounded, known)


def test_a_square_plus_a_number_is_away_from_zero_and_may_be_infinite(method: Any) -> None:
    asked = value(
        method,
        f"%s = aten.mul.Tensor(%x, %x) : ({F}, {F}) -> {F}",
        f"%y = aten.add.Scalar(%s, 1.0e-05) : ({F}) -> {F}",
    )
    assert is_away_from_zero(*asked) and not is_bounded(*asked)


def test_what_overflows_is_not_bounded(method: Any) -> None:
    asked = value(
        method,
        f"%s = aten.clamp.default(%x, 0.0, 1.0e+30) : ({F}) -> {F}",
        f"%y = aten.mul.Tensor(%s, %s) : ({F}, {F}) -> {F}",
    )
    assert not is_bounded(*asked)


SIGMOID = f"%s = aten.sigmoid.default(%x) : ({F}) -> {F}"
TRUTHS = f"%t = aten.gt.Scalar(%x, 0.0) : ({F}) -> tensor<3xi1>"


LARGEST = (2 - 2.0**-23) * 2.0**127


def limited_twice(least: float) -> tuple[str, ...]:
    return (
        f"%s = aten.clamp.default(%x, {least}, 0.0) : ({F}) -> {F}",
        f"%t = aten.clamp.default(%x, {-LARGEST}, 0.0) : ({F}) -> {F}",
        f"%y = aten.add.Tensor(%s, %t) : ({F}, {F}) -> {F}",
    )


@pytest.mark.parametrize(
    ("lines", "low", "high"),
    [
        ((SIGMOID, TRUTHS, f"%y = aten.masked_fill.Scalar(%s, %t, -inf) : ({F}, tensor<3xi1>) -> {F}"),
         -inf, 0.5),  # It stays where x is no more than 0.
        ((SIGMOID, TRUTHS, f"%y = aten.where.self(%t, %s, %x) : (tensor<3xi1>, {F}, {F}) -> {F}"),
         -inf, 1.0),  # Where it is no more than 0.
        ((SIGMOID, f"%y = aten.constant_pad_nd.default(%s, [1, -1], 3.0) : ({F}) -> {F}"), 0.0, 3.0),
        ((SIGMOID, f"%o = aten.add.Scalar(%s, 1.0) : ({F}) -> {F}",
          f"%y = aten.log.default(%o) : ({F}) -> {F}"), 0.0, 0.69315),
        (limited_twice(-9.9e29), -LARGEST, 0.0),  # Half of its last place is 1.0e31.
        (limited_twice(-2.1e31), -inf, 0.0),
        ((SIGMOID, f"%y = aten.log.default(%s) : ({F}) -> {F}"), -inf, 0.0),
    ],
    ids=["a fill", "a choice", "a padding", "a logarithm", "the logarithm of 0", "what the least number absorbs",
         "what it does not"],
)  # fmt: skip
def test_both_ends(method: Any, lines: tuple[str, ...], low: float, high: float) -> None:
    found = interval(*value(method, *lines))
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


X = "tensor<2x4xf32>"
NORM = f"%n = aten.layer_norm.default(%x, [4]) : ({X}) -> {X}"
ROW = "tensor<2x1xf32>"
ROOT_MEAN = (
    f"%q = aten.mul.Tensor(%x, %x) : ({X}, {X}) -> {X}",
    f"%m = aten.mean.dim(%q, [-1], true) : ({X}) -> {ROW}",
    f"%s = aten.add.Scalar(%m, EPSILON) : ({ROW}) -> {ROW}",
    f"%r = aten.rsqrt.default(%s) : ({ROW}) -> {ROW}",
    f"%n = aten.mul.Tensor(%OF, %r) : ({X}, {ROW}) -> {X}",
)


@pytest.mark.parametrize(
    ("lines", "bounded"),
    [
        ((NORM,), True),
        ((NORM.replace("[4]", "[4], none, none, 0.0"),), False),
        (ROOT_MEAN, True),
        (tuple(line.replace("EPSILON", "0.0") for line in ROOT_MEAN), False),
        (tuple(line.replace("%OF", "%z") for line in ROOT_MEAN), False),  # Another's norm.
    ],
)
def test_a_norm_bounds_what_it_reads(method: Any, lines: tuple[str, ...], bounded: bool) -> None:
    body = [line.replace("EPSILON", "1.0e-05").replace("%OF", "%x") for line in lines]
    body.append(f"%y = aten.neg.default(%n) : ({X}) -> {X}")
    text = method(f"%x: {X}, %z: {X}", *body, gives=X)
    program = Program(parse_module(text))
    returned = program.method().body.block.last_op
    assert returned is not None
    assert bool(is_bounded(returned.operands[0], program)) == bounded


def test_parts_of_a_sum_are_at_most_one(method: Any) -> None:
    found, program = value(
        method,
        f"%s = aten.sigmoid.default(%x) : ({F}) -> {F}",
        f"%t = aten.sum.dim_IntList(%s, [0], true) : ({F}) -> tensor<1xf32>",
        "%a = aten.add.Scalar(%t, 1.0e-20) : (tensor<1xf32>) -> tensor<1xf32>",
        f"%y = aten.div.Tensor(%s, %a) : ({F}, tensor<1xf32>) -> {F}",
    )
    assert is_bounded(found, program) and not is_never_nan(found, program)


def test_parts_of_a_sum_that_may_cancel_are_not_bounded(method: Any) -> None:
    asked = value(
        method,
        f"%s = aten.tanh.default(%x) : ({F}) -> {F}",
        f"%t = aten.sum.dim_IntList(%s, [0], true) : ({F}) -> tensor<1xf32>",
        f"%y = aten.div.Tensor(%s, %t) : ({F}, tensor<1xf32>) -> {F}",
    )
    assert not is_bounded(*asked)
