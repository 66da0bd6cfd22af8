"""What the range of an input proves: intervals of layers, and forms that need finite numbers."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepwell
from stepwell.dialects.xnnpack.costs import costs_of
from stepwell.dialects.xnnpack.costs.nodes import nanoseconds
from stepwell.ir.calls.calling import declare_ranges
from stepwell.ir.rewriting.history import RefusalRecord
from stepwell.report.hints import hints
from stepwell.translate.range_analysis import interval

Ends = tuple[float, float]


class Bytes(nn.Module):
    """A model whose image is bytes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model((x.float() / 255 - 0.45) / 0.22)


class Doubled(nn.Module):
    """A layer whose sums are doubled."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * 2


class Limited(nn.Module):
    """A sum of what is limited to the range from 0 to 1, or is not."""

    def __init__(self, limited: bool = True) -> None:
        super().__init__()
        self.limited = limited

    def forward(self, x: Tensor) -> Tensor:
        return (x.clamp(0, 1) if self.limited else x) + 1


def image_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 5),
    ).eval()  # fmt: skip


def ones() -> nn.Module:
    """A convolution whose sums are of 576 pixels, each of factor one."""
    model = nn.Conv2d(64, 64, 3, padding=1, bias=False)
    nn.init.ones_(model.weight)
    return model


IMAGE, DEEP, ROW = torch.randn(1, 3, 32, 32), torch.ones(1, 64, 16, 16), torch.randn(2, 8)
OVERFLOWS_AT = torch.finfo(torch.float32).max / (2 * 36 * 576)
CASES: dict[str, tuple[nn.Module, Tensor, dict[str, Any], tuple[str, int]]] = {
    "nothing is known": (image_model(), IMAGE, {}, ("convolve-by-winograd", 0)),
    "a range": (image_model(), IMAGE, {"ranges": {0: (-3, 3)}}, ("convolve-by-winograd", 2)),
    "a huge range": (image_model(), IMAGE, {"ranges": {0: (0, 1e37)}}, ("convolve-by-winograd", 0)),
    "bytes": (Bytes(image_model()), IMAGE.byte(), {}, ("convolve-by-winograd", 2)),
    "sums that may not overflow": (
        ones(), DEEP, {"ranges": {0: (0, 0.99 * OVERFLOWS_AT)}}, ("convolve-by-winograd", 1),
    ),
    "sums that may overflow": (
        ones(), DEEP, {"ranges": {0: (0, 1.01 * OVERFLOWS_AT)}}, ("convolve-by-winograd", 0),
    ),
    "layers of anything": (
        nn.Sequential(nn.Linear(8, 9), nn.Linear(9, 4)), ROW, {}, ("merge-linears", 0),
    ),
    "layers of a range": (
        nn.Sequential(nn.Linear(8, 9), nn.Linear(9, 4)), ROW, {"ranges": {0: (-5, 5)}},
        ("merge-linears", 1),
    ),
    "doubled sums": (Doubled(), ROW, {}, ("fold-scale-into-layer", 0)),
    "doubled sums of a range": (
        Doubled(), ROW, {"ranges": {0: (-5, 5)}}, ("fold-scale-into-layer", 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_form_needs_a_proof_of_finite_numbers(name: str) -> None:
    module, x, options, (rewrite, count) = CASES[name]
    lowered = stepwell.lower(torch.export.export(module.eval(), (x,)), "xnnpack", **options)
    assert Counter(event.rewrite for event in lowered.report.events)[rewrite] == count
    low, high = options.get("ranges", {0: (0, 255)})[0]
    inputs = x.clamp(low, high), torch.full_like(x, low), torch.full_like(x, high)
    for given in inputs if count else ():
        torch.testing.assert_close(lowered.run(given)[0], module(given), rtol=1e-4, atol=1e-4)


def test_weights_that_proofs_read_are_dropped_by_an_emission_and_computed_by_the_next() -> None:
    exported = torch.export.export(image_model(), (IMAGE,))
    lowered = stepwell.lower(exported, "xnnpack", ranges={0: (-3, 3)})
    copy, counts = lowered.program.clone(), lowered.program.weights.counts
    held = counts.kept
    first = lowered.emit()
    assert counts.kept < held / 100
    assert first == lowered.emit() == stepwell.emit(copy, "xnnpack")


@pytest.mark.parametrize("share", [0.0, 0.04, 0.06, 0.5])
def test_a_saving_of_five_percent_is_worth_a_hint(share: float) -> None:
    lowered = stepwell.lower(torch.export.export(ones(), (DEEP,)), "xnnpack", numerics="finite")
    assert lowered.report.hints == ()
    costs = costs_of(lowered.program.context)
    ops = (op for op in lowered.program.module.walk() if not op.regions and op.operands)
    total = sum(nanoseconds(op, costs) for op in ops if op.results)
    record = RefusalRecord("some-rewrite", "aten.op", None, None, "a reason", share * total)
    found = [(hint.allows, hint.factor) for hint in hints(lowered.program, [record])]
    expected = [("some-rewrite × 1", pytest.approx(1 / (1 - share)))] if share > 0.05 else []
    assert found == expected


def test_what_only_numerics_refuses_is_a_hint_with_its_gain() -> None:
    exported = torch.export.export(ones(), (DEEP,))
    for cpu in ("arm64", "x86-64-avx2"):  # There, another form replaces the convolution.
        report = stepwell.lower(exported, "xnnpack", cpu=cpu).report
        (hint,) = report.hints
        assert hint.allows == "convolve-by-winograd × 1" and hint.factor > 1.05
        assert f"hint       {hint}" in str(report) and report.figures["hints"] == (hint,)
    assert stepwell.lower(exported, "xnnpack", ranges={0: (0, 1)}).report.hints == ()


@pytest.mark.parametrize("ranges", [{}, {"x": (0, 1)}], ids=str)
def test_a_validation_stays_within_the_declared_range(ranges: dict[str, Ends]) -> None:
    clamped = torch.export.export(Limited(), (ROW,))
    plain = torch.export.export(Limited(limited=False), (ROW,))
    found = stepwell.validate(stepwell.lower(clamped, "xnnpack").to_pte(), plain, ranges=ranges)
    assert found.ok == ("input x is from 0 to 1" in str(found)) == bool(ranges)


def test_a_validation_refuses_what_is_no_range() -> None:
    with pytest.raises(stepwell.StepwellError, match="two finite numbers"):
        stepwell.validate(b"", torch.export.export(Doubled(), (ROW,)), ranges={"x": (1, 0)})


LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(50, 7), (1, 50)),
    "convolution": (nn.Conv2d(6, 7, 3), (1, 6, 3, 3)),
    "grouped": (nn.Conv2d(6, 9, 3, groups=3), (1, 6, 3, 3)),
    "depthwise": (nn.Conv2d(6, 6, 3, groups=6), (1, 6, 3, 3)),
}


@pytest.mark.parametrize("ends", [(-2.0, 3.0), (0.0, 5.0), (-4.0, 0.0), (1.0, 2.0)], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_the_extremes_of_a_layer_are_the_ends_of_its_interval(name: str, ends: Ends) -> None:
    torch.manual_seed(0)
    module, shape = LAYERS[name]
    program = stepwell.from_exported_program(torch.export.export(module, (torch.ones(shape),)))
    declare_ranges([program.method()], {0: ends})
    last = program.method().body.block.last_op
    assert last is not None
    found = interval(last.operands[0], program)
    low, high = min(ends[0], 0.0), max(ends[1], 0.0)  # Zero is padding.
    rows, bias = module.weight.detach().double().flatten(1), module.bias.detach().double()
    largest = ((rows * high).clamp(min=0) + (rows * low).clamp(min=0)).sum(1)
    least = ((rows * high).clamp(max=0) + (rows * low).clamp(max=0)).sum(1)
    assert float((largest + bias).max()) <= found.high < float(largest.max() + bias.max()) * 1.001
    assert float(least.min() + bias.min()) * 1.001 < found.low <= float((least + bias).min())
    assert not found.nan
