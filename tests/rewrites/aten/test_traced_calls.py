"""What is written down of an operator's own calls, and why some of them are not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.translate.rewrites.calls.recorded_calls import FusedLayerError
from stepwell.translate.rewrites.calls.traced_calls import INTO_ITSELF, trace


def fused(x: torch.Tensor) -> torch.Tensor:
    raise FusedLayerError("it is a layer of an engine's own")


def written(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.add.out(x, x, out=torch.empty_like(x))


def by_itself(overload: Any, is_root: bool) -> None:
    return None


def by_a_fused_layer(overload: Any, is_root: bool) -> Callable[..., Any] | None:
    return fused if is_root else None


def by_writing(overload: Any, is_root: bool) -> Callable[..., Any] | None:
    return written if is_root else None


@pytest.mark.parametrize(
    ("function_of", "reason"),
    [
        (by_itself, INTO_ITSELF),
        (by_a_fused_layer, "it is a layer of an engine's own"),
        (by_writing, "its decomposition writes in place (aten.add.out)"),
    ],
)
def test_calls_that_say_nothing_are_none(
    function_of: Any, reason: str, programs: Any, method: Any
) -> None:
    line = "%y = aten.neg.default(%x) : (tensor<3xf32>) -> tensor<3xf32>"
    program, _ = programs(method("%x: tensor<3xf32>", line, gives="tensor<3xf32>"))
    found = trace(program.method().body.block.first_op, function_of)
    assert isinstance(found, Refusal) and found.reason == reason
