"""Composite operators are decomposed, and recorded calls kept."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases
from rewrite_runs import program_of

from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.translate.rewrites.calls.decompose_composites import DecomposeComposites
from stepwell.translate.rewrites.calls.recorded_calls import FusedLayerError
from stepwell.translate.rewrites.calls.traced_calls import INTO_ITSELF, trace

test_an_operator_becomes_what_pytorch_computes_it_as = cases(DecomposeComposites)("""
a distance of rows -> aten.sub.Tensor, aten.add.Scalar, aten.norm.ScalarOpt_dim
    %y = aten.pairwise_distance.default(%x: f32[3, 4], %x)
a similarity of rows -> applied once; without aten.cosine_similarity.default
    %y = aten.cosine_similarity.default(%x: f32[3, 4], %x)
a loss -> aten.sub.Tensor, aten.pow.Tensor_Scalar, aten.mean.default
    %y = aten.mse_loss.default(%x: f32[3, 4], %x)
a rotation -> applied once
    %y = aten.rot90.default(%x: f32[3, 4])
""")


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


def test_memory_written_through_a_view_is_not_read_as_it_was(refused: Any) -> None:
    text = "%y = aten.complex.default(%x: f32[3, 4], %x)"
    complex_ = torch.ops.aten.complex.default
    rewrite = DecomposeComposites(function_of=lambda op, _: filled if op is complex_ else None)
    refused(text, rewrite, "writes in place (aten.copy_.default)")


def fused(x: torch.Tensor) -> torch.Tensor:
    raise FusedLayerError("it is a layer of an engine's own")


def written(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.add.out(x, x, out=torch.empty_like(x))


@pytest.mark.parametrize(
    ("function_of", "reason"),
    [
        (lambda overload, is_root: None, INTO_ITSELF),
        (lambda overload, is_root: fused if is_root else None, "it is a layer of an engine's own"),
        (
            lambda overload, is_root: written if is_root else None,
            "the decomposition writes in place (aten.add.out)",
        ),
    ],
)
def test_calls_that_say_nothing_are_none(function_of: Any, reason: str) -> None:
    program = program_of("%y = aten.neg.default(%x: f32[3])")
    found = trace(program.method().body.block.first_op, function_of)
    assert isinstance(found, Refusal) and found.reason == reason
