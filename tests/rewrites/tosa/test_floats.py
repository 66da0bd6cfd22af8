"""Halves are widened, and intervals of floats known."""

import pytest
import torch
import torch.nn.functional as F
from eager import EXACT, assert_as_eager, lower
from rewrite_cases import cases
from torch import Tensor

import stepwell
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


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_pixels_at_computed_places_are_what_pytorch_reads(mode: str, padding: str) -> None:
    """Places far outside among them."""

    def read(x: Tensor, at: Tensor) -> Tensor:
        return F.grid_sample(x, at, mode=mode, padding_mode=padding, align_corners=False)

    far = PLACES.clone()
    far[0, 0, 0, 0] = 1e15
    lowered = lower(read, IMAGE, PLACES, target=TARGET)
    for at in (PLACES, far):
        assert_as_eager(lowered, read, IMAGE, at, rtol=1e-4, atol=1e-5)


def test_a_comparison_from_both_sides_is_a_proof() -> None:
    def rows(x: Tensor, at: Tensor) -> Tensor:
        flat = at.flatten().floor()
        inside = (flat >= 0) & (flat < 9)
        return x.flatten()[torch.where(inside, flat.long(), 0)]

    assert_as_eager(lower(rows, IMAGE, PLACES, target=TARGET), rows, IMAGE, PLACES, **EXACT)


def test_a_comparison_from_one_side_is_none() -> None:
    def half(x: Tensor, at: Tensor) -> Tensor:
        flat = at.flatten()
        return torch.where(flat >= 0, flat.long(), 0) * 2

    with pytest.raises(stepwell.StepwellError, match="not proved to fit in 32"):
        lower(half, IMAGE, PLACES, target=TARGET)


def test_a_chain_of_choices_is_looked_at_once() -> None:
    """Each choice reads the one before it twice: 2³² ways lead to the first."""

    def chained(x: Tensor, at: Tensor) -> Tensor:
        place = at.flatten().clamp(0.0, 8.0)
        for _ in range(32):
            place = torch.minimum(place, torch.maximum(place, x[0, 0, 0, 0]))
        return x.flatten()[place.long()]

    assert_as_eager(lower(chained, IMAGE, PLACES, target=TARGET), chained, IMAGE, PLACES, **EXACT)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_a_recurrent_layer_is_taken_apart_though_its_dropout_could_draw_numbers(
    kind: type[torch.nn.Module],
) -> None:
    layer, x = kind(3, 4).eval(), torch.randn(5, 1, 3)
    lowered = lower(layer, x, target="tosa-1.0+fp")
    torch.testing.assert_close(lowered.program.run(x)[0], layer(x)[0])


test_counts_in_floats = cases(CountInFloats("tosa-1.0+fp"))("""
an index that names rows moves as floats -> applied once
    %j = tosa.reshape(%i: i32[3], [1, 3]); %y = tosa.gather(%v: f32[1, 5, 2], %j)
an integer that may be any stays -> applied 0 times
    %y = tosa.reshape(%i: i32[3], [1, 3])
an operator that the profile has keeps its integers -> applied 0 times
    %j = tosa.add(%k: constant "#zeros" i32[1, 3], %i: i32[1, 3]); %y = tosa.gather(%v: f32[1, 7, 2], %j)
""")

test_a_profile_with_integers_keeps_them = cases(CountInFloats("tosa-1.0+fp+int"))("""
an index that names rows -> applied 0 times
    %j = tosa.reshape(%i: i32[3], [1, 3]); %y = tosa.gather(%v: f32[1, 5, 2], %j)
""")


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_reference_model_picks_what_torch_does(dtype: torch.dtype) -> None:
    def picks(x: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, ...]:
        return x[i, j], x[i], x.index_put((j,), x[i])

    places = (torch.tensor([0, -1], dtype=dtype), torch.tensor([-3, 2]).to(dtype))
    inputs = (torch.randn(4, 4), *places)
    assert_as_eager(lower(picks, *inputs, target="tosa-1.0+fp"), picks, *inputs, **EXACT)
