"""The cost model: one file a kind of CPU; what the CPU of a program decides is said."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from eager import exported
from torch import nn
from xdsl.dialects.test import TestOp

import stepwell
from stepwell.cost_model.cost_differences import cost_differences
from stepwell.dialects.xnnpack import costs
from stepwell.dialects.xnnpack.cpus import CPUS
from stepwell.ir.context import Context
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.work import operations


def depthwise(channels: int, size: int) -> torch.export.ExportedProgram:
    """A window of 49 taps: parts of it cost less on any CPU but for the smallest images."""
    layer = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
    return exported(layer, torch.randn(1, channels, size, size))


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


@pytest.mark.parametrize("cpu", [None, *CPUS])
def test_every_cpu_that_may_be_named_has_costs(cpu: str | None) -> None:
    found = costs.costs_of(Context(options={"cpu": cpu}))
    is_arm = cpu is not None and not cpu.startswith("x86-64")
    assert found.machine.endswith("not measured") == is_arm


def test_without_a_cpu_the_form_that_loses_least_is_chosen() -> None:
    """Twice as slow on one CPU is worse than a tenth on another, whatever their own speeds are."""
    wide, narrow = (costs.load(costs.KIND_OF[cpu]).machine for cpu in costs.ANY)
    times = {wide: {"a": 1.0, "b": 1.1}, narrow: {"a": 40.0, "b": 20.0}}
    chosen: dict[str | None, str] = {}
    for cpu in (None, "x86-64", *costs.ANY):
        context = Context(options={"cpu": cpu})
        op = TestOp()
        chosen[cpu] = costs.choose(context, "step", op, lambda table: times[table.machine])
        losses = dict(zip(costs.ANY, [pytest.approx(0.1), 0.0], strict=True))
        lost = {} if cpu in costs.ANY else losses
        assert context.losses.get(("step", op), {}) == lost
    assert [*chosen.values()] == ["b", "b", "a", "b"]


def test_the_report_says_which_cpu_would_gain() -> None:
    program = exported(nn.Conv2d(64, 64, 3, padding=1), torch.randn(1, 64, 56, 56))
    found = {
        cpu: [hint.option for hint in stepwell.lower(program, "xnnpack", cpu=cpu).report.hints]
        for cpu in (None, *costs.ANY)
    }
    assert "cpu='x86-64-avx512'" in found[None]
    assert not any("cpu=" in option for cpu in costs.ANY for option in found[cpu])


def test_costs_are_the_lowerings_own() -> None:
    """A lowering for another CPU in between changes nothing."""
    program = depthwise(40, 14)
    texts = [
        str(stepwell.lower(program, "xnnpack", cpu=cpu).program)
        for cpu in (None, "cortex-a53", None, "x86-64")
    ]
    assert texts[0] == texts[2] == texts[3]


def test_what_two_cpus_decide_differently_is_listed_with_its_gain() -> None:
    program = stepwell.from_exported_program(depthwise(64, 7))
    found = cost_differences(program, ("x86-64", "cortex-a76"))
    assert found.asked[0] == found.asked[1] >= 1
    for flipped in found.flipped:
        assert flipped.gain is not None and flipped.gain >= 1
        assert "→" in str(flipped)
    same = cost_differences(program, (None, "x86-64"))
    assert (same.flipped, dict(same.nodes)) == ((), {})
    assert "0 differ" in str(same)


def test_a_cpu_that_is_not_known_is_refused() -> None:
    with pytest.raises(StepwellError, match="pentium"):
        stepwell.lower(exported(nn.ReLU(), torch.randn(2)), "xnnpack", cpu="pentium")


@pytest.mark.parametrize("target", ["xnnpack", "tosa-1.0+fp"])
def test_a_depthwise_convolution_multiplies_the_pixels_of_each_window(target: str) -> None:
    layer, x = nn.Conv2d(8, 8, (3, 2), groups=8), torch.randn(1, 8, 6, 5)
    program = stepwell.lower(exported(layer, x), target).program
    work = [operations(op) for op in program.module.walk() if "depthwise" in op.name]
    assert work == [layer(x).numel() * 6]
