"""Operators that PyTorch computes as others are those others; what it has a kernel for stays."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases

from stepwell.translate.rewrites.calls.decompose_composites import DecomposeComposites

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


test_take_composites_apart = cases(
    DecomposeComposites,
    """
what stays whole keeps its reason -> unchanged
    %y = aten.exp.default(%x: f32[3, 4])
rows of run time -> refused: known only at run time
    %y = aten.mse_loss.default(%x: f32[s0, 4], %x)
another namespace -> unchanged
    %y = stepwell_mx.quantize_dequantize.default(%x: f32[3, 32], "fp4e2m1")
""",
)


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
