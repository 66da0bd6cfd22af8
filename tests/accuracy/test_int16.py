"""Where int16 is needed is measured, said, and enough; a score that falls is a loss too."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepwell
from stepwell.quantization.sensitivity.attribution import Attribution
from stepwell.quantization.sensitivity.metrics import Tally
from stepwell.quantization.sensitivity.remedies import Widened
from stepwell.quantization.sensitivity.result import Accuracy


class Uneven(nn.Module):
    """Four layers; what two of them read has a channel 60 times the others."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(a, b) for a, b in
                                          ((12, 24), (24, 24), (24, 24), (24, 5)))  # fmt: skip
        with torch.no_grad():
            for one, reader, at in ((self.a, self.b, 7), (self.b, self.c, 3)):
                one.weight[at] *= 60
                one.bias[at] *= 60
                reader.weight[:, at] /= 60

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.a, self.b, self.c):
            x = torch.relu(layer(x))
        return 8 * self.d(x)


def batches() -> list[Any]:
    random = torch.Generator().manual_seed(5)
    return [((torch.randn(256, 12, generator=random),), None) for _ in range(3)]


def test_sites_are_widened_until_what_is_left_is_little() -> None:
    torch.manual_seed(3)
    found = stepwell.accuracy(Uneven().eval(), "xnnpack", batches(), levels=0)
    first, last = found.wider[0], found.wider[-1]
    assert first.sites[0] in ("b", "c") and {"b", "c"} <= set(last.sites), str(found)
    assert last.enough and not first.enough and last.won > 0.85 > first.won
    assert f"int16 there wins back {first.won:.0%}, there and at `" in found.sentence, str(found)
    told = found.to_dict()["int16"]
    assert told[-1]["sites"] == list(last.sites) and told[-1]["enough"]
    assert f"int16 {last.where()}: " in str(found)


def test_int16_is_no_remedy_for_weights() -> None:
    torch.manual_seed(3)
    model = Uneven().eval()
    graph = stepwell.quantize(model, "int8-xnnpack", [x for x, _ in batches()])
    layer = next(node for node in graph.graph.nodes if "aten.linear" in str(node.target))
    source = layer.args[1].args[0].target
    setattr(graph, source, (getattr(graph, source) // 64) * 64)
    found = stepwell.accuracy(model, "xnnpack", batches(), quantized=graph, levels=0)
    assert "`a` loses" in found.sentence and "int16" not in found.sentence, str(found)
    assert not found.wider


def tally(mean: float, error: float, count: int = 1000) -> Tally:
    squares = (error**2 * (count - 1) + mean**2) * count
    return Tally(count, mean * count, squares, 7)


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (tally(-0.001, 0.001), "Nothing is lost beyond noise: the loss moves by +0.0006 ± 0.0013, "
         "the score by -0.0010 ± 0.0020, 7 of 1000 answers change."),
        (tally(0.004, 0.001), "Nothing is lost beyond noise"),
        (tally(-0.004, 0.001), "Quantized, the loss moves by +0.0006 ± 0.0013, the score by "
         "-0.0040 ± 0.0020, and no quantization point alone loses more than noise."),
        (tally(-0.004, 0.001, 4), "Nothing is lost beyond noise"),  # A score for a whole batch.
    ],
)  # fmt: skip
def test_a_score_that_falls_is_no_noise(score: Tally, said: str) -> None:
    lost = Attribution(tally(0.0006, 0.00065), score, tally(0.001, 0.0001))
    assert said in Accuracy("xnnpack", "int8-xnnpack", (), lost).sentence


def test_where_weights_lose_the_rest_it_is_said() -> None:
    lost = Attribution(tally(0.004, 0.001), tally(-0.004, 0.001), tally(0.001, 0.0001))
    names = tuple("abcdef")
    some = Widened(names, tally(0.0, 0.001), tally(0.0, 0.001), "score", 1.0, True, True, False)
    every = Widened(names, tally(0.002, 0.0005), tally(0.0, 0.001), "loss", 0.5, True, False, True)
    none = Widened(names, tally(0.003, 0.0005), tally(0.0, 0.001), "loss", 0.1, False, False, True)
    left = Widened(("a",), tally(0.001, 0.001), tally(0.0, 0.001), "loss", 0.7, False, True, False)
    said = [Accuracy("xnnpack", "int8-xnnpack", (), lost, wider=(one,)).sentence
            for one in (some, every, none, left)]  # fmt: skip
    assert said[0].endswith("; int16 at `a`, `b`, `c`, `d` and 2 more wins back 100% of the score.")
    assert said[1].endswith("; int16 everywhere wins back 50%, and no more: weights lose the rest.")
    assert said[2].endswith("; int16 everywhere wins back no more than noise: weights lose it.")
    assert said[3].endswith("; int16 at `a` leaves no more than noise.")


def test_a_module_that_loses_less_than_nothing_is_not_named() -> None:
    lost = Attribution(tally(0.004, 0.001), tally(-0.004, 0.001), tally(0.001, 0.0001))
    lost.modules["norm"] = tally(-0.001, 0.0002)
    assert lost.module is None
    lost.modules["attn"] = tally(0.002, 0.0005)
    assert lost.module == "attn"
