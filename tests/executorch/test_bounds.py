"""Upper bounds of symbolic dimensions are reached or above, and never come from running text."""

import itertools

import pytest

from stepwell.backends.executorch.bounds import upper_bound
from stepwell.ir.diagnostics import UnsupportedError

_RANGES = {"s0": (1, 12), "s1": (0, 7), "u0": (0, (1 << 63) - 2)}
"""The last one is as torch writes what no bound is known of."""


@pytest.mark.parametrize(
    "expression",
    [
        "s0",
        "2*s0 + 1",
        "s0*s1",
        "s0**2 - 3*s1",
        "Max(1, s0 - 4)",
        "Min(s0, s1)",
        "s0//2",
        "((s0 + 3)//4)*4",
        "FloorDiv(s0*s1, 3)",
        "CeilDiv(s0, 5)",
        "Mod(s0, 5)",
        "CeilToInt(IntTrueDiv(s0, 3))",
        "-s1 + 20",
    ],
)
def test_the_bound_is_no_smaller_than_any_value(expression: str) -> None:
    functions = {
        "Max": max,
        "Min": min,
        "FloorDiv": lambda a, b: a // b,
        "CeilDiv": lambda a, b: -(-a // b),
        "Mod": lambda a, b: a % b,
        "IntTrueDiv": lambda a, b: a / b,
        "CeilToInt": lambda a: int(-(-a // 1)),
    }
    values = [
        eval(expression, {**functions, "s0": s0, "s1": s1})
        for s0, s1 in itertools.product(range(1, 13), range(8))
    ]
    assert max(values) <= upper_bound(expression, _RANGES) <= max(0, max(values)) + 21


def test_a_bound_that_is_monotone_in_each_symbol_is_exact() -> None:
    assert upper_bound("2*s0 + s1 - 1", _RANGES) == 30


@pytest.mark.parametrize(
    "expression", ["s9", "s0 + s9", "s0//s1", "s0//(s1 - 3)", "100 - (s1 - 4)**2", "u0"]
)
def test_what_has_no_bound_is_refused(expression: str) -> None:
    with pytest.raises(UnsupportedError):
        upper_bound(expression, _RANGES)


@pytest.mark.parametrize("text", ["__import__('os').getpid()", "s0.real", "[1][0]", "(", "f(s0)"])
def test_text_that_is_no_arithmetic_is_refused_and_not_run(text: str) -> None:
    with pytest.raises(UnsupportedError):
        upper_bound(text, _RANGES)
