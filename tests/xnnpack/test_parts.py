"""A delegate in parts: as many as the weights ask for, the same numbers, nothing else outside."""

from typing import Any

import pytest
import torch
from eager import Function, assert_as_eager, assert_as_eager_within, exported, lower
from torch import nn

import stepwell
from quantized import quantize
from stepwell.dialects.xnnpack import DelegateOp
from stepwell.ir.core import WeightOp
from stepwell.ir.weight_bytes import dense_size
from stepwell.translate.rewrites.xnnpack.partitioning.partition import PartitionXnnpack

LAYER = 4 * 64 * 64
"""Bytes of a layer's weight."""


def net(layers: int = 6) -> nn.Sequential:
    """Layers with something between them that is alive beside the stream."""
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(layers))
    ).eval()


def lowered(program: Any, spares: int | None) -> stepwell.Lowered:
    pipeline = stepwell.PIPELINES["xnnpack"].replace("partition-xnnpack", PartitionXnnpack(spares))
    return stepwell.lower(program, "xnnpack", pipeline)


def weights(made: stepwell.Lowered) -> list[int]:
    """Layers whose weights each delegate packs."""
    delegates = [op for op in made.program.module.walk() if isinstance(op, DelegateOp)]
    held = [
        sum(dense_size(op.result.type) for op in one.block.ops if isinstance(op, WeightOp))
        for one in delegates
    ]
    return [round(size / LAYER) for size in held]


@pytest.mark.parametrize(
    ("spares", "parts"),
    [
        (None, [12]),
        (13 * LAYER, [12]),
        (4 * LAYER, [8, 4]),  # 24 layers at the peak become 16.
        (2 * LAYER, [6, 3, 3]),  # 12 · 8 / 7 at the most; 15 as weights fall.
    ],
)
@torch.no_grad()
def test_a_further_delegate_takes_so_much_off_the_peak(
    spares: int | None, parts: list[int]
) -> None:
    module, x = net(12), torch.randn(3, 64)
    made, whole = (lowered(exported(module, x), given) for given in (spares, None))
    assert weights(made) == parts and not made.report.outside
    torch.testing.assert_close(made.run(x), whole.run(x))
    assert_as_eager(made.program, module, x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
@torch.no_grad()
def test_integers_cross_as_they_are_stored_and_rows_with_scales_not_at_all(dynamic: bool) -> None:
    module, x = net(), torch.randn(3, 64)
    program = quantize(module, (x,), per_channel=True, dynamic=dynamic)
    made = lowered(program, LAYER // 8)
    assert made.report.delegates > 1 and not made.report.outside
    torch.testing.assert_close(made.run(x), lowered(program, None).run(x))


def test_sizes_may_be_symbolic() -> None:
    model, dynamic = net(), {0: torch.export.Dim("batch", min=2, max=8)}
    made = lowered(exported(model, torch.randn(3, 64), dynamic=dynamic), LAYER)
    assert made.report.delegates > 1
    assert_as_eager_within(made, model, (3, 64), dynamic, rtol=1e-5, atol=1e-5)


def test_parts_between_operators_count_together() -> None:
    """Stages are made one after another too: the last is small, and stays whole."""
    halves = Function(lambda x, first, last: last(torch.erf(first(x))), net(11), net(1))
    made = lowered(exported(halves, torch.randn(3, 64)), 4 * LAYER)
    assert weights(made) == [8, 3, 1]


@torch.no_grad()
def test_many_weights_are_several_delegates_unless_speed_is_all_that_counts() -> None:
    module, x = nn.Sequential(*(nn.Linear(512, 512) for _ in range(8))).eval(), torch.randn(2, 512)
    whole, shares = lower(module, x, optimize="speed"), lower(module, x)
    assert whole.report.delegates == 1 < shares.report.delegates
    assert (whole.report.cuts, shares.report.cuts) == (0, shares.report.delegates - 1)
    assert f"{shares.report.cuts} of them split off" in shares.report.text()
    assert torch.equal(whole.run(x)[0], shares.run(x)[0])


def test_an_op_whose_nodes_are_in_several_parts_is_left_to_no_kernel() -> None:
    wide, last = nn.Conv1d(128, 1024, 16, padding=8), nn.Conv1d(1024, 1024, 1)
    lines = nn.Sequential(wide, nn.ReLU(), last, nn.ReLU()).eval()
    found = stepwell.explain(exported(lines, torch.randn(1, 128, 24)), "xnnpack")
    assert any(", " in fate.where for fate in found.fates)
    assert found.outside == ()
