"""Halves are widened, and intervals of floats known."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rewrite_cases import cases
from torch import Tensor, nn

import stepwell
from stepwell.ir.rewriting.rewrite import History
from stepwell.translate.decompositions import floats
from stepwell.translate.rewrites.tosa.legalize_boundary.count_in_floats import CountInFloats

test_widen_halves = cases(floats)("""
widen-rounded-halves: a mean that narrows is no op of halves -> applied 0 times
    %y = aten.mean.dim(%x: f32[2, 3], [1], false, dtype=f16)
widen-rounded-halves: the mean of an image is a pool, which sums in single precision itself -> applied 0 times
    %y = aten.mean.dim(%x: f16[1, 2, 3, 4], [2, 3], false)
""")


TARGET = "tosa-1.0+fp+int"
IMAGE, PLACES = torch.randn(1, 2, 5, 6), 3 * torch.randn(1, 4, 3, 2)


class Call(nn.Module):
    """A function of two tensors."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        return self.function(x, at)


def lowered(function: Callable[[Tensor, Tensor], Tensor]) -> stepwell.Lowered:
    return stepwell.lower(torch.export.export(Call(function), (IMAGE, PLACES)), TARGET)


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_pixels_at_computed_places_are_what_pytorch_reads(mode: str, padding: str) -> None:
    """Places far outside among them."""

    def read(x: Tensor, at: Tensor) -> Tensor:
        return F.grid_sample(x, at, mode=mode, padding_mode=padding, align_corners=False)

    far = PLACES.clone()
    far[0, 0, 0, 0] = 1e15
    for at in (PLACES, far):
        found = lowered(read).run(IMAGE, at)[0]
        torch.testing.assert_close(found, read(IMAGE, at), rtol=1e-4, atol=1e-5)


def rows(x: Tensor, at: Tensor, *, to: float) -> Tensor:
    flat = at.flatten().floor()
    inside = (flat >= 0) & (flat < to)
    return x.flatten()[torch.where(inside, flat.long(), 0)]


def test_a_comparison_from_both_sides_is_a_proof() -> None:
    found = lowered(lambda x, at: rows(x, at, to=9)).run(IMAGE, PLACES)[0]
    assert torch.equal(found, rows(IMAGE, PLACES, to=9))


def test_a_comparison_from_one_side_is_none() -> None:
    def half(x: Tensor, at: Tensor) -> Tensor:
        flat = at.flatten()
        return torch.where(flat >= 0, flat.long(), 0) * 2

    with pytest.raises(stepwell.StepwellError, match="no proof makes smaller"):
        lowered(half)


def test_a_chain_of_choices_is_looked_at_once() -> None:
    """Each choice reads the one before it twice: 2³² ways lead to the first."""

    def chained(x: Tensor, at: Tensor) -> Tensor:
        place = at.flatten().clamp(0.0, 8.0)
        for _ in range(32):
            place = torch.minimum(place, torch.maximum(place, x[0, 0, 0, 0]))
        return x.flatten()[place.long()]

    found = lowered(chained).run(IMAGE, PLACES)[0]
    assert torch.equal(found, chained(IMAGE, PLACES))


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_a_recurrent_layer_is_taken_apart_though_its_dropout_could_draw_numbers(
    kind: type[torch.nn.Module],
) -> None:
    layer, x = kind(3, 4).eval(), torch.randn(5, 1, 3)
    lowered = stepwell.lower(torch.export.export(layer, (x,)), "tosa-1.0+fp")
    torch.testing.assert_close(lowered.program.run(x)[0], layer(x)[0])


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
