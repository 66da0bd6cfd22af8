"""MultiplyAllExperts and AddUpBeforeExperts: mixtures of experts as one delegate, if that is cheap."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import export

import stepwell
from stepwell.translate.rewrites.experts.add_up_before_experts import AddUpBeforeExperts
from stepwell.translate.rewrites.experts.choose_by_rank import ChooseByRank
from stepwell.translate.rewrites.experts.multiply_all_experts import MultiplyAllExperts


class Experts(nn.Module):
    """A norm, a router, and experts as transformers batches them."""

    def __init__(
        self, experts: int, taken: int, biased: bool = False, turned: bool = False
    ) -> None:
        super().__init__()
        self.taken, self.turned = taken, turned
        self.norm, self.router = nn.RMSNorm(16, eps=1e-6), nn.Linear(16, experts)
        self.up = nn.Parameter(torch.randn(experts, 48, 16) / 4)
        self.down = nn.Parameter(torch.randn(experts, 16, 24) / 4)
        self.biases = nn.ParameterList(torch.randn(experts, n) for n in (48, 16) if biased)

    def multiplied(self, weight: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        if self.turned:
            return (rows.unsqueeze(1) @ weight.transpose(1, 2).contiguous()[places]).squeeze(1)
        return (weight[places] @ rows.unsqueeze(-1)).squeeze(-1)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.norm(x)
        scores, places = self.router(rows).softmax(-1).topk(self.taken)
        scores, places = (scores / scores.sum(-1, keepdim=True)).reshape(-1), places.reshape(-1)
        made = self.multiplied(self.up, rows.repeat_interleave(self.taken, 0), places)
        if len(self.biases):
            made = made + self.biases[0][places]
        gate, up = made.chunk(2, -1)
        made = self.multiplied(self.down, nn.functional.silu(gate) * up, places)
        if len(self.biases):
            made = made + self.biases[1][places]
        return x + (made * scores[:, None]).view(len(x), self.taken, -1).sum(1)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("taken", [1, 2])
def test_a_mixture_of_experts_is_one_delegate(taken: int, biased: bool, turned: bool):
    torch.manual_seed(taken)
    module, x = Experts(4, taken, biased, turned).eval(), torch.randn(6, 16)
    lowered = stepwell.lower(export(module, (x,)), "xnnpack", ranges={"x": (-8, 8)})
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    assert "beside what is chosen" not in str(lowered.report.deviations)
    torch.testing.assert_close(lowered.run(x)[0], module(x), rtol=1e-5, atol=1e-5)


class Decoder(nn.Module):
    """A table, attention behind a norm, and experts."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(9, 16), nn.RMSNorm(16, eps=1e-6)
        self.into, self.experts = nn.Linear(16, 48), Experts(4, 2)

    def attended(self, x: Tensor) -> Tensor:
        rows = self.into(self.norm(x)).view(1, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
        made = nn.functional.scaled_dot_product_attention(*rows, is_causal=True)
        return self.experts(x + made.transpose(1, 2).reshape(6, 16))

    def forward(self, ids: Tensor) -> Tensor:
        return self.attended(self.table(ids))


def test_a_router_behind_attention_of_rows_of_a_table_is_proved_finite():
    module, ids = Decoder().eval(), torch.tensor([3, 0, 8, 8, 1, 5])
    lowered = stepwell.lower(export(module, (ids,)), "xnnpack")
    assert (lowered.report.delegates, sum(lowered.report.outside.values())) == (1, 1)
    torch.testing.assert_close(lowered.run(ids)[0], module(ids), rtol=1e-5, atol=1e-5)
    module.forward = module.attended
    rows = stepwell.lower(export(module, (torch.randn(6, 16),)), "xnnpack")
    assert rows.report.delegates > 1


def test_a_token_of_nan_leaves_the_others_alone():
    module, x = Experts(4, 2).eval(), torch.randn(6, 16)
    x[2, 3] = torch.nan
    (found,) = stepwell.lower(export(module, (x,)), "xnnpack").run(x)
    torch.testing.assert_close(found, module(x), rtol=1e-5, atol=1e-5, equal_nan=True)


def test_few_of_many_experts_are_looked_up_for_one_token():
    lowered = stepwell.lower(export(Experts(64, 1).eval(), (torch.randn(1, 16),)), "xnnpack")
    assert lowered.report.outside["aten.index.Tensor"] == 2
    reasons = {record.reason for record in lowered.report.refusals}
    assert any(reason.startswith("1 of 64 for 1 rows") for reason in reasons)


PLACES = """%v, %i = aten.topk.default(%s, 2) : (tensor<3x4xf32>) -> (tensor<3x2xf32>, tensor<3x2xi64>)
  %p = aten.view.default(%i, [6]) : (tensor<3x2xi64>) -> tensor<6xi64>
  %m = aten.index.Tensor(%w, [%p]) : (tensor<4x5x8xf32>, tensor<6xi64>) -> tensor<6x5x8xf32>"""
WEIGHT = '%w = stepwell.weight <"w"> "parameter" : tensor<4x5x8xf32>'
SHARED = """%e = aten.expand.default(%x, [3, 2, 8]) : (tensor<3x1x8xf32>) -> tensor<3x2x8xf32>
  %c = aten.view.default(%e, [6, 8, 1]) : (tensor<3x2x8xf32>) -> tensor<6x8x1xf32>"""
PRODUCT = "aten.bmm.default(%m, %c) : (tensor<6x5x8xf32>, tensor<6x8x1xf32>) -> tensor<6x5x1xf32>"
ADDED = """%t = aten.view.default(%b, [{shape}]) : (tensor<6x5x1xf32>) -> tensor<{type}xf32>
  %y = aten.sum.dim_IntList(%t, [1], true) : (tensor<{type}xf32>) -> {gives}"""
GIVEN = "%s: tensor<3x4xf32>"


def test_weights_that_are_computed_are_looked_up(refused: Any, method: Any):
    arguments = f"{GIVEN}, %x: tensor<3x1x8xf32>, %w: tensor<4x5x8xf32>"
    text = method(arguments, PLACES, SHARED, f"%y = {PRODUCT}", gives="tensor<6x5x1xf32>")
    refused(text, MultiplyAllExperts())


def test_rows_that_are_no_repetition_are_multiplied_by_all_too(apply: Any, method: Any):
    text = method(
        f"{GIVEN}, %c: tensor<6x8x1xf32>", WEIGHT, PLACES, f"%y = {PRODUCT}",
        gives="tensor<6x5x1xf32>",
    )  # fmt: skip
    done = apply(text, MultiplyAllExperts())
    assert done.count == 1 and "tensor<6x20xf32>" in done.text
    assert apply(done.text, ChooseByRank()).count == 1


def test_rows_that_are_made_of_one_each_are_no_repetition(apply: Any, method: Any):
    expand = "aten.expand.default(%x, [3, 2, 8]) : (tensor<3x1x8xf32>)"
    product = "aten.mul.Tensor(%x, %z) : (tensor<3x1x8xf32>, tensor<3x2x8xf32>)"
    text = method(
        f"{GIVEN}, %x: tensor<3x1x8xf32>, %z: tensor<3x2x8xf32>", WEIGHT, PLACES,
        SHARED.replace(expand, product), f"%y = {PRODUCT}",
        gives="tensor<6x5x1xf32>",
    )  # fmt: skip
    assert "tensor<6x20xf32>" in apply(text, MultiplyAllExperts()).text


class NormedExperts(Experts):
    """What an expert gives is normed before it is added up."""

    def multiplied(self, weight: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        made = super().multiplied(weight, rows, places)
        return nn.functional.rms_norm(made, made.shape[-1:]) if made.shape[1] == 16 else made


def test_experts_whose_results_are_normed_are_one_delegate_too():
    module, x = NormedExperts(4, 2).eval(), torch.randn(6, 16)
    lowered = stepwell.lower(export(module, (x,)), "xnnpack", ranges={"x": (-8, 8)})
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    torch.testing.assert_close(lowered.run(x)[0], module(x), rtol=1e-5, atol=1e-5)


def test_places_that_something_else_reads_are_left(refused: Any, method: Any):
    again = PLACES.replace("%i", "%i").replace("[6]", "[6]")
    text = method(
        f"{GIVEN}, %x: tensor<3x1x8xf32>", WEIGHT, again, SHARED, f"%b = {PRODUCT}",
        "%n = aten.add.Scalar(%p, 1) : (tensor<6xi64>) -> tensor<6xi64>",
        "%y = aten.index.Tensor(%b, [%n]) : (tensor<6x5x1xf32>, tensor<6xi64>) -> tensor<6x5x1xf32>",
        gives="tensor<6x5x1xf32>",
    ).replace("add.Scalar(%p, 1)", "remainder.Scalar(%p, 3)")  # fmt: skip
    refused(text, MultiplyAllExperts(), "read by aten.remainder.Scalar as well")


@pytest.mark.parametrize(
    ("type_", "gives"),
    [("2x3x5", "tensor<2x1x5xf32>"), ("3x2x5", "tensor<3x1x5xf32>")],
    ids=["across tokens", "over what a token takes"],
)
def test_only_the_sum_over_what_a_token_takes_is_moved(
    type_: str, gives: str, apply: Any, method: Any
):
    added = ADDED.format(shape=type_.replace("x", ", "), type=type_, gives=gives)
    arguments = f"{GIVEN}, %c: tensor<6x8x1xf32>"
    text = method(arguments, WEIGHT, PLACES, f"%b = {PRODUCT}", added, gives=gives)
    assert apply(text, AddUpBeforeExperts()).count == (type_ == "3x2x5")


def test_rows_of_a_table_that_an_input_names_are_looked_up(refused: Any, method: Any):
    looked_up = PLACES.splitlines()[-1].replace("%p", "%j").strip()
    arguments = "%j: tensor<6xi64>, %c: tensor<6x8x1xf32>"
    text = method(arguments, WEIGHT, looked_up, f"%y = {PRODUCT}", gives="tensor<6x5x1xf32>")
    refused(text, MultiplyAllExperts())


def test_rows_of_a_table_that_are_read_elsewhere_are_looked_up(refused: Any, method: Any):
    lines = [
        f"%b = {PRODUCT}",
        "%n = aten.amax.default(%m) : (tensor<6x5x8xf32>) -> tensor<f32>",
        "%y = aten.add.Tensor(%b, %n) : (tensor<6x5x1xf32>, tensor<f32>) -> tensor<6x5x1xf32>",
    ]
    arguments = f"{GIVEN}, %c: tensor<6x8x1xf32>"
    refused(
        method(arguments, WEIGHT, PLACES, *lines, gives="tensor<6x5x1xf32>"), MultiplyAllExperts()
    )


def test_doubles_are_looked_up(left: Any, method: Any):
    lines = [line.replace("f32", "f64") for line in (WEIGHT, f"%y = {PRODUCT}")]
    places = PLACES.replace("tensor<4x5x8xf32>", "tensor<4x5x8xf64>").replace(
        "6x5x8xf32", "6x5x8xf64"
    )
    arguments = f"{GIVEN}, %c: tensor<6x8x1xf64>"
    left(
        method(arguments, lines[0], places, lines[1], gives="tensor<6x5x1xf64>"),
        MultiplyAllExperts(),
    )


def test_what_is_summed_is_left_to_the_sum(left: Any, method: Any):
    gives = "tensor<3x1x5xf32>"
    added = ADDED.format(shape="3, 2, 5", type="3x2x5", gives=gives)
    arguments = f"{GIVEN}, %c: tensor<6x8x1xf32>"
    text = method(arguments, WEIGHT, PLACES, f"%b = {PRODUCT}", added, gives=gives)
    left(text, MultiplyAllExperts())


def test_a_sum_over_other_axes_is_none_of_experts(left: Any, method: Any):
    gives = "tensor<3x2x1xf32>"
    added = ADDED.format(shape="3, 2, 5", type="3x2x5", gives=gives).replace(
        "[1], true", "[2], true"
    )
    arguments = f"{GIVEN}, %c: tensor<6x8x1xf32>"
    text = method(arguments, WEIGHT, PLACES, f"%b = {PRODUCT}", added, gives=gives)
    left(text, AddUpBeforeExperts())
