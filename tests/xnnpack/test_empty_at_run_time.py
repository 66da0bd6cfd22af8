"""A size that only data say may be 0: XNNPACK's nodes that fail on it, or leave it unwritten."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stepwell

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


class Chosen(nn.Module):
    """Of the rows that a mask keeps."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return self.function(x[keep])


@pytest.mark.parametrize("function", COMPUTED.values(), ids=COMPUTED)
def test_nothing_and_something_are_right(function: Callable[[Tensor], Tensor]) -> None:
    model, x = Chosen(function), torch.randn(6, 8)
    keep = torch.tensor([True, False, True, True, False, True])
    lowered = stepwell.lower(torch.export.export(model, (x, keep)), "xnnpack")
    for chosen in (keep, torch.zeros(6, dtype=torch.bool)):
        with torch.no_grad():
            wanted = model(x, chosen)
        torch.testing.assert_close(lowered.run(x, chosen)[0], wanted, rtol=1e-4, atol=1e-5)


def test_a_size_that_the_model_checks_is_multiplied_inside() -> None:
    def of_some(x: Tensor) -> Tensor:
        torch._check(x.shape[0] > 0)
        return x @ x.t()

    model, x = Chosen(of_some), torch.randn(6, 8)
    keep = torch.tensor([True, False, True, True, False, True])
    lowered = stepwell.lower(torch.export.export(model, (x, keep)), "xnnpack")
    assert "aten.bmm.default" not in lowered.report.outside
    torch.testing.assert_close(lowered.run(x, keep)[0], x[keep] @ x[keep].t())


def test_experts_are_given_as_many_rows_as_the_data_say() -> None:
    weights = torch.randn(3, 8, 8)

    class Experts(nn.Module):
        def forward(self, x: Tensor, expert: Tensor) -> Tensor:
            counts = torch.stack([(expert == e).sum() for e in range(3)]).tolist()
            rows = x[expert.argsort(stable=True)].split(counts)
            return torch.cat([row @ weight for row, weight in zip(rows, weights, strict=True)])

    x, model = torch.randn(6, 8), Experts()
    program = torch.export.export(model, (x, torch.tensor([0, 2, 1, 0, 2, 0])))
    lowered = stepwell.lower(program, "xnnpack")
    for expert in ([0, 2, 1, 0, 2, 0], [1, 1, 1, 1, 1, 1], [2, 0, 0, 2, 2, 0]):
        given = torch.tensor(expert)
        torch.testing.assert_close(lowered.run(x, given)[0], model(x, given), rtol=1e-4, atol=1e-5)
