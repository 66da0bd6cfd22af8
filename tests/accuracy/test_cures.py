"""Cures win back what rounding loses, on data that they were not fitted on, or are not kept."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepwell
from stepwell.cli.arguments.lowering import CURES
from stepwell.ir.core import weight_key
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.quantization.recovery import recover
from stepwell.quantization.recovery.mixed_precision import bits_read, payloads_of
from stepwell.quantization.recovery.rounding import solved
from stepwell.quantization.sensitivity.quantization_points import Quantized

TARGET = "tosa-1.1+fp+mx_common+mx_fp4e2m1+mx_fp8e4m3"


def net() -> nn.Module:
    torch.manual_seed(1)
    layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6)]
    model = nn.Sequential(*layers).eval()
    with torch.no_grad():
        model[4].weight.mul_(12)  # pyright: ignore
    return model


def batches(seed: int, count: int) -> list[Any]:
    """Rows of few directions, as activations are."""
    random = torch.Generator().manual_seed(seed)
    basis = torch.randn(12, 64, generator=torch.Generator().manual_seed(0))
    return [((torch.randn(128, 12, generator=random) @ basis / 3,), None) for _ in range(count)]


@pytest.mark.parametrize("form", ["fp4e2m1", "8da4w"])
def test_other_weights_on_the_same_grid_win_the_loss_back(form: str) -> None:
    target = TARGET if form == "fp4e2m1" else "xnnpack"
    found = stepwell.accuracy(
        net(), target, batches(7, 3), quantize=form, levels=0, fit=batches(8, 6),
        cures=("rounding", "distilling"),
    )  # fmt: skip
    kept = [cure for cure in found.cures if cure.kept]  # The second wins on top, or is not kept.
    assert kept and kept[-1].recovered > 0.3, str(found)  # What rounds activations stays.
    assert found.program is not None
    plain = stepwell.accuracy(net(), target, batches(7, 1), quantize=form, levels=0).program
    assert plain is not None
    ops = [Counter(op.name for op in p.module.walk()) for p in (plain, found.program)]
    assert ops[0] == ops[1]
    (x,) = batches(7, 1)[0][0]
    given = [stepwell.lower(p, target).run(x)[0] for p in (plain, found.program)]
    wanted = net()(x)
    assert (given[1] - wanted).norm() < (given[0] - wanted).norm()


def test_what_is_worth_it_is_wider_within_the_budget() -> None:
    """Of weights and activations alike; a product of two payloads is one of the target's."""
    model = net()
    found = stepwell.accuracy(
        model, TARGET, batches(7, 2), quantize="fp4e2m1", levels=0, cures=("mixing",)
    )
    assert found.program is not None and found.cures[0].kept, str(found)
    pair = Quantized(found.program, found.program)
    read = [payloads_of(site) for site in pair.sites]
    assert any(one != other for one, other in read) and "fp8e4m3" in read[2]
    weights, rows = (64 * 64, 64 * 64, 64 * 6), 64
    width = {"fp4e2m1": 4, "fp8e4m3": 8}
    total = sum(rows * width[a] + w * width[b] for w, (a, b) in zip(weights, read, strict=True))
    assert total <= 4.5 * (sum(weights) + 3 * rows) and bits_read(pair) <= 4.5
    (x,) = batches(7, 1)[0][0]
    (given,) = stepwell.lower(found.program, TARGET).run(x)
    (wanted,) = found.program.run(x)
    assert (given - wanted).norm() < 1e-4 * wanted.norm()


@pytest.mark.parametrize("form", ["8da4w", "4w"])
def test_weights_that_are_worth_it_have_eight_bits(form: str) -> None:
    """Within 4.5 bits a weight there is room for the last layer, and for no other."""
    found = stepwell.accuracy(
        net(), "xnnpack", batches(7, 2), quantize=form, levels=0, cures=("mixing",)
    )
    assert found.program is not None and found.cures[0].kept, str(found)
    assert short_layers(found.program) == [True, True, False]
    (x,) = batches(7, 1)[0][0]
    lowered = stepwell.lower(found.program, "xnnpack")
    assert not lowered.report.outside, str(lowered.report)
    (given,), (wanted,) = lowered.run(x), found.program.run(x)
    assert float((given - wanted).abs().mean()) < 0.01 * float(wanted.abs().mean())


