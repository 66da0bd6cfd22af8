"""A delegate in parts: as many as the weights ask for, the same numbers, nothing else outside."""

from typing import Any

import pytest
import torch
from torch import nn

import stepwell
from quantised import quantise
from stepwell.translate.rewrites.xnnpack.partition import PartitionXnnpack

LAYER = 4 * 64 * 64
"""Bytes of a layer's weight."""


def net(layers: int = 6) -> nn.Sequential:
    """Layers with something between them that is alive beside the stream."""
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(layers))
    ).eval()


def lowered(exported: Any, most: int | None) -> stepwell.Lowered:
    pipeline = stepwell.PIPELINES["xnnpack"].replace("partition-xnnpack", PartitionXnnpack(most))
    return stepwell.lower(exported, "xnnpack", pipeline)


@pytest.mark.parametrize(
    ("most", "parts"), [(None, 1), (LAYER, 6), (2 * LAYER, 3), (99 * LAYER, 1)]
)
@torch.no_grad()
def test_a_delegate_ends_where_it_holds_enough_weights(most: int | None, parts: int) -> None:
    module, x = net(), torch.randn(3, 64)
    made = lowered(torch.export.export(module, (x,)), most)
    assert made.report.delegates == parts and not made.report.outside
    (whole,) = lowered(torch.export.export(module, (x,)), None).run(x)
    torch.testing.assert_close(made.run(x)[0], whole)
    torch.testing.assert_close(interpreted(made, x), module(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
@torch.no_grad()
def test_integers_cross_as_they_are_stored_and_rows_with_scales_not_at_all(dynamic: bool) -> None:
    module, x = net(), torch.randn(3, 64)
    exported = quantise(module, (x,), per_channel=True, dynamic=dynamic)
    made = lowered(exported, 64 * 64)
    assert made.report.delegates > 1 and not made.report.outside
    (whole,) = lowered(exported, None).run(x)
    torch.testing.assert_close(made.run(x)[0], whole)


@torch.no_grad()
def test_sizes_may_be_symbolic() -> None:
    x = torch.randn(3, 64)
    batch = torch.export.Dim("batch", min=2, max=8)
    made = lowered(torch.export.export(net(), (x,), dynamic_shapes=({0: batch},)), LAYER)
    assert made.report.delegates == 6
    y = torch.randn(5, 64)
    torch.testing.assert_close(made.run(y)[0], interpreted(made, y), rtol=1e-5, atol=1e-5)


def interpreted(made: stepwell.Lowered, x: torch.Tensor) -> torch.Tensor:
    """What the interpreter makes of a program."""
    found = made.program.run(x)
    return found if isinstance(found, torch.Tensor) else found[0]
