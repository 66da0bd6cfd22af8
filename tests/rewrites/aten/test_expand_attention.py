"""Attention as products and a softmax, of any length, and what stays whole."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.translate.decompositions import attention
from stepwell.translate.lowerings.lowering import step

NAME = "aten.scaled_dot_product_attention.default"
T = "tensor<1x2x4x8xf32>"


test_expand_attention = cases(attention)("""
expand-attention: a mask that closes a row -> refused: row
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %q, %q, %m: buffer "m#zeros" i1[4, 4])
expand-attention: a mask with one open cell in each row is added -> applied once
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %q, %q, %m: buffer "m#causal" i1[4, 4])
expand-attention: any number is a scale -> applied once
    - %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %q, %q, scale=0.0)
    - %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %q, %q, scale=-2.0)
expand-attention: a causal mask of more keys than queries begins at the first -> applied once
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 6, 8], %k, none, 0.0, true)
expand-attention: attention stays whole with -> refused: eval mode
    %s = sym.constant 5.000000e-01 : f64 : !stepwell.float<"0.5">
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 4, 8], %k, none, 1.0)
expand-attention: a causal mask of any length -> refused: is_causal
    %s = sym.constant 5.000000e-01 : f64 : !stepwell.float<"0.5">
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 4, n, 8], %k: f32[1, 4, n, 8], %k, none, 0.0, true)
expand-attention: any number of heads -> refused: number of heads
    %s = sym.constant 5.000000e-01 : f64 : !stepwell.float<"0.5">
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, n, 4, 8], %k: f32[1, n, 4, 8], %k, enable_gqa=true)
expand-attention: groups of any length -> refused: queries
    %s = sym.constant 5.000000e-01 : f64 : !stepwell.float<"0.5">
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 4, n, 8], %k: f32[1, 2, 4, 8], %k, enable_gqa=true)
expand-attention: a scale of any head size -> refused: head size
    %s = sym.constant 5.000000e-01 : f64 : !stepwell.float<"0.5">
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, n], %k: f32[1, 2, 4, n], %k)
expand-attention: a scale computed at run time -> refused: run time
    %s = sym.constant 5.000000e-01 : f64 : !stepwell.float<"0.5">
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 4, 8], %k, scale=%s)
expand-attention-of-any-length: lengths that are numbers -> unchanged
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 4, 8], %k)
expand-attention-of-any-length: attention stays whole with -> refused: eval mode
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 4, n, 8], %k: f32[1, 4, n, 8], %k, none, 1.0)
expand-attention-of-any-length: any number of heads -> refused: number of heads
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, h, n, 8], %k: f32[1, h, n, 8], %k, enable_gqa=true)
expand-attention-of-any-length: heads that share keys in any batch -> refused: batch is
    %y = aten.scaled_dot_product_attention.default(%q: f32[b, 4, n, 8], %k: f32[b, 2, n, 8], %k, enable_gqa=true)
expand-attention-of-any-length: a scale of any head size -> refused: head size
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 4, n, d], %k: f32[1, 4, n, d], %k)
expand-attention-of-any-length: matrices without heads -> refused: stacks of heads
    %y = aten.scaled_dot_product_attention.default(%q: f32[n, 8], %k: f32[n, 8], %k)
