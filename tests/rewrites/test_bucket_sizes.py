"""A method for each upper bound of a dynamic size: shared weights, memory planned by bound."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import stepwell
from stepwell.cli.main import main
from stepwell.cost_model.budgets import arenas_of
from stepwell.ir.diagnostics import InputMismatch, StepwellError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(16, 512), nn.Linear(512, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(torch.tanh(self.wide(x)))


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def exported(net: nn.Module) -> Any:
    length = Dim("length", min=2, max=256)
    return torch.export.export(net, (torch.randn(1, 8, 16),), dynamic_shapes=({1: length},))


@pytest.mark.parametrize("target", ["xnnpack", "cortex-m55"])
def test_each_bound_has_a_method_with_memory_of_its_own_and_shared_weights(
    net: nn.Module, exported: Any, target: str
) -> None:
    whole = stepwell.lower(exported, target)
    lowered = stepwell.lower(exported, target, buckets=[256, 16, 64])
    assert list(lowered.program.methods) == ["forward_16", "forward_64", "forward_256"]
    pte = lowered.to_pte()
    assert len(pte) < 1.5 * len(whole.to_pte())
    planned = list(arenas_of(pte).values())
    assert planned[2] == arenas_of(whole.to_pte())["forward"]
    assert planned[0] * 12 < planned[2] and planned[1] * 3 < planned[2]
    for name, size in (("forward_16", 2), ("forward_16", 16), ("forward_64", 17)):
        x = torch.randn(1, size, 16)
        (result,) = stepwell.run_pte(pte, (x,), name)
        torch.testing.assert_close(result, net(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(InputMismatch, match="is 17, "):
        stepwell.run_pte(pte, (torch.randn(1, 17, 16),), "forward_16")


@pytest.mark.parametrize(
    ("buckets", "fact"),
    [
        ([16, 300], "bucket 300 is outside the range"),
        ({"length": [16]}, "no input has the symbolic size 'length'"),
        ({"s0": [4], "s1": [8]}, "buckets of 2 symbolic sizes"),
        ("16,many", "is no list of bounds"),
    ],
)
def test_bounds_that_a_program_does_not_have_are_errors(
    exported: Any, buckets: Any, fact: str
) -> None:
    with pytest.raises(StepwellError, match=fact):
        stepwell.lower(exported, "xnnpack", buckets=buckets)


def test_a_program_of_fixed_sizes_and_a_check_have_no_buckets(
    net: nn.Module, exported: Any
) -> None:
    fixed = torch.export.export(net, (torch.randn(1, 8, 16),))
    with pytest.raises(StepwellError, match="need a symbolic size, and the program has 0"):
        stepwell.lower(fixed, "xnnpack", buckets=[16])
    with pytest.raises(StepwellError, match="buckets= renames them"):
        stepwell.lower(exported, "xnnpack", buckets=[16], check=True)


def test_the_command_line_prints_the_memory_of_each_bound(
    exported: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.export.save(exported, tmp_path / "net.pt2")
    output = str(tmp_path / "net.pte")
    assert main(["lower", str(tmp_path / "net.pt2"), "--buckets", "16,64", "-o", output]) == 0
    printed = capsys.readouterr().out
    planned = arenas_of(Path(output).read_bytes())
    assert all(f"{name}: {count:,} bytes" in printed for name, count in planned.items())
