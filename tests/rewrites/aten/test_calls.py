"""Composite operators are decomposed, and recorded calls kept."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rewrite_cases import cases

from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.translate.rewrites.calls.decompose_composites import DecomposeComposites
from stepwell.translate.rewrites.calls.recorded_calls import FusedLayerError
from stepwell.translate.rewrites.calls.traced_calls import INTO_ITSELF, trace

X, ROWS = "tensor<3x4xf32>", 'tensor<?x4xf32, #stepwell.shape<["s0", 4]>>'


@pytest.mark.parametrize(
    ("call", "types", "gives", "ops"),
    [
        ("pairwise_distance.default(%x, %x)", f"{X}, {X}", "tensor<3xf32>", 3),
        ("cosine_similarity.default(%x, %x)", f"{X}, {X}", "tensor<3xf32>", 11),
        ("mse_loss.default(%x, %x)", f"{X}, {X}", "tensor<f32>", 3),
        ("rot90.default(%x)", X, "tensor<4x3xf32>", None),
    ],
)
def test_an_operator_becomes_what_pytorch_computes_it_as(
    apply: Any, method: Any, call: str, types: str, gives: str, ops: int | None
) -> None:
    line = f"%y = aten.{call} : ({types}) -> {gives}"
    done = apply(method(f"%x: {X}", line, gives=gives), DecomposeComposites())
    assert done.count == 1
    assert ops is None or len(done.ops()) == ops


test_take_composites_apart = cases(DecomposeComposites)("""
what stays whole keeps its reason -> unchanged
    %y = aten.exp.default(%x: f32[3, 4])
rows known only at run time -> refused: known only at run time
    %y = aten.mse_loss.default(%x: f32[s0, 4], %x)
another namespace -> unchanged
    %y = stepwell_mx.quantize_dequantize.default(%x: f32[3, 32], "fp4e2m1")
""")


def filled(real: torch.Tensor, imag: torch.Tensor) -> torch.Tensor:
    """An empty tensor, written through views that no autograd sees, as PyTorch's references do."""
    made = torch.empty_like(real, dtype=torch.complex64)
    made.real.copy_(real)
    made.imag.copy_(imag)
    return made


def test_memory_written_through_a_view_is_not_read_as_it_was(refused: Any, method: Any) -> None:
    made = "tensor<3x4xcomplex<f32>>"
    line = f"%y = aten.complex.default(%x, %x) : ({X}, {X}) -> {made}"
    complex_ = torch.ops.aten.complex.default
    rewrite = DecomposeComposites(function_of=lambda op, _: filled if op is complex_ else None)
    refused(method(f"%x: {X}", line, gives=made), rewrite, "writes in place (aten.copy_.default)")


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
