"""Operators that PyTorch computes as others are those others; what it has a kernel for stays."""

from typing import Any

import pytest
import torch

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


NEAR: dict[str, tuple[tuple[str, ...], str, str]] = {
    "a kernel of PyTorch's own": (
        (f"%x: {X}", f"%y = aten.exp.default(%x) : ({X}) -> {X}"),
        X,
        "",
    ),
    "rows of run time": (
        (f"%x: {ROWS}", f"%y = aten.mse_loss.default(%x, %x) : ({ROWS}, {ROWS}) -> tensor<f32>"),
        "tensor<f32>",
        "known only at run time",
    ),
    "another namespace": (
        (
            "%x: tensor<3x32xf32>",
            '%y = stepwell_mx.quantize_dequantize.default(%x, "fp4e2m1") : '
            "(tensor<3x32xf32>) -> tensor<3x32xf32>",
        ),
        "tensor<3x32xf32>",
        "",
    ),
}


@pytest.mark.parametrize("name", NEAR)
def test_what_stays_whole_keeps_its_reason(refused: Any, method: Any, name: str) -> None:
    lines, gives, reason = NEAR[name]
    refused(method(*lines, gives=gives), DecomposeComposites(), reason)


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
