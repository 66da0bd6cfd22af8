"""What attention gives lies among its values, where scores are proved to be numbers."""

from functools import partial
from math import inf
from typing import Any

import pytest
import torch
from eager import Function, exported
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as attend

import stepwell
from stepwell.translate.range_analysis import interval

FINFO = torch.finfo(torch.float32)
IDS, X = torch.randint(0, 5, (1, 2, 3)), torch.randn(1, 2, 3, 4)
KEEP, TERM = torch.rand(1, 2, 3, 3) > 0.5, torch.randn(1, 2, 3, 3)


def attention(form: str, ids: Tensor, x: Tensor, keep: Tensor, term: Tensor, table: Any) -> Tensor:
    """Attention of rows of a table, in which no number is beyond 1."""
    v = table(ids)
    match form:
        case "plain":
            return attend(v, v, v)
        case "causal":
            return attend(v, v, v, is_causal=True)
        case "rows may be closed":
            return attend(v, v, v, keep)
        case "closed by the least number":
            return attend(v, v, v, torch.where(keep, 0.0, FINFO.min))
        case "taken apart":
            return (v @ v.mT).softmax(-1).view(2, 3, 3) @ v.view(2, 3, 4)
        case "any query":
            return attend(x, v, v)
        case "any key":
            return attend(v, x, v)
        case "any value":
            return attend(v, v, x)
        case "any mask":
            return attend(v, v, v, term)
        case "scores that overflow":
            return attend(v, v, v, scale=1e38)
        case "columns sum to 1":
            return (v @ v.mT).softmax(-2) @ v
        case _:
            return (v @ v.mT).softmax(-1).mT @ v


def attending(form: str) -> Function:
    table = nn.Embedding(5, 4)
    nn.init.uniform_(table.weight, -1, 1)
    table.weight.data[0, 0] = 1
    return Function(partial(attention, form), table)


PROVED = ("plain", "causal", "rows may be closed", "closed by the least number", "taken apart")
ALIEN = ("any query", "any key", "any value", "any mask", "scores that overflow")
WIDER = ("columns sum to 1", "columns are rows of a softmax")


@pytest.mark.parametrize("form", [*PROVED, *ALIEN, *WIDER])
def test_attention_stays_within_its_values(form: str) -> None:
    inputs = IDS, X, KEEP, TERM
    program = stepwell.from_exported_program(exported(attending(form), *inputs))
    returned = program.method().body.block.last_op
    assert returned is not None
    found = interval(returned.operands[0], program)
    if form in ALIEN:
        assert found.nan and found.most == inf
    else:  # Three rows of weights, each up to 1, where they are not the rows of a softmax.
        assert not found.nan
        assert (found.most < 2.01) == (form in PROVED)


@pytest.mark.parametrize("form", PROVED)
def test_eager_gives_what_is_proved(form: str) -> None:
    module = attending(form).requires_grad_(False)
    for keep in (KEEP, KEEP & False, KEEP | True):
        assert float(module(IDS, X, keep, TERM).abs().max()) <= 1 + 1e-6
