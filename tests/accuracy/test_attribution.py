"""What is measured: freeing all sites gives the float model, playing back a run of its own."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepwell
from stepwell.quantization.sensitivity.attribution import attribute, estimates
from stepwell.quantization.sensitivity.causes import Operand, wrong_gain
from stepwell.quantization.sensitivity.measure import imported
from stepwell.quantization.sensitivity.metrics import Tally
from stepwell.quantization.sensitivity.quantization_points import Quantized, paired
from stepwell.quantization.sensitivity.replay import Playback


class Net(nn.Module):
    """Attention between two linear layers, and a convolution ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.norm = nn.Conv2d(1, 32, 2, 2, bias=False), nn.BatchNorm2d(32)
        self.qkv, self.head = nn.Linear(32, 96), nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.patch(x))).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(y).reshape(len(x), -1, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return 8 * self.head(y.transpose(1, 2).flatten(2).mean(1))


def batches(count: int) -> list[Any]:
    random = torch.Generator().manual_seed(2)
    return [((torch.randn(64, 1, 6, 6, generator=random),), None) for _ in range(count)]


@pytest.fixture(scope="module", params=["fp4e2m1", "int8-xnnpack", "8da4w"])
def pair(request: pytest.FixtureRequest) -> Quantized:
    torch.manual_seed(0)
    model = Net()
    model(torch.randn(64, 1, 6, 6))  # The norm's statistics.
    model.eval()
    inputs = batches(1)[0][0]
    source = imported(model, inputs)
    if request.param == "fp4e2m1":
        given: Any = stepwell.to_mxfp(source, "fp4e2m1", convolutions=True, attention=True)
    else:
        given = stepwell.quantize(model, request.param, [inputs])
    return paired(imported(given, inputs), source)


def test_all_sites_freed_are_the_float_model_and_none_the_quantized_one(pair: Quantized) -> None:
    (x,) = batches(1)[0][0]
    free, low = (Playback(pair, (x,), free=free).outputs[0] for free in (True, False))
    assert torch.allclose(free, pair.original.run(x)[0], atol=1e-5)
    assert torch.allclose(low, pair.program.run(x)[0], atol=1e-5)
    assert not torch.allclose(free, low, atol=1e-3)


def test_a_site_played_back_is_a_run_in_which_it_alone_differs(pair: Quantized) -> None:
    inputs = batches(1)[0][0]
    kept = Playback(pair, inputs, free=True)
    one = kept.flipped(pair.sites[0])[0]
    assert not torch.equal(one, kept.outputs[0])
    assert torch.equal(kept.flipped()[0], kept.outputs[0])
    both = kept.flipped(*pair.sites)[0]
    assert torch.allclose(both, Playback(pair, inputs, free=False).outputs[0], atol=1e-5)


def test_gradients_rank_what_measuring_finds(pair: Quantized) -> None:
    data = batches(2)
    ranks = estimates(pair, data[:1])
    found = attribute(pair, data)
    large = max(found.shares.values(), key=lambda one: one.divergence.mean)
    assert len(ranks) == len(pair.sites)
    top = sorted(ranks, key=lambda site: -ranks[site])[: max(3, len(ranks) // 2)]
    assert large.name in [site.name for site in top]
    for one, other in combinations(pair.sites, 2):  # A reshape, and the three parts behind it.
        if found.shares[one.name].divergence.mean == found.shares[other.name].divergence.mean:
            assert ranks[one] < 1.5 * ranks[other] and ranks[other] < 1.5 * ranks[one], one.name


def test_measuring_goes_on_where_it_stopped(pair: Quantized, tmp_path: Path) -> None:
    data, place = batches(3), tmp_path / "kept.json"
    attribute(pair, data[:2], resume=place)
    told: list[int] = []
    whole = attribute(pair, data, resume=place, progress=lambda what, number, of: told.append(of))
    fresh = attribute(pair, data)
    assert whole.loss == fresh.loss and whole.shares == fresh.shares
    assert json.loads(place.read_text())["batches"] == 3
    place.write_text("{}")
    with pytest.raises(stepwell.StepwellError, match="contains no measurements"):
        attribute(pair, data, resume=place)


def test_a_difference_within_noise_is_said_to_be_none() -> None:
    tally = Tally()
    tally.add(torch.tensor([1.0, -1.0, 0.9, -0.8]))
    assert not tally.is_sure and tally.error > 0.4
    tally.add(torch.full((100,), 0.5))
    assert tally.is_sure


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "no data"),
        (torch.ones(3), "must be a sequence of batches"),
        ([2.0], "a batch has type float"),
        ([(torch.ones(2, 4), torch.ones(3).long())], "do not match the outputs"),
        ([(torch.ones(3, 4), None), (torch.ones(2, 4), None)], "dimension 0 is 2, must be 3"),
    ],
)
def test_data_of_other_forms_is_refused(data: Any, said: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4)).eval()
    with pytest.raises(stepwell.StepwellError, match=said):
        stepwell.accuracy(model, "xnnpack", data, levels=0)


@pytest.mark.parametrize("target", ["xnnpack", "cortex-m55", "tosa-1.0+int"])
def test_every_stage_is_called_as_the_model_is(target: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    data = [((torch.randn(16, 6),), None)]
    stages = stepwell.accuracy(model, target, data).stages
    assert [stages[0].name, stages[-1].name] == ["model", "artifact"] and len(stages) > 6
    assert abs(stages[-1].mean[0] - stages[2].mean[0]) < 1e-3  # TOSA takes integers there.


def test_an_operand_without_axes_has_causes_too() -> None:
    one = Operand("input", torch.tensor(2.0), torch.tensor(3.0), None)
    assert wrong_gain(one) == "the scale of its input is wrong: numbers come out 1.5 times"


class Shared(nn.Module):
    """A sum of parameters, which all samples share, ahead of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.shift = (nn.Parameter(torch.randn(12)) for _ in range(2))
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + (self.place + self.shift))


def test_a_site_that_all_samples_share_is_no_obstacle() -> None:
    torch.manual_seed(0)
    model, data = Shared().eval(), [((torch.randn(64, 12),), None)]
    source = imported(model, data[0][0])
    given = stepwell.quantize(model, "int8-xnnpack", [data[0][0]])
    pair = paired(imported(given, data[0][0]), source)
    ranks = {site.name: rank for site, rank in estimates(pair, data).items()}
    assert ranks["head"] > 0 and ranks["add"] == 0  # Whose integers have no floats to be freed to.


class Normed(nn.Module):
    """A layer norm between two layers of one size."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.norm, self.out = nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(self.into(x)))


@pytest.mark.parametrize("form", ["int8-cortex-m", "int8-tosa"])
def test_layers_that_a_quantizer_makes_of_a_norm_are_none_of_the_models(form: str) -> None:
    torch.manual_seed(0)
    model, x = Normed().eval(), torch.randn(64, 16)
    quantized = imported(stepwell.quantize(model, form, [(x,)]), (x,))
    pair = paired(quantized, imported(model, (x,)))
    assert [site.name for site in pair.sites if site.floats] == ["into", "out"]
    (wanted,) = pair.original.run(x)
    apart = [float((Playback(pair, (x,), free=free).outputs[0] - wanted).norm() / wanted.norm())
             for free in (True, False)]  # fmt: skip
    assert apart[0] < apart[1] / 3, apart
