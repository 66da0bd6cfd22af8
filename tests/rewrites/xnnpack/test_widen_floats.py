"""WidenBfloat, CancelNarrowing and WidenMixedFloats: what they leave alone, and a model of each."""

import torch
from rewrite_cases import cases
from torch import Tensor, nn

import stepwell
from stepwell.translate.decompositions import floats, promotions
from stepwell.translate.rewrites.xnnpack.floats.cancel_narrowing import CancelNarrowing

test_widen_floats = cases(
    floats,
    promotions,
    CancelNarrowing,
    """
widen-bfloat: arithmetic of halves -> unchanged
    %y = aten.sigmoid.default(%x: f16[4])
widen-bfloat: an input that is moved -> unchanged
    %y = aten.permute.default(%x: bf16[4], [0])
widen-bfloat: a truth value of bfloat16s -> unchanged
    %y = aten.gt.Scalar(%x: bf16[4], 0.5)
widen-mixed-floats: operands of one width -> unchanged
    %y = aten.mul.Tensor(%x: f32[4], %x)
widen-mixed-floats: a quotient of integers -> unchanged
    %y = aten.div.Tensor(%x: i64[4], %x)
widen-mixed-floats: a single number beside halves -> unchanged
    %y = aten.mul.Tensor(%x: f16[4], %s: f32[])
cancel-narrowing: a cast that rounds nothing -> unchanged
    %y = aten._to_copy.default(%x: bf16[4], dtype=f32)
cancel-narrowing: a rounding to halves -> unchanged
    %h = aten._to_copy.default(%x: f32[4], dtype=f16)
    %y = aten._to_copy.default(%h, dtype=f32)
""",
)


class Rounded(nn.Module):
    """Singles rounded to bfloat16 by the model itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.bfloat16().float() * 2


def test_a_rounding_that_the_model_asks_for_stays() -> None:
    x = torch.tensor([1.001, torch.finfo(torch.float32).max, -0.3])
    lowered = stepwell.lower(torch.export.export(Rounded(), (x,)), "xnnpack")
    assert lowered.run(x)[0].equal(Rounded()(x))


class Block(nn.Module):
    """A gated layer behind a norm computed in single precision, as language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.gate, self.down = nn.Linear(64, 96), nn.Linear(64, 96), nn.Linear(96, 64)
        self.scale = nn.Parameter(torch.rand(64) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x)
        y = normed * self.scale
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def test_a_block_in_bfloat16_is_one_delegate_and_no_further_from_the_exact_result_than_torch() -> (
    None
):
    torch.manual_seed(0)
    model = Block().eval().to(torch.bfloat16)
    x = torch.randn(1, 5, 64).to(torch.bfloat16)
    lowered = stepwell.lower(torch.export.export(model, (x,)), "xnnpack")
    assert lowered.report.delegates == 1
    assert set(lowered.report.outside) == {"aten._to_copy.default"}
    exact = model.double()(x.double())
    ours, torchs = lowered.run(x)[0], model.to(torch.bfloat16)(x)
    last_rounding = exact.abs().max() * 2**-8
    assert (ours - exact).abs().max() <= (torchs - exact).abs().max() + last_rounding


def test_a_float_mask_meets_scores_in_halves_in_one_delegate() -> None:
    class Masked(nn.Module):
        def forward(self, q: Tensor, mask: Tensor) -> Tensor:
            return torch.softmax(q @ q.transpose(-1, -2) + mask, -1)

    q, mask = torch.randn(2, 4, 8).half(), torch.randn(4, 4)
    lowered = stepwell.lower(torch.export.export(Masked(), (q, mask)), "xnnpack")
    assert (lowered.report.delegates, sum(lowered.report.outside.values())) == (1, 0)
    # Eight products are summed in halves, each sum off by at most half a unit: 8 · 2^-11 · 8 · 16.
    torch.testing.assert_close(lowered.run(q, mask)[0], Masked()(q, mask), atol=0.05, rtol=0.05)


def test_integers_and_truths_meet_singles_in_one_delegate() -> None:
    class Places(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("at", torch.arange(6))
            self.layer = nn.Linear(6, 6)

        def forward(self, x: Tensor, sizes: Tensor) -> Tensor:
            return (self.layer(x) / sizes + self.at) * (sizes > 2)

    inputs = torch.randn(3, 6), torch.randint(1, 5, (3, 1))
    exported = torch.export.export(Places().eval(), inputs)
    lowered = stepwell.lower(exported, "xnnpack")
    assert lowered.report.delegates == 1
    assert set(lowered.report.outside) == {"aten._to_copy.default", "aten.gt.Scalar"}
    torch.testing.assert_close(lowered.run(*inputs)[0], exported.module()(*inputs))
