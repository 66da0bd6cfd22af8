"""A size that only data say may be 0: XNNPACK's nodes that fail on it, or leave it unwritten."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from eager import Function, assert_as_eager, lower
from torch import Tensor, nn

CONVOLUTION = nn.Conv2d(8, 4, 1).eval()
TRANSPOSED = nn.ConvTranspose2d(8, 4, 2, 2).eval()
KEYS = torch.randn(1, 5, 8)

COMPUTED: dict[str, Callable[[Tensor], Tensor]] = {
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "its queries": lambda x: F.scaled_dot_product_attention(x[None], KEYS, KEYS),
    "its keys": lambda x: F.scaled_dot_product_attention(KEYS, x[None], x[None]),
    "softmax along it": lambda x: (x * 2).softmax(0) * 2,
    "product over it": lambda x: x.t() @ x,
    "mm over it": lambda x: torch.mm(x.t() * 2, x),
    "sum along it": lambda x: (x * 2).sum(0) * 2,
    "convolution": lambda x: CONVOLUTION(x[:, :, None, None]),
    "transposed convolution": lambda x: TRANSPOSED(x[:, :, None, None]),
    "linear": lambda x: F.linear(x, KEYS[0]),
    "norm": lambda x: F.layer_norm(x, (8,)),
    "cat": lambda x: torch.cat([x * 2, KEYS[0]]) * 2,
    "mean of rows": lambda x: (x * 2).mean(-1) * 2,
}


X = torch.randn(6, 8)
SOME, NONE = torch.tensor([True, False, True, True, False, True]), torch.zeros(6, dtype=torch.bool)


@pytest.mark.parametrize("name", COMPUTED)
def test_rows_that_a_mask_keeps_are_right_whether_there_are_any(name: str) -> None:
    model = Function(lambda x, keep: COMPUTED[name](x[keep]))
    lowered = lower(model, X, SOME)
    for keep in (SOME, NONE):
        assert_as_eager(lowered, model, X, keep, rtol=1e-4, atol=1e-5)


def test_a_size_that_the_model_checks_is_multiplied_inside() -> None:
    def of_some(x: Tensor, keep: Tensor) -> Tensor:
        kept = x[keep]
        torch._check(kept.shape[0] > 0)
        return kept @ kept.t()

    lowered = lower(of_some, X, SOME)
    assert "aten.bmm.default" not in lowered.report.outside
    assert_as_eager(lowered, of_some, X, SOME)


def test_experts_are_given_as_many_rows_as_the_data_say() -> None:
    weights = torch.randn(3, 8, 8)

    def experts(x: Tensor, expert: Tensor) -> Tensor:
        counts = torch.stack([(expert == e).sum() for e in range(3)]).tolist()
        rows = x[expert.argsort(stable=True)].split(counts)
        return torch.cat([row @ weight for row, weight in zip(rows, weights, strict=True)])

    lowered = lower(experts, X, torch.tensor([0, 2, 1, 0, 2, 0]))
    for expert in ([0, 2, 1, 0, 2, 0], [1, 1, 1, 1, 1, 1], [2, 0, 0, 2, 2, 0]):
        assert_as_eager(lowered, experts, X, torch.tensor(expert), rtol=1e-4, atol=1e-5)