def short_layers(program: stepwell.Program) -> list[bool]:
    """Of each weight, whether it has four bits."""
    return [op.arg("quant_max") == 7 for op in program.module.walk()  # pyright: ignore
            if "dequantize_affine" in op.name and weight_key(op.operands[0])]  # fmt: skip


def test_a_budget_in_bytes_is_held_and_used() -> None:
    """Four bits more of 64 × 64 weights are 2 048 bytes; 128 scales of groups become 64."""
    plain = stepwell.accuracy(net(), "xnnpack", batches(7, 1), quantize="8da4w", levels=0).program
    assert plain is not None
    size = len(stepwell.lower(plain, "xnnpack").to_pte())
    for more, long in ((100, 0), (400, 1), (2600, 2), (9000, 3)):
        found = stepwell.accuracy(
            net(), "xnnpack", batches(7, 2), quantize="8da4w", levels=0, most=1,
            cures=("mixing",), budget=(size + more, "bytes"),
        )  # fmt: skip
        assert found.program is not None
        assert short_layers(found.program).count(False) == long, more
        assert len(stepwell.lower(found.program, "xnnpack").to_pte()) <= size + more


def test_a_budget_is_of_what_the_target_has() -> None:
    with pytest.raises(stepwell.StepwellError, match="have no figure 'arena'"):
        stepwell.accuracy(
            net(), TARGET, batches(7, 2), quantize="fp4e2m1", levels=0, most=1, cures=("mixing",),
            budget=(100, "arena"),
        )  # fmt: skip


def test_a_cure_that_does_not_win_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def worse(weights: Any, batches: Any) -> Any:
        result = weights.copy()
        for tensor in result.tensors():
            tensor.mul_(1.3)
        return result

    monkeypatch.setitem(recover.CURES, "worse", worse)  # pyright: ignore
    found = stepwell.accuracy(
        net(), TARGET, batches(7, 2), quantize="fp4e2m1", levels=0, cures=("worse",)
    )
    assert not found.cures[0].kept and "moves by +" in found.cures[0].why
    with pytest.raises(stepwell.StepwellError, match="no recovery method 'polishing'"):
        stepwell.accuracy(net(), TARGET, batches(7, 2), levels=0, cures=("polishing",))


def test_one_input_makes_up_for_another() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(500, 6, generator=random) @ torch.randn(6, 24, generator=random)
    x = (x + 0.1 * torch.randn(500, 24, generator=random)).double()
    weight = torch.randn(8, 24, generator=random)

    def snap(w: Tensor) -> Tensor:
        return (w * 2).round() / 2

    chosen = solved(weight, x, x, snap)
    assert torch.equal(chosen, snap(chosen))
    moved = [float((x @ (w - weight).double().T).norm()) for w in (chosen, snap(weight))]
    assert moved[0] < 0.5 * moved[1]


