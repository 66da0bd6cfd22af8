"""GuardSoftmaxInFloats: the guard of a softmax where a mask is known only at run time."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases
from torch import nn

import stepwell
from stepwell.translate.decompositions import attention
from stepwell.translate.lowerings.lowering import step

LEAST = torch.finfo(torch.float32).min


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Relative(nn.Module):
    """Scores with a term for where keys stand as seen from each query."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.places = nn.Parameter(torch.randn(5, 5, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        bias = torch.einsum("bqc,qkc->bqk", q, self.places)
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def hidden_cells() -> torch.Tensor:
    """Rows of a mask: closed, partly closed, least numbers, one of them beside a closed cell."""
    mask = torch.zeros(5, 5)
    mask[0], mask[1, 2], mask[2:4], mask[3, 0] = -torch.inf, -torch.inf, LEAST, -torch.inf
    return mask


def test_every_kind_of_row_is_attention_s_own_on_the_runtime() -> None:
    module, inputs = Masked().eval(), (torch.randn(1, 5, 8), hidden_cells())
    lowered = stepwell.lower(torch.export.export(module, inputs), "xnnpack")
    assert lowered.report.delegates == 1 and not lowered.report.outside
    (found,) = lowered.run(*inputs)
    assert bool((found[0, 0] == 0).all())
    torch.testing.assert_close(found, module(*inputs))


def test_every_kind_of_row_is_attention_s_own_on_tosa_s_reference_model() -> None:
    """Falcon with a mask of its inputs, for one, comes to this form."""
    module, inputs = Masked().eval(), (torch.randn(1, 5, 8), hidden_cells())
    (found,) = stepwell.lower(torch.export.export(module, inputs), "tosa-1.0+fp").run(*inputs)
    assert bool((found[0, 0] == 0).all())
    torch.testing.assert_close(found, module(*inputs))


def test_attention_with_a_mask_as_large_as_its_scores_is_taken_apart_for_tosa() -> None:
    """PyTorch decomposes it into its CPU's fused kernel, which is no operator of a target."""

    class Heads(Masked):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            q, k, v = (t.view(1, 5, 2, 4).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
            return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    mask = hidden_cells().expand(1, 2, 5, 5).contiguous()
    module, inputs = Heads().eval(), (torch.randn(1, 5, 8), mask)
    (found,) = stepwell.lower(torch.export.export(module, inputs), "tosa-1.0+fp").run(*inputs)
    assert bool((found[0, :, 0] == 0).all())
    torch.testing.assert_close(found, module(*inputs))


def test_a_boolean_mask_leaves_only_its_own_choice_outside() -> None:
    module, inputs = Masked().eval(), (torch.randn(1, 5, 8), hidden_cells() == 0)
    lowered = stepwell.lower(torch.export.export(module, inputs), "xnnpack")
    assert dict(lowered.report.outside) == {"aten.where.self": 1}
    torch.testing.assert_close(lowered.run(*inputs)[0], module(*inputs))


@pytest.mark.parametrize(
    ("norm", "numerics", "is_guarded"),
    [(None, "torch", True), (None, "finite", False), (nn.LayerNorm(8), "torch", False)],
)
def test_positions_relative_to_a_query_need_no_guard_where_they_are_numbers(
    norm: nn.Module | None, numerics: str, is_guarded: bool
) -> None:
    module, x = Relative().eval(), torch.randn(1, 5, 8)
    module = module if norm is None else nn.Sequential(norm, module)
    lowered = stepwell.lower(torch.export.export(module, (x,)), "xnnpack", numerics=numerics)
    assert lowered.report.delegates == 1 and not lowered.report.outside
    assert ("maximum" in str(lowered.program)) == is_guarded
    torch.testing.assert_close(lowered.run(x)[0], module(x))


@pytest.mark.parametrize("row", [[0.0, -torch.inf], [-torch.inf] * 2, [torch.nan, 0.0]])
def test_rows_of_infinities_and_nans_are_what_they_were(apply: Any, row: Any) -> None:
    done = apply(
        "%y = aten._safe_softmax.default(%s: f32[1, 2], 1)",
        step(attention.guard_softmax_in_floats),
    )
    scores = torch.tensor([row])
    expected = torch.ops.aten._safe_softmax(scores, 1)
    torch.testing.assert_close(
        done.program.run(scores)[0], expected, equal_nan=True, rtol=0, atol=0
    )


test_guard_softmax_in_floats = cases(attention)("""
guard-softmax-in-floats: halves have other largest numbers -> refused: float32
    %y = aten._safe_softmax.default(%s: f16[1, 2], 1)
""")
