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


test_expand_attention = cases(attention)("""
expand-attention: a mask that closes a row -> refused: row
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %q, %q, %m: buffer "m#zeros" i1[4, 4])
expand-attention: a mask with one open cell in each row is added -> applied once
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %q, %q, %m: buffer "m#causal" i1[4, 4])
expand-attention: a mask computed at run time, of heads that share keys -> applied 0 times
    %m = aten.neg.default(%r: f32[4, 6])
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %k: f32[1, 1, 6, 8], %k, %m, enable_gqa=true)
expand-attention: any number is a scale -> applied once
    - %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %q, %q, scale=0.0)
    - %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %q, %q, scale=-2.0)
expand-attention: a causal mask of more keys than queries begins at the first -> applied once
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 6, 8], %k, none, 0.0, true)
expand-attention: attention stays whole with -> refused: eval mode
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 4, 8], %k, none, 1.0)
expand-attention: a causal mask of any length -> refused: is_causal
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 4, n, 8], %k: f32[1, 4, n, 8], %k, none, 0.0, true)
expand-attention: any number of heads -> refused: number of heads
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, n, 4, 8], %k: f32[1, n, 4, 8], %k, enable_gqa=true)
expand-attention: groups of any length -> refused: queries
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 4, n, 8], %k: f32[1, 2, 4, 8], %k, enable_gqa=true)
expand-attention: a scale of any head size -> refused: head size
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
expand-attention-of-any-length: heads that share keys in any batch -> refused: enable_gqa is set
    %y = aten.scaled_dot_product_attention.default(%q: f32[b, 4, n, 8], %k: f32[b, 2, n, 8], %k, enable_gqa=true)
expand-attention-of-any-length: a scale of any head size -> refused: head size
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 4, n, d], %k: f32[1, 4, n, d], %k)
expand-attention-of-any-length: matrices without heads -> refused: stacks of heads
    %y = aten.scaled_dot_product_attention.default(%q: f32[n, 8], %k: f32[n, 8], %k)
""")


@pytest.mark.parametrize(
    ("keys", "mask", "sees_heads"),
    [
        (6, '%m: buffer "m#causal" i1[4, 6]', False),
        (70_000, '%m: buffer "m#causal" i1[4, 70000]', True),
        (6, "%m: buffer f32[1, 2, 4, 6]", True),
        (6, "%m: buffer f32[1, 6]", True),
    ],
    ids=["the rows of a small mask are repeated", "a large mask", "a head each", "one row for all"],
)
def test_scores_are_seen_head_by_head_where_the_mask_is(
    keys: int, mask: str, sees_heads: bool, apply: Any
) -> None:
    """Of heads that share keys; where they are not, no view stands before the softmax."""
    line = (
        f"%y = {NAME}(%q: f32[1, 2, 4, 8], %k: f32[1, 1, {keys}, 8], %k, {mask}, enable_gqa=true)"
    )
    done = apply(line, step(attention.expand_attention))
    ops = done.ops()
    assert done.count == 1
    assert ("aten.view.default" in ops[ops.index("aten.matmul.default") : -2]) == sees_heads


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
