"""A function that nobody looked at ends the argument for any rank, however it counts axes."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("z3", reason="the extra `prove` is not installed")

from xdsl.ir import SSAValue

from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import dims
from stepwell.validation.rules import any_rank
from stepwell.validation.rules.any_rank import requirement
from stepwell.validation.rules.reviewed import table
from stepwell.validation.rules.verdicts import prove

from .doubtful import Doubtful
from .source_reader import EXCLUDED, made, of_source

_PERMUTE = "%y = aten.permute.default(%x, $p)"


def plain(order: Sequence[int]) -> list[int]:
    """The order from the front."""
    return [axis % len(order) for axis in order]


class Limits:
    MOST = 4


TABLE = {5: True, 6: True}


def by_attribute(order: Sequence[int]) -> list[int]:
    return plain(order)[::-1] if len(order) > Limits.MOST else plain(order)


def by_table(order: Sequence[int]) -> list[int]:
    return plain(order)[::-1] if len(order) in TABLE else plain(order)


def by_float(order: Sequence[int]) -> list[int]:
    return plain(order)[::-1] if len(order) > 4.0 else plain(order)


def by_pattern(order: Sequence[int]) -> list[int]:
    match plain(order):
        case [_, _, _, _, _, *_] as held:
            return held[::-1]
        case held:
            return held


def by_sum(order: Sequence[int]) -> list[int]:
    held = plain(order)
    return held[::-1] if sum(held) >= len(held) + len(held) else held


class Turned:
    def __call__(self, order: Sequence[int]) -> list[int]:
        return by_float(order)


ATTACKS: list[Callable[..., Any]] = [
    by_attribute, by_table, by_float, by_pattern, by_sum, Turned(), functools.cache(by_float),
    functools.partial(by_float),
]  # fmt: skip


@pytest.mark.parametrize("function", ATTACKS)
def test_a_function_that_counts_axes_in_any_way_is_of_no_other_rank(function: Any) -> None:
    row = Doubtful("ranks above 4", _PERMUTE, "%y = aten.permute.default(%x, turned($p))",
                   "for $p = [1, 2, 0], $x = [2, 3, 4]")  # fmt: skip
    rule: Any = row.rule(0, {"turned": function})
    assert requirement(rule, rule.rule.forms).problems


def is_cube(value: SSAValue) -> bool:
    """Whether all sizes are equal."""
    return all(size == dims(value.type)[0] for size in dims(value.type))


def disjoint(p: Sequence[int], q: Sequence[int], r: Sequence[int]) -> bool:
    """Whether each axis is moved by one of three orders at most."""
    orders = [plain(each) for each in (p, q, r)]
    return all(
        one[axis] == axis or other[axis] == axis
        for at, one in enumerate(orders)
        for other in orders[:at]
        for axis in range(len(one))
    )


@pytest.mark.slow
def test_an_input_that_is_read_in_several_orders_is_of_no_other_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With three orders that move different axes, both sides differ from rank 6 on."""
    monkeypatch.setattr(any_rank, "reading", of_source)
    before = """%q1 = aten.permute.default(%x, $q); %qr = aten.permute.default(%q1, $r);
        %p1 = aten.permute.default(%x, $p); %pr = aten.permute.default(%p1, $r);
        %pq = aten.permute.default(%p1, $q); %s1 = aten.logical_xor.default(%x, %qr);
        %s2 = aten.logical_xor.default(%pr, %pq); %y = aten.logical_xor.default(%s1, %s2)"""
    after = """%r1 = aten.permute.default(%x, $r); %pqr = aten.permute.default(%pq, $r);
        %t1 = aten.logical_xor.default(%pqr, %p1); %t2 = aten.logical_xor.default(%q1, %r1);
        %y = aten.logical_xor.default(%t1, %t2)"""
    row = Doubtful(
        "ranks above 4", " ".join(before.split()), " ".join(after.split()),
        "where is_cube(%x); where disjoint($p, $q, $r); "
        "for $p = [1, 0], $q = [0, 1], $r = [0, 1], $x = [2, 2]",
    )  # fmt: skip
    assert not prove(row.rule(0, {"is_cube": is_cube, "disjoint": disjoint})).argument


def test_a_condition_that_returns_a_refusal_refuses() -> None:
    def refusing(order: Sequence[int]) -> Refusal | bool:
        return Refusal("more than four axes") if len(order) > 4 else True

    row = Doubtful("right", _PERMUTE, "%y = %x", "where refusing($p); for $p = [0, 1], $x = [2, 3]")
    rule: Any = row.rule(0, {"refusing": refusing})
    from stepwell.validation.rules.instantiation import Statement

    given = {"p": [4, 3, 2, 1, 0], "x": [2, 3, 4, 5, 6]}
    assert Statement(rule, rule.rule.forms[0]).concrete(given) is None


def test_the_table_says_what_the_source_of_each_function_says() -> None:
    assert not EXCLUDED & {*table()}
    assert table() == made(), "python tools/reviewed_functions.py"
