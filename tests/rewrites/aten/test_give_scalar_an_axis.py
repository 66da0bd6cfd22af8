"""What runs along an axis of a tensor without axes runs along a single one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import export

import stepwell
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.rewriting.rewrite import run_rewrites
from stepwell.translate.decompositions import constants
from stepwell.translate.lowerings.lowering import step


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(*given)


ALONG: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: x.sum(0),
    "kept mean": lambda x: x.mean(-1, keepdim=True),
    "amax": lambda x: x.amax((0,)),
    "maximum with index": lambda x: x.max(0).values,
    "deviation": lambda x: x.std(0, unbiased=False),
    "softmax": lambda x: x.softmax(0),
    "running sum": lambda x: x.cumsum(0),
    "norm": lambda x: F.normalize(x, dim=0),
    "logsumexp": lambda x: x.logsumexp(0),
    "flip": lambda x: x.flip(0),
    "selection": lambda x: x.index_select(0, torch.tensor([0])),
    "gather": lambda x: x.gather(0, torch.tensor(0)),
    "windows": lambda x: x.unfold(0, 1, 1),
    "similarity": lambda x: F.cosine_similarity(x, x * 2, dim=0),
}


@pytest.mark.parametrize("target", ["xnnpack", "tosa-1.0+fp"])
@pytest.mark.parametrize("along", ALONG)
def test_an_op_along_the_axis_of_a_scalar_runs_or_is_refused(along: str, target: str) -> None:
    module, x = Function(ALONG[along]), torch.tensor(1.5)
    exported = export(module, (x,))
    try:
        found = stepwell.lower(exported, target).run(x)[0]
    except UnsupportedError:
        assert target != "xnnpack"
        return
    torch.testing.assert_close(found, module(x))


def test_two_scalars_of_doubles_do_not_end_the_process() -> None:
    x = torch.tensor(1.5, dtype=torch.float64)
    module = Function(lambda a, b: F.cosine_similarity(a, b, dim=0))
    found = stepwell.lower(export(module, (x, -x)), "xnnpack").run(x, -x)[0]
    torch.testing.assert_close(found, module(x, -x))


def test_a_tensor_with_axes_keeps_them() -> None:
    exported = export(Function(lambda x: x.cumsum(0)), (torch.ones(1),))
    program = stepwell.from_exported_program(exported)
    assert run_rewrites(program, [step(constants.give_scalar_an_axis)]) == 0
