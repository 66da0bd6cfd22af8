"""GuardSoftmaxInFloats: the guard of a softmax where a mask is known only at run time."""

from typing import Any

import pytest
import torch
from eager import EXACT, Function, assert_as_eager, assert_whole, lower
from rewrite_cases import cases
from torch import Tensor, nn
from torch.nn import functional as F

from stepwell.translate.decompositions import attention
from stepwell.translate.lowerings.lowering import step

LEAST, attend = torch.finfo(torch.float32).min, F.scaled_dot_product_attention


def masked(x: Tensor, mask: Tensor, qkv: nn.Module) -> Tensor:
    return attend(*qkv(x).chunk(3, -1), attn_mask=mask)


def of_heads(x: Tensor, mask: Tensor, qkv: nn.Module) -> Tensor:
    q, k, v = (t.view(1, 5, 2, 4).transpose(1, 2) for t in qkv(x).chunk(3, -1))
    return attend(q, k, v, attn_mask=mask)


def relative(x: Tensor, qkv: nn.Module, places: nn.Module) -> Tensor:
    """Scores with a term for where keys stand as seen from each query."""
    q, k, v = qkv(x).chunk(3, -1)
    table = places.weight.view(5, 5, 8)
    return attend(q, k, v, attn_mask=torch.einsum("bqc,qkc->bqk", q, table))


def hidden_cells() -> Tensor:
    """Rows of a mask: closed, partly closed, least numbers, one of them beside a closed cell."""
    mask = torch.zeros(5, 5)
    mask[0], mask[1, 2], mask[2:4], mask[3, 0] = -torch.inf, -torch.inf, LEAST, -torch.inf
    return mask


HEADS = hidden_cells().expand(1, 2, 5, 5).contiguous()


@pytest.mark.parametrize(
    ("model", "mask", "target"),
    [
        (masked, hidden_cells(), "xnnpack"),
        (masked, hidden_cells(), "tosa-1.0+fp"),  # Falcon with a mask of its inputs.
        # PyTorch decomposes it into its CPU's fused kernel, which is no operator of a target.
        (of_heads, HEADS, "tosa-1.0+fp"),
    ],
)
def test_every_kind_of_row_is_attention_s_own(model: Any, mask: Tensor, target: str) -> None:
    module, x = Function(model, nn.Linear(8, 24)), torch.randn(1, 5, 8)
    lowered = lower(module, x, mask, target=target)
    if target == "xnnpack":
        assert_whole(lowered)
    assert bool((lowered.run(x, mask)[0][..., 0, :] == 0).all())
    assert_as_eager(lowered, module, x, mask)


def test_a_boolean_mask_leaves_only_its_own_choice_outside() -> None:
    module, inputs = Function(masked, nn.Linear(8, 24)), (torch.randn(1, 5, 8), hidden_cells() == 0)
    lowered = lower(module, *inputs)
    assert dict(lowered.report.outside) == {"aten.where.self": 1}
    assert_as_eager(lowered, module, *inputs)


@pytest.mark.parametrize(
    ("norm", "numerics", "is_guarded"),
    [(None, "torch", True), (None, "finite", False), (nn.LayerNorm(8), "torch", False)],
)
def test_positions_relative_to_a_query_need_no_guard_where_they_are_numbers(
    norm: nn.Module | None, numerics: str, is_guarded: bool
) -> None:
    module: nn.Module = Function(relative, nn.Linear(8, 24), nn.Linear(8, 25, bias=False))
    module, x = module if norm is None else nn.Sequential(norm, module), torch.randn(1, 5, 8)
    lowered = lower(module, x, numerics=numerics)
    assert_whole(lowered)
    assert ("maximum" in str(lowered.program)) == is_guarded
    assert_as_eager(lowered, module, x)


@pytest.mark.parametrize("row", [[0.0, -torch.inf], [-torch.inf] * 2, [torch.nan, 0.0]])
def test_rows_of_infinities_and_nans_are_what_they_were(apply: Any, row: Any) -> None:
    done = apply(
        "%y = aten._safe_softmax.default(%s: f32[1, 2], 1)",
        step(attention.guard_softmax_in_floats),
    )
    scores = torch.tensor([row])
    assert_as_eager(done.program, lambda s: torch.ops.aten._safe_softmax(s, 1), scores, **EXACT)


test_guard_softmax_in_floats = cases(attention)("""
guard-softmax-in-floats: halves have other largest numbers -> refused: float32
    %y = aten._safe_softmax.default(%s: f16[1, 2], 1)
""")
