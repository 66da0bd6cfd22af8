"""What a function reads of the number of axes is found in its source."""

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, cast

import pytest

from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.validation.rules.reviewed import Reading

from . import by_rank
from .source_reader import reading


def read(function: Callable[..., Any]) -> Reading:
    return reading({"it": cast(FunctionType, function)})


@pytest.mark.parametrize("name", ["composed", "from_front_all", "are_inverse"])
def test_a_function_that_composes_and_compares_orders_treats_ranks_alike(name: str) -> None:
    from stepwell.translate.rewrites.views import permutes

    function = getattr(permutes, name, None) or getattr(by_rank, name)
    found = read(function)
    assert (found.named, found.threshold, found.problems) == (0, 0, [])


@pytest.mark.parametrize(
    ("name", "front", "back", "threshold"),
    [
        ("turned_if_long", 0, 1, 4),
        ("turned_if_above_a_limit", 0, 1, 4),
        ("exchanged_behind", 5, 1, 0),
        ("has_the_axis", 5, 1, 0),
        ("are_few", 0, 0, 6),
        ("are_inverse_or_many", 0, 0, 4),
        ("twice_if_deep", 0, 0, 5),
        ("is_small", 6, 0, 0),
    ],
)
def test_a_literal_names_an_axis_or_is_a_threshold(
    name: str, front: int, back: int, threshold: int
) -> None:
    found = read(getattr(by_rank, name))
    assert (found.front, found.back, found.threshold) == (front, back, threshold)


def odd(order: Sequence[int]) -> bool:
    return len(order) % 2 == 1


def halved(order: Sequence[int]) -> list[int]:
    return list(order)[: len(order) // 2]


def measured(order: Sequence[int]) -> bool:
    return len(str(order)) > len("[0, 1, 2, 3]")


def squared(order: Sequence[int]) -> list[int]:
    return [order[order[at]] for at in range(len(order))]


def hashed(order: Sequence[int]) -> bool:
    return hash(tuple(order)) == hash(())


@pytest.mark.parametrize(
    "function", [odd, halved, measured, squared, hashed, by_rank.thirteenth_power]
)
def test_what_is_not_followed_is_a_problem(function: Callable[..., Any]) -> None:
    assert read(function).problems


def refusing(order: Sequence[int]) -> Refusal | None:
    if len(order) > 6:
        return Refusal("there are too many axes")
    return None


def deciding(order: Sequence[int]) -> list[int]:
    return list(order) if refusing(order) is None else []


def test_a_limit_of_axes_that_only_refuses_is_no_threshold() -> None:
    assert read(refusing).threshold == 0
    assert read(deciding).threshold == 6
