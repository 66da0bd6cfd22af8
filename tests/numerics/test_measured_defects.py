"""Numbers that were wrong once: resizing by a stated scale, attention without an open key."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from eager import lower


def lowered_and_eager(function: Any, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return lower(function, *inputs).run(*inputs)[0], function(*inputs)


@pytest.mark.parametrize(("size", "scale"), [(9, 0.5), (7, 1.5), (9, 2.0), (8, 0.5)])
@pytest.mark.parametrize("recompute", [None, True])
def test_a_resize_by_a_scale_steps_as_torch_does(
    size: int, scale: float, recompute: bool | None
) -> None:
    x = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    found, wanted = lowered_and_eager(
        lambda x: F.interpolate(
            x, scale_factor=scale, mode="bilinear", recompute_scale_factor=recompute
        ),
        x,
    )
    # Four products and three sums of numbers up to 4, however they are ordered.
    torch.testing.assert_close(found, wanted, rtol=0, atol=4 * 8 * 2**-23)


@pytest.mark.parametrize("keys", [1, 2, 3])
@pytest.mark.parametrize("closed", [False, float("-inf")])
@pytest.mark.parametrize("constant", [True, False])
def test_attention_to_keys_that_are_all_masked_is_zero(
    keys: int, closed: Any, constant: bool
) -> None:
    random = torch.Generator().manual_seed(0)
    q = torch.randn(1, 2, 3, 4, generator=random)
    k, v = (torch.randn(1, 2, keys, 4, generator=random) for _ in range(2))
    mask = torch.full((3, keys), closed)

    def attend(q: Any, k: Any, v: Any, *given: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=given[0] if given else mask)

    found, wanted = lowered_and_eager(attend, q, k, v, *(() if constant else (mask,)))
    assert torch.equal(wanted, torch.zeros_like(wanted))
    assert torch.equal(found, wanted)


@pytest.mark.parametrize(("second_is_bounded", "losses"), [(True, 0), (False, 1)])
def test_distances_overflow_where_either_operand_is_large(
    second_is_bounded: bool, losses: int
) -> None:
    def distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cdist(x.sigmoid(), y.sigmoid() if second_is_bounded else y)

    made = lower(distances, torch.rand(3, 4), torch.rand(2, 4), target="tosa-1.0+fp")
    assert len(made.report.deviations) == losses
