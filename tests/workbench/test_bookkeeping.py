"""What counts as left to kernels: whatever reads an activation, and is no look-up by integers."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from rewrite_runs import program_of
from torch import Tensor, nn
from torch.export import export

import stepwell
from stepwell.ir.diagnostics import op_name
from stepwell.model_zoo.sweep.bookkeeping import counted

IDS = torch.tensor([[3, 1, 0]])
X = torch.randn(1, 3, 8)


@dataclass
class Case:
    forward: Callable[["Text", Tensor, Tensor], Tensor]
    ops: tuple[str, ...]


class Text(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 8)
        self.layer = nn.Linear(8, 8)
        self.case = case

    def forward(self, ids: Tensor, x: Tensor) -> Tensor:
        return self.case.forward(self, ids, x)


def mask_of(ids: Tensor) -> Tensor:
    return torch.where(ids != 0, 0.0, float("-inf"))


CASES = {
    "a row of a table": Case(lambda m, ids, x: m.layer(m.table(ids)) + x, ()),
    "a mask of ids": Case(lambda m, ids, x: (m.layer(x) + mask_of(ids)[..., None]), ()),
    "scaled integers": Case(lambda m, ids, x: m.layer(x) * (ids * 0.5)[..., None], ()),
    "a row where the ids end": Case(lambda m, ids, x: m.layer(x)[0, ids.argmax(-1)], ()),
    "a row where the activations say": Case(
        lambda m, ids, x: (y := m.layer(x))[0, y.sum(-1).argmax(-1)],
        ("aten.argmax.default", "aten.index.Tensor"),
    ),
    "a row of a table where the activations say": Case(
        lambda m, ids, x: m.table(m.layer(x).argmax(-1)),
        ("aten.argmax.default", "aten.embedding.default"),
    ),
    "a look-up that is chosen from": Case(
        lambda m, ids, x: m.layer(torch.where((ids == 1)[..., None], 2.0, m.table(ids)) + x),
        ("aten.where.self",),
    ),
    "elements, not rows": Case(
        lambda m, ids, x: m.layer(x)[0, :, ids[0]], ("aten.index.Tensor",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_an_op_counts_if_it_reads_an_activation_and_looks_nothing_up(case: Case):
    lowered = stepwell.lower(export(Text(case).eval(), (IDS, X)), "xnnpack")
    assert tuple(map(op_name, counted(lowered.program))) == case.ops


def test_floats_of_constants_alone_count():
    (op,) = counted(program_of("%x: f32[2]; %y = aten.exp.default(%w: weight f32[2])"))
    assert op_name(op) == "aten.exp.default"
