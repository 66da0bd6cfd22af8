"""The cost model: one file a kind of CPU, whole, and read by name."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from stepwell.dialects.xnnpack import costs
from stepwell.ir.diagnostics import StepwellError


@pytest.mark.parametrize("kind", costs.kinds())
def test_a_kind_of_cpu_has_every_cost_and_no_other(kind: str) -> None:
    held = json.loads((Path(costs.__file__).parent / f"{kind}.json").read_text())
    assert set(held) == {field.name for field in fields(costs.Costs)}
    found = costs.load(kind)
    numbers = [value for value in vars(found).values() if isinstance(value, float)]
    assert all(value > 0 for value in (*numbers, *found.depthwise))


@pytest.mark.parametrize("kind", costs.kinds())
def test_larger_windows_cost_no_less_and_each_kernel_less_than_none(kind: str) -> None:
    found = costs.load(kind)
    windows = [found.window(taps) for taps in range(1, 60)]
    assert windows == sorted(windows)
    assert all(found.window(most) < most * found.lone_tap for most in costs.TAPS)


def test_a_kind_that_was_never_measured_is_an_error_that_names_the_others() -> None:
    with pytest.raises(StepwellError, match=costs.DEFAULT):
        costs.load("abacus")
