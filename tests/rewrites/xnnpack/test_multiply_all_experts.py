"""MultiplyAllExperts and AddUpBeforeExperts: mixtures of experts as one delegate, if that is cheap."""

import pytest
import torch
from rewrite_cases import cases
from torch import Tensor, nn
from torch.export import export

import stepwell
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.experts.add_up_before_experts import add_up_before_experts
from stepwell.translate.rewrites.experts.choose_by_rank import ChooseByRank
from stepwell.translate.rewrites.experts.multiply_all_experts import multiply_all_experts


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


test_multiply_all_experts = cases(step(multiply_all_experts), step(add_up_before_experts))("""
multiply-all-experts: weights that are computed are looked up -> unchanged
    %v, %i = aten.topk.default(%s: f32[3, 4], 2); %p = aten.view.default(%i, [6])
    %m = aten.index.Tensor(%w: f32[4, 5, 8], [%p])
    %e = aten.expand.default(%x: f32[3, 1, 8], [3, 2, 8]); %c = aten.view.default(%e, [6, 8, 1])
    %y = aten.bmm.default(%m, %c)
multiply-all-experts: places that something else reads -> refused: read by aten.remainder.Scalar as well
    %v, %i = aten.topk.default(%s: f32[3, 4], 2); %p = aten.view.default(%i, [6])
    %m = aten.index.Tensor(%w: weight f32[4, 5, 8], [%p])
    %e = aten.expand.default(%x: f32[3, 1, 8], [3, 2, 8]); %c = aten.view.default(%e, [6, 8, 1])
    %b = aten.bmm.default(%m, %c); %n = aten.remainder.Scalar(%p, 3)
    %y = aten.index.Tensor(%b, [%n])
add-up-before-experts: across tokens -> applied 0 times
    %v, %i = aten.topk.default(%s: f32[3, 4], 2); %p = aten.view.default(%i, [6])
    %m = aten.index.Tensor(%w: weight f32[4, 5, 8], [%p])
    %b = aten.bmm.default(%m, %c: f32[6, 8, 1]); %t = aten.view.default(%b, [2, 3, 5])
    %y = aten.sum.dim_IntList(%t, [1], true)
add-up-before-experts: over what a token takes -> applied once
    %v, %i = aten.topk.default(%s: f32[3, 4], 2); %p = aten.view.default(%i, [6])
    %m = aten.index.Tensor(%w: weight f32[4, 5, 8], [%p])
    %b = aten.bmm.default(%m, %c: f32[6, 8, 1]); %t = aten.view.default(%b, [3, 2, 5])
    %y = aten.sum.dim_IntList(%t, [1], true)
multiply-all-experts: rows of a table that an input names are looked up -> unchanged
    %m = aten.index.Tensor(%w: weight f32[4, 5, 8], [%j: i64[6]])
    %y = aten.bmm.default(%m, %c: f32[6, 8, 1])
multiply-all-experts: rows of a table that are read elsewhere are looked up -> unchanged
    %v, %i = aten.topk.default(%s: f32[3, 4], 2); %p = aten.view.default(%i, [6])
    %m = aten.index.Tensor(%w: weight f32[4, 5, 8], [%p])
    %b = aten.bmm.default(%m, %c: f32[6, 8, 1]); %n = aten.amax.default(%m)
    %y = aten.add.Tensor(%b, %n)
""")


test_multiply_all_experts_unrun = cases(
    step(multiply_all_experts), step(add_up_before_experts), run=False
)("""
multiply-all-experts: doubles are looked up -> unchanged
    %v, %i = aten.topk.default(%s: f32[3, 4], 2); %p = aten.view.default(%i, [6])
    %m = aten.index.Tensor(%w: weight f64[4, 5, 8], [%p])
    %y = aten.bmm.default(%m, %c: f64[6, 8, 1])
multiply-all-experts: what is summed is left to the sum -> unchanged
    %v, %i = aten.topk.default(%s: f32[3, 4], 2); %p = aten.view.default(%i, [6])
    %m = aten.index.Tensor(%w: weight f32[4, 5, 8], [%p])
    %b = aten.bmm.default(%m, %c: f32[6, 8, 1]); %t = aten.view.default(%b, [3, 2, 5])
    %y = aten.sum.dim_IntList(%t, [1], true)
add-up-before-experts: a sum over other axes is none of experts -> unchanged
    %v, %i = aten.topk.default(%s: f32[3, 4], 2); %p = aten.view.default(%i, [6])
    %m = aten.index.Tensor(%w: weight f32[4, 5, 8], [%p])
    %b = aten.bmm.default(%m, %c: f32[6, 8, 1]); %t = aten.view.default(%b, [3, 2, 5])
    %y = aten.sum.dim_IntList(%t, [2], true)
""")


PLACES = "%v, %i = aten.topk.default(%s: f32[3, 4], 2); %p = aten.view.default(%i, [6])"


test_rows_that_are_no_repetition = cases(step(multiply_all_experts), ChooseByRank)(f"""
multiply-all-experts: rows that are no repetition are multiplied by all too -> applied once; writes tensor<6x20xf32>
    {PLACES}
    %m = aten.index.Tensor(%w: weight f32[4, 5, 8], [%p]); %y = aten.bmm.default(%m, %c: f32[6, 8, 1])
choose-by-rank: what was multiplied by all is chosen by rank -> applied once
    {PLACES}
    %a = aten.view.default(%w: weight f32[4, 5, 8], [20, 8])
    %b = aten.view.default(%c: f32[6, 8, 1], [6, 8]); %d = aten.linear.default(%b, %a)
    %e = aten.view.default(%d, [6, 4, 5]); %f = aten.view.default(%p, [6, 1, 1])
    %g = aten.expand.default(%f, [6, 1, 5]); %h = aten.gather.default(%e, 1, %g)
    %y = aten.view.default(%h, [6, 5, 1])
""")


test_multiply_all_experts_alone = cases(step(multiply_all_experts))("""
rows that are made of one each are no repetition -> writes tensor<6x20xf32>
    %v, %i = aten.topk.default(%s: f32[3, 4], 2); %p = aten.view.default(%i, [6])
    %m = aten.index.Tensor(%w: weight f32[4, 5, 8], [%p])
    %e = aten.mul.Tensor(%x: f32[3, 1, 8], %z: f32[3, 2, 8]); %c = aten.view.default(%e, [6, 8, 1])
    %y = aten.bmm.default(%m, %c)
""")


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