""")


@pytest.mark.parametrize(("keys", "sees_heads"), [(6, False), (70_000, True)])
def test_the_rows_of_a_small_mask_are_repeated_for_heads_that_share_keys(
    keys: int, sees_heads: bool, apply: Any, method: Any
) -> None:
    """So that scores are never seen head by head: no view stands before the softmax."""
    k = f"tensor<1x1x{keys}x8xf32>"
    mask = f'%m = stepwell.weight <"m#causal"> "buffer" : tensor<4x{keys}xi1>'
    line = f"%y = {NAME}(%q, %k, %k, %m, enable_gqa=true) : ({T}, {k}, {k}, tensor<4x{keys}xi1>) -> {T}"
    done = apply(method(f"%q: {T}, %k: {k}", mask, line, gives=T), step(attention.expand_attention))
    ops = done.ops()
    assert ("aten.view.default" in ops[ops.index("aten.matmul.default") : -2]) == sees_heads


MASKS = {
    "a head each": "tensor<1x2x4x6xf32>",
    "one row for all": "tensor<1x6xf32>",
    "an argument": "",
}


@pytest.mark.parametrize("name", MASKS)
def test_scores_are_seen_head_by_head_where_the_mask_is(name: str, apply: Any, method: Any) -> None:
    k, type_ = "tensor<1x1x6x8xf32>", MASKS[name] or "tensor<4x6xf32>"
    given = f'%m = stepwell.weight <"m"> "buffer" : {type_}'
    line = f"%y = {NAME}(%q, %k, %k, %m, enable_gqa=true) : ({T}, {k}, {k}, {type_}) -> {T}"
    if name == "an argument":
        given = f"%m = aten.neg.default(%r) : ({type_}) -> {type_}"
    arguments = f"%q: {T}, %k: {k}" + (f", %r: {type_}" if name == "an argument" else "")
    done = apply(method(arguments, given, line, gives=T), step(attention.expand_attention))
    ops = done.ops()
    assert done.count == (name != "an argument")
    assert "aten.view.default" in ops[ops.index("aten.matmul.default") : -2] if done.count else True


class Attention(nn.Module):
    """Heads of projections of tokens, with a mask of some kind."""

    def __init__(self, kind: str, keys: int, cross: int | None) -> None:
        super().__init__()
        self.kind, self.cross = kind, cross
        self.query = nn.Linear(16, 32)
        self.key, self.value = nn.Linear(16, 8 * keys), nn.Linear(16, 8 * keys)
        self.register_buffer("square", torch.ones(16, 16, dtype=torch.bool).tril())

    def _mask(self, length: int, mask: Tensor) -> Tensor | None:
        match self.kind:
            case "sliced":
                return self.square[:length, :length]
            case "given":
                return mask[:, None, None] > 0
            case "added":
                return torch.where(mask > 0, 0.0, float("-inf"))[:, None, None]
            case "positions":
                return (torch.arange(length)[:, None] >= torch.arange(length))[None, None]
            case _:
                return None

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        seen = x if self.cross is None else x[:, :1].expand(batch, self.cross, 16)
        q, k, v = (
            part(source).view(batch, source.shape[1], -1, 8).transpose(1, 2)
            for part, source in ((self.query, x), (self.key, seen), (self.value, seen))
        )
        if q.shape[1] != k.shape[1]:
            k, v = (part.repeat_interleave(4 // part.shape[1], dim=1) for part in (k, v))
        causal = self.kind == "causal"
        chosen = self._mask(length, mask)
        y = F.scaled_dot_product_attention(q, k, v, chosen, is_causal=causal)
        return y.transpose(1, 2).reshape(batch, length, 32)


KINDS = [
    ("none", 1, 2),
    ("causal", 1, 4),
    ("causal", 2, 2),
    ("sliced", 1, 2),
    ("given", 2, 4),
    ("given", 2, 2),
    ("added", 2, 1),
    ("positions", 1, 1),
]


@pytest.mark.parametrize(("kind", "batch", "keys"), KINDS)
def test_any_mask_and_any_length_is_one_delegate_that_computes_what_torch_does(
    kind: str, batch: int, keys: int
) -> None:
    torch.manual_seed(1)
    model = Attention(kind, keys, None).eval()
    length = Dim("n", min=2, max=12)
    example = (torch.randn(batch, 5, 16), torch.ones(batch, 5))
    exported = torch.export.export(model, example, dynamic_shapes=({1: length}, {1: length}))
    lowered = stepwell.lower(exported, "xnnpack")
    assert lowered.report.delegates == 1
    session = PteSession.load(lowered.to_pte())
    for size in (2, 7, 12):
        x, mask = torch.randn(batch, size, 16), (torch.rand(batch, size) > 0.4).float()
        mask[-1] = 0  # Every row of the last image is closed: PyTorch gives zeros.
        torch.testing.assert_close(session.run(x, mask)[0], model(x, mask))


def test_queries_of_any_length_over_keys_of_one() -> None:
    model = Attention("causal", 2, 7).eval()
    exported = torch.export.export(
        model,
        (torch.randn(1, 5, 16), torch.ones(1, 5)),
        dynamic_shapes=({1: (n := Dim("n", min=2, max=12))}, {1: n}),
    )
    lowered = stepwell.lower(exported, "xnnpack")
    x, mask = torch.randn(1, 9, 16), torch.ones(1, 9)
    torch.testing.assert_close(lowered.run(x, mask)[0], model(x, mask))


class Buckets(nn.Module):
    """T5's bias: a table of numbers for logarithms of distances, permuted to the heads."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(6, 4), nn.Linear(8, 32)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        at = torch.arange(length)
        far = (at[:, None] - at).abs()
        near = (torch.log(far.float() + 1.0) * 2.0).to(torch.long).clamp(max=5)
        bias = self.table(near).permute(2, 0, 1)[None]
        bias = torch.where(at[:, None] >= at, bias, float("-inf"))
        q = self.layer(x).view(1, length, 4, 8).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q, bias)


def test_floats_that_positions_become_on_their_way_to_integers_stay_outside() -> None:
    model = Buckets().eval()
    exported = torch.export.export(
        model, (torch.randn(1, 5, 8),), dynamic_shapes=({1: Dim("n", min=2, max=9)},)
    )
    lowered = stepwell.lower(exported, "xnnpack")
    assert lowered.report.delegates == 1
    assert lowered.report.outside["aten.log.default"] == 1
    x = torch.randn(1, 8, 8)
    torch.testing.assert_close(lowered.run(x)[0], model(x))
