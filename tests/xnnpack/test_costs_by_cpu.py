"""Costs of the CPU that a program is made for: what flips, and that it is said."""

import pytest
import torch
from torch import nn

import stepwell
from stepwell.cost_model.cost_differences import cost_differences
from stepwell.dialects.xnnpack import costs
from stepwell.dialects.xnnpack.cpus import CPUS
from stepwell.ir.context import Context


class Depthwise(nn.Module):
    """A window of 49 taps: parts of it cost less on any CPU but for the smallest images."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


@pytest.mark.parametrize("cpu", [None, *CPUS])
def test_every_cpu_that_may_be_named_has_costs(cpu: str | None) -> None:
    found = costs.costs_of(Context(options={"cpu": cpu}))
    is_arm = cpu is not None and cpu != "x86-64"
    assert found.machine.endswith("not measured") == is_arm


def test_costs_are_the_lowerings_own() -> None:
    """A lowering for another CPU in between changes nothing."""
    x = torch.randn(1, 40, 14, 14)
    program = torch.export.export(Depthwise(40).eval(), (x,))
    texts = [
        str(stepwell.lower(program, "xnnpack", cpu=cpu).program)
        for cpu in (None, "cortex-a53", None, "x86-64")
    ]
    assert texts[0] == texts[2] == texts[3]


def test_what_two_cpus_decide_differently_is_listed_with_its_gain() -> None:
    x = torch.randn(1, 64, 7, 7)
    program = torch.export.export(Depthwise(64).eval(), (x,))
    found = cost_differences(stepwell.from_exported_program(program), ("x86-64", "cortex-a76"))
    assert found.asked[0] == found.asked[1] >= 1
    for flipped in found.flipped:
        assert flipped.gain is not None and flipped.gain >= 1
        assert "→" in str(flipped)
    same = cost_differences(stepwell.from_exported_program(program), (None, "x86-64"))
    assert (same.flipped, dict(same.nodes)) == ((), {})
    assert "0 differ" in str(same)


def test_a_cpu_that_is_not_known_is_refused() -> None:
    program = torch.export.export(nn.ReLU(), (torch.randn(2),))
    with pytest.raises(stepwell.StepwellError, match="pentium"):
        stepwell.lower(program, "xnnpack", cpu="pentium")
