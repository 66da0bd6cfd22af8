"""Floats that name pixels: their integers fit in 32 bits where comparisons say so, else not."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stepwell

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
