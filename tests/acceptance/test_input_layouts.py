"""How an input lies in memory is the caller's affair, as for torch's own exported program."""

from collections.abc import Callable

import pytest
import torch
from eager import exported
from torch import Tensor

import stepwell
from stepwell.backends.executorch.running.runner import run_pte
from stepwell.ir.diagnostics import InputMismatch

X = torch.arange(48.0).reshape(2, 3, 2, 4).sin()

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "row-major": lambda x: x.contiguous(),
    "channels-last": lambda x: x.to(memory_format=torch.channels_last),
    "reversed": lambda x: x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    "with gaps": lambda x: torch.stack([x, x], -1)[..., 0],
    "with one memory for all": lambda x: x[:1].expand(2, -1, -1, -1),
}


def net(x: Tensor) -> tuple[Tensor, Tensor]:
    """Order matters to it: axes are told apart, and it flattens."""
    return x.softmax(1).flatten(1) * 3, x + 1


@pytest.mark.parametrize("target", [None, "xnnpack", "tosa-1.0+fp"])
@pytest.mark.parametrize("held", ["row-major", "channels-last", "reversed"])
def test_inputs_are_taken_in_any_strides(held: str, target: str | None) -> None:
    ep = exported(net, LAYOUTS[held](X))
    program = stepwell.from_exported_program(ep)
    runs: list[Callable[[Tensor], tuple[Tensor, ...]]] = [program.run]
    if target:
        lowered = stepwell.lower(program, target)
        runs = [lowered.program.run, lowered.run]
    for layout in LAYOUTS.values():
        x = layout(X)
        wanted = ep.module()(x)
        for run in runs:
            torch.testing.assert_close(run(x), tuple(wanted))


def test_what_is_empty_lies_in_every_order() -> None:
    x = torch.zeros(7, 0, 3).transpose(0, 2)
    ep = exported(net, x)
    lowered = stepwell.lower(ep, "xnnpack")
    for given in (x, x.contiguous()):
        for run in (lowered.program.run, lowered.run):
            assert [y.shape for y in run(given)] == [(3, 0), (3, 0, 7)]
    with pytest.raises(InputMismatch, match="dim order"):  # The runtime would end the process.
        run_pte(lowered.artifact, [x])
