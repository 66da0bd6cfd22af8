"""Axioms about functions of real numbers, instantiated for the terms that occur."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations
from math import exp
from typing import Any

from stepwell.ir.dtypes import f64
from stepwell.validation.rules.reals import Reals
from stepwell.validation.rules.solver import z3

_MOST = 8
"""The number of applications of one function for which axioms are stated."""


def laws(domain: Reals) -> list[Any]:
    """Return the axioms of the functions that were applied."""
    for x, _ in list(domain.applied.get("tanh", {}).values()):
        domain.on_floats("exp", [z3.simplify(2 * x)], f64)
    found: list[Any] = []
    exps = list(domain.applied.get("exp", {}).values())[:_MOST]
    found += _of_exp(exps)
    for x, value in domain.applied.get("tanh", {}).values():
        power = domain.on_floats("exp", [z3.simplify(2 * x)], f64)
        found.append(value * (power + 1) == power - 1)
    for x, value in domain.applied.get("sqrt", {}).values():
        found += [z3.Implies(x >= 0, z3.And(value >= 0, value * value == x))]
        found += [z3.Implies(x > 0, value > 0)]
    for x, value in domain.applied.get("sign", {}).values():
        found.append(
            value == z3.If(x > 0, z3.RealVal(1), z3.If(x < 0, z3.RealVal(-1), z3.RealVal(0)))
        )
    found += _of_log(list(domain.applied.get("log", {}).values())[:_MOST], exps)
    return found


def _of_exp(exps: list[tuple[Any, Any]]) -> Iterator[Any]:
    for x, value in exps:
        yield value > 0
        yield z3.Implies(x == 0, value == 1)
        yield (x <= 0) == (value <= 1)
        yield value >= 1 + x
        for at in (20, 16):
            yield z3.Implies(x >= at, value > z3.Q(*(exp(at) * 0.9999999).as_integer_ratio()))
            yield z3.Implies(x <= -at, value < z3.Q(*(exp(-at) * 1.0000001).as_integer_ratio()))
    for (x, one), (y, other) in combinations(exps, 2):
        yield (x <= y) == (one <= other)
        yield z3.Implies(x == -y, one * other == 1)
        yield z3.Implies(x == 2 * y, one == other * other)
        yield z3.Implies(y == 2 * x, other == one * one)
    if len(exps) <= 5:
        for (x, a), (y, b), (s, c) in permutations(exps, 3):
            yield z3.Implies(s == x + y, c == a * b)


def _of_log(logs: list[tuple[Any, Any]], exps: list[tuple[Any, Any]]) -> Iterator[Any]:
    for x, value in logs:
        yield z3.Implies(x == 1, value == 0)
        yield z3.Implies(x > 1, value > 0)
        yield z3.Implies(x > 0, value <= x - 1)
        for at, power in exps:
            yield z3.Implies(x == power, value == at)
            yield z3.Implies(z3.And(x > 0, at == value), power == x)
            yield z3.Implies(z3.And(x > 0, at == 2 * value), power == x * x)
    for (x, one), (y, other) in permutations(logs, 2):
        yield z3.Implies(z3.And(x == y), one == other)
        for at, power in exps:
            yield z3.Implies(z3.And(y > 0, x == y * power), one == other + at)
