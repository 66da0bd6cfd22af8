"""Indices as whole floats: what is not certain, or needs none, stays."""

from typing import Any

import pytest
import torch

import stepwell
from stepwell.ir.rewriting.rewrite import History
from stepwell.translate.rewrites.tosa.legalize_boundary.count_in_floats import CountInFloats

SHAPE = "%s = tosa.const_shape {values = dense<[1, 3]> : tensor<2xindex>} : () -> !tosa.shape<2>"
RESHAPE = "%j = tosa.reshape %i, %s : (i32[3], !tosa.shape<2>) -> i32[1, 3]"
GATHER = "%y = tosa.gather %v, %j : (f32[1, 5, 2], i32[1, 3]) -> f32[1, 3, 2]"


def converted(programs: Any, written: Any, *lines: str, target: str = "tosa-1.0+fp") -> int:
    program, _ = programs(written("%i: i32[3], %v: f32[1, 5, 2]", *lines))
    count = CountInFloats(target).apply(program, History())
    program.verify()
    return count


def test_an_index_that_names_rows_moves_as_floats(programs: Any, written: Any) -> None:
    assert converted(programs, written, SHAPE, RESHAPE, GATHER) == 1


def test_an_integer_that_may_be_any_stays(programs: Any, written: Any) -> None:
    assert converted(programs, written, SHAPE, RESHAPE.replace("%j", "%y")) == 0


def test_a_profile_with_integers_keeps_them(programs: Any, written: Any) -> None:
    lines = (SHAPE, RESHAPE, GATHER)
    assert converted(programs, written, *lines, target="tosa-1.0+fp+int") == 0


def test_an_operator_that_the_profile_has_keeps_its_integers(programs: Any) -> None:
    program, _ = programs("""
        %j = tosa.add(%k: i32[1, 3], %k)
        %y = tosa.gather(%v: f32[1, 5, 2], %j)
        """)
    assert CountInFloats("tosa-1.0+fp").apply(program, History()) == 0


class Picks(torch.nn.Module):
    def forward(
        self, x: torch.Tensor, i: torch.Tensor, j: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return x[i, j], x[i], x.index_put((j,), x[i])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_reference_model_picks_what_torch_does(dtype: torch.dtype) -> None:
    inputs = (
        torch.randn(4, 4),
        torch.tensor([0, -1], dtype=dtype),
        torch.tensor([-3, 2]).to(dtype),
    )
    lowered = stepwell.lower(torch.export.export(Picks(), inputs), "tosa-1.0+fp")
    for made, wanted in zip(lowered.run(*inputs), Picks()(*inputs), strict=True):
        assert torch.equal(made, wanted)