class Attention(nn.Module):
    """Causal, so that the fill of its mask takes most of the range of the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4).unbind(0)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return seen.transpose(1, 2).flatten(2)


def sequences(seed: int, count: int) -> list[Any]:
    random = torch.Generator().manual_seed(seed)
    return [((torch.randn(16, 12, 32, generator=random),), None) for _ in range(count)]


def causal() -> nn.Module:
    torch.manual_seed(2)
    model = nn.Sequential(Attention(), nn.Linear(32, 6)).eval()
    with torch.no_grad():
        model[0].qkv.weight[:64].mul_(4)  # pyright: ignore
        model[1].weight.mul_(8)  # pyright: ignore
    return model


def interpreted(program: stepwell.Program, x: Tensor, until: Any) -> Tensor:
    """The result of an op of a program of one input."""
    values: dict[Any, Any] = {program.method().body.block.args[0]: x}
    runs = Interpreter(program.weights)
    for op in program.method().body.block.ops:
        runs.step(op, values)
        if op is until:
            break
    return values[until.results[0]]


@pytest.mark.slow
def test_ranges_are_narrowed_where_finer_steps_win() -> None:
    """The softmax reads a few of the integers that the mask leaves; biases of layers follow."""
    found = stepwell.accuracy(
        causal(), "tosa-1.0+int", sequences(1, 2), fit=sequences(2, 1), levels=0, most=8,
        cures=("clipping",),
    )  # fmt: skip
    assert "of its input is empty: nothing lies between" in found.sentence, str(found)
    assert "int16 there wins back" in found.sentence, str(found)
    assert found.cures[0].kept and found.cures[0].recovered > 0.5, str(found)
    assert found.program is not None
    func = found.program.method()
    casts = [op for op in func.walk() if ".quantize_per_tensor" in op.name]
    (x,) = sequences(3, 1)[0][0]
    integers, wanted = (interpreted(found.program, x, of) for of in (casts[0], casts[-1]))
    (given,) = stepwell.lower(found.program, "tosa-1.0+int").run(integers)
    assert torch.equal(given, wanted)


def test_clipping_needs_ranges_known_ahead() -> None:
    with pytest.raises(stepwell.StepwellError, match="'clipping' chooses static ranges"):
        stepwell.accuracy(
            net(), TARGET, batches(7, 2), quantize="fp4e2m1", levels=0, cures=("clipping",)
        )


def far() -> nn.Module:
    """One column of weights stands far from the others."""
    model = net()
    with torch.no_grad():
        model[2].weight[:, 0].mul_(8)  # pyright: ignore
    return model


@pytest.mark.parametrize(
    ("form", "cures", "kept", "least"),
    [
        ("4w", ("scales", "rounding"), [True, True], 0.6),
        ("int8-tosa", ("scales", "biases"), [False, True], 0.15),  # Int8 has steps enough.
        ("int8-xnnpack", ("rounding", "biases"), [True, False], 0.2),  # Means are right by then.
    ],
)
def test_scales_and_biases_are_kept_where_they_win(
    form: str, cures: tuple[str, ...], kept: list[bool], least: float
) -> None:
    target = "tosa-1.0+int" if form == "int8-tosa" else "xnnpack"
    found = stepwell.accuracy(
        far(), target, batches(7, 3), quantize=form, levels=0, most=2, fit=batches(8, 6),
        cures=cures,
    )  # fmt: skip
    assert [cure.kept for cure in found.cures] == kept, str(found)
    best = max(cure.recovered for cure in found.cures)
    assert best > least, str(found)
    assert found.program is not None
    (x,) = batches(9, 1)[0][0]
    lowered = stepwell.lower(found.program, target)
    assert not lowered.report.outside or form == "int8-tosa", str(lowered.report)
    if target == "xnnpack":  # Where an activation is a tie, another library rounds it otherwise.
        (given,), (wanted,) = lowered.run(x), found.program.run(x)
        assert float((given - wanted).abs().mean()) < 0.01 * float(wanted.abs().mean())


def test_scales_of_groups_stay_numbers_of_bfloat16() -> None:
    found = stepwell.accuracy(
        net(), "xnnpack", batches(7, 2), quantize="8da4w", levels=0, most=2, cures=("scales",)
    )
    assert found.program is not None and found.cures[0].kept, str(found)
    assert found.cures[0].recovered > 0.3, str(found)
    weights = found.program.weights
    scales = [
        weights.get(weight_key(op.operands[1]) or "")
        for op in found.program.module.walk()
        if "dequantize_affine" in op.name and weight_key(op.operands[0]) is not None
    ]
    assert len(scales) == 3
    for scale in scales:
        assert torch.equal(scale, scale.bfloat16().float())


@pytest.mark.parametrize(
    ("cure", "form", "message"),
    [("scales", "fp4e2m1", "chooses scales of integer weights"),
     ("biases", "8da4w", "changes biases of quantized layers")],
)  # fmt: skip
def test_a_cure_says_what_it_lacks(cure: str, form: str, message: str) -> None:
    model = nn.Sequential(nn.Linear(64, 6, bias=False)).eval()
    target = TARGET if form == "fp4e2m1" else "xnnpack"
    with pytest.raises(stepwell.StepwellError, match=message):
        stepwell.accuracy(model, target, batches(7, 2), quantize=form, levels=0, cures=(cure,))


def test_the_command_names_every_cure() -> None:
    assert CURES.split(",") == list(recover.CURES)
