"""What a kernel gets wrong is computed by others, to the last bit, or refused before it runs."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from eager import EXACT, Function, Model, assert_as_eager, lower

from stepwell.ir.diagnostics import StepwellError, UnsupportedError

WIDE = (torch.int8, torch.int16, torch.int32, torch.int64)
Case = tuple[Model, tuple[torch.Tensor, ...]]


def dividends(dtype: torch.dtype) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    return torch.tensor([-7, 7, -5, 0, limits.max, limits.min, limits.max - 1], dtype=dtype)


def of_each(function: Callable[..., torch.Tensor], numbers: list[int]) -> Model:
    """A function of a tensor and of each number, stacked."""
    return lambda x: torch.stack([function(x, number) for number in numbers])


QUOTIENTS: dict[str, Callable[..., torch.Tensor]] = {
    "remainders": torch.remainder,
    "fmod": torch.fmod,
    "truncated quotients": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floored quotients": lambda a, b: torch.div(a, b, rounding_mode="floor"),
}
SHIFTS = {"left": torch.bitwise_left_shift, "right": torch.bitwise_right_shift}
COUNTS = [3, 7, 8, 9, 15, 16, 31, 32, 63, 64, 100, 256, 257, -1, -8]
"""A count by number is one of the tensor's dtype: 257 is 1 for eight bits."""


def of_integers() -> Iterator[tuple[str, Case]]:
    """Signs of quotients, shifts by any count, powers that a dtype holds."""
    for dtype in WIDE:
        divisors = torch.tensor([3, -3, 3, -3, -2, 7, 127], dtype=dtype)
        for name, divide in QUOTIENTS.items():
            yield f"{name} of {dtype}", (divide, (dividends(dtype), divisors))
            yield f"{name} of {dtype} and numbers", (of_each(divide, [5, -3]), (dividends(dtype),))
    for dtype in (torch.uint8, *WIDE):
        values = dividends(torch.int64).to(dtype)
        for name, shift in SHIFTS.items():
            counts = torch.tensor(COUNTS).to(dtype).reshape(-1, 1)
            yield f"{name} shifts of {dtype}", (shift, (values, counts))
            yield f"{name} shifts of {dtype} by numbers", (of_each(shift, COUNTS), (values,))
        yield f"powers of {dtype}", (of_each(torch.pow, [0, 1, 2, 7, 64, 65, 127]), (values,))
    large = torch.tensor([2**53 + 1, 2**62 + 1, -(2**60) - 1])
    for name, function in (("ceil", torch.ceil), ("floor", torch.floor), ("trunc", torch.trunc)):
        yield f"{name} of large integers", (function, (large,))
    yield "fifth powers of large integers", (lambda x: x**5, (large,))
    sums = torch.tensor([[2**24 + 1, 1, 1], [2**53 + 1, 1, 1]])
    for name, function in (
        ("rows", lambda x: x.sum(1)), ("all", lambda x: x.sum((0, 1), keepdim=True)),
        ("everything", torch.sum),
    ):  # fmt: skip
        yield f"sums of {name} beyond single precision", (function, (sums,))
    yield "sums of int32", (lambda x: x.sum(1), (sums[:1].int(),))
    yield "sums as int32", (lambda x: x.sum(1, dtype=torch.int32), (sums[:1].int(),))
    for dtype in (torch.int32, torch.int64):
        info = torch.iinfo(dtype)
        x = torch.tensor([info.max, info.min, 2**24 + 1, 0, 1, -1], dtype=dtype)
        yield f"threshold 0.5 of {dtype}", (lambda x: F.threshold(x, 0.5, -0.0), (x,))
        yield f"threshold -0.5 of {dtype}", (lambda x: F.threshold(x, -0.5, 7), (x,))


def of_dtypes() -> Iterator[tuple[str, Case]]:
    """The kernel copies the bytes of operands as wide as the result: 1 came out as 1.4e-45."""
    for dtypes in (
        (torch.int32, torch.float32), (torch.int8, torch.uint8), (torch.float16, torch.bfloat16),
        (torch.int64, torch.float64), (torch.bool, torch.int8), (torch.int16, torch.float32),
    ):  # fmt: skip
        given = tuple(torch.tensor([[0, 1, 2]]).to(dtype) for dtype in (*dtypes, dtypes[0]))
        yield f"{dtypes} joined", (lambda x, y, z: torch.cat([x, y, z], 1), given)
        yield f"{dtypes} stacked", (lambda x, y, z: torch.stack([y, x, z]), given)


AT = torch.tensor([[0, 1, 2], [2, 1, 0]], dtype=torch.int32)
END = (torch.arange(12).reshape(4, 3), torch.tensor([1, -1]))
FORMS: dict[str, Case] = {
    **dict(of_integers()),
    **dict(of_dtypes()),
    "a remainder inside another operator": (
        lambda x: F.one_hot(x % 4, 4), (torch.tensor([-7, 7, -5, 0]),)
    ),
    "bytes divided by a negative number": (
        lambda x: torch.stack([torch.fmod(x, -3), x % -3]),
        (torch.tensor([255, 6, 7, 253, 0], dtype=torch.uint8),),
    ),
    "booleans and a fraction": (lambda x: x + 2.5, (torch.tensor([True, False]),)),
    "integers and a fraction": (lambda x: x + 2.5, (torch.tensor([1, 0], dtype=torch.int32),)),
    "booleans that broadcast, in order": (
        lambda x, y: x <= y,
        (torch.tensor([False, True, True]), torch.tensor([[False, False, True]] * 2)),
    ),
    "what is added to a temporary by index": (
        lambda x: (x ^ 5).index_add(
            1, torch.tensor([1, 1, 0]), torch.arange(6, dtype=torch.int16).reshape(2, 3)
        ),
        (torch.ones(2, 3, dtype=torch.int16),),
    ),
    "nothing left by a pad": (lambda x: F.pad(x, (-1, -2)), (torch.randn(2, 3),)),
    "a pad of nothing": (lambda x: F.pad(x, (-3, 2), value=1.5), (torch.randn(2, 3),)),
    "the greatest of no columns": (lambda x: x[:, 3:].amax(0), (torch.randn(2, 3),)),
    "log softmax of no rows": (lambda x: x[2:].log_softmax(1), (torch.randn(2, 3),)),
    "nothing beside nothing": (
        lambda x: torch.cat([x[:, 3:], x[:, 3:]], 1), (torch.randn(2, 3),)
    ),
    "gather by int32": (lambda x, at: x.gather(1, at), (torch.randn(2, 3), AT)),
    "scatter by int32": (lambda x, at: x.scatter(1, at, x * 2), (torch.randn(2, 3), AT)),
    "a number scattered by int32": (lambda x, at: x.scatter(1, at, 3.0), (torch.randn(2, 3), AT)),
    "sums scattered by int32": (lambda x, at: x.scatter_add(1, at, x), (torch.randn(2, 3), AT)),
    "filled at a place from the end": (lambda x, i: x.index_fill(0, i, 2.0), END),
    "put at a place from the end": (lambda x, i: x.put(i, x[0, :2]), END),
    "written to a place from the end": (lambda x, i: (x ^ 5).index_put((i,), x[:2]), END),
    "taken from the end": (lambda x, i: torch.take(x, i), END),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_what_a_kernel_gets_wrong_is_computed_by_others(name: str) -> None:
    function, inputs = FORMS[name]
    assert_as_eager(lower(function, *inputs), function, *inputs, **EXACT)


def test_a_counted_mask_needs_no_running_sum() -> None:
    x, count = torch.randn(3, 4), Function(lambda x: (x > 0).sum(1))
    lowered = lower(count, x)
    assert "aten.cumsum.default" not in lowered.report.outside
    assert_as_eager(lowered, count, x, **EXACT)


def test_a_power_of_integers_that_no_kernel_computes_is_refused() -> None:
    x = torch.tensor([3, 5])
    with pytest.raises(UnsupportedError, match="computes something else for large numbers"):
        lower(lambda x, y: x**y, x, x).to_pte()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum((0, 2)),
        lambda x: x.logsumexp(1),
        lambda x: x % -0.3,
        lambda x: torch.remainder(x, torch.tensor([0.3, -0.7], dtype=torch.float64)),
        lambda x: F.layer_norm(x, (3, 2)),
        lambda x: F.group_norm(x, 3),
        lambda x: F.instance_norm(x),
        lambda x: F.adaptive_avg_pool1d(x, 2),
        lambda x: F.interpolate(x, size=3, mode="area"),
        lambda x: F.interpolate(x[None], size=(5, 7), mode="bilinear"),
        lambda x: F.interpolate(x[None], size=(5, 3), mode="bilinear", align_corners=True),
    ],
)
def test_float64_keeps_its_precision(function: Callable[..., Any]) -> None:
    x = torch.randn(2, 3, 2, dtype=torch.float64)
    assert_as_eager(lower(function, x), function, x, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "sums",
    [
        torch.sum,
        lambda x: F.layer_norm(x, x.shape),
        lambda x: F.group_norm(x[None, :, :], 2**12),
        lambda x: F.instance_norm(x.reshape(1, 2, -1)),
    ],
)
def test_a_constant_row_of_very_many_elements_is_refused_before_it_is_made(
    sums: Callable[..., Any],
) -> None:
    lowered = lower(lambda x: sums(x[:, None].expand(2**13, 2**13)).sum(), torch.zeros(2**13))
    reasons = [refusal.reason for refusal in lowered.report.refusals]
    assert any("elements would need a constant" in reason for reason in reasons)


OUT_OF_RANGE: dict[str, Callable[..., Any]] = {
    "gather": lambda x, i, s: x.gather(0, rows_of(i)),
    "index_select": lambda x, i, s: x.index_select(0, i),
    "embedding": lambda x, i, s: F.embedding(i, x),
    "scatter": lambda x, i, s: x.scatter(0, rows_of(i), s),
    "scatter_add": lambda x, i, s: x.scatter_add(0, rows_of(i), s),
    **{
        f"scatter_reduce {how}": lambda x, i, s, how=how: x.scatter_reduce(0, rows_of(i), s, how)
        for how in ("amax", "amin", "sum", "mean", "prod")
    },
    "index_reduce": lambda x, i, s: x.index_reduce(0, i, s, "amax"),
    "index_add": lambda x, i, s: x.index_add(0, i, s),
    "index_copy": lambda x, i, s: x.index_copy(0, i, s),
    "one_hot": lambda x, i, s: F.one_hot(i, 4),
    "nll_loss": lambda x, i, s: F.nll_loss(x[:2].log_softmax(1), i, reduction="none"),
}


def rows_of(index: torch.Tensor) -> torch.Tensor:
    return index[:, None].expand(2, 3)


@pytest.mark.parametrize("name", OUT_OF_RANGE)
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_an_index_out_of_range_is_an_error_as_in_eager_mode(name: str) -> None:
    """By the interpreter and on the runtime: none is passed over, none is counted from the end."""
    x, source = torch.randn(4, 3), torch.randn(2, 3)
    function, given = OUT_OF_RANGE[name], (x, torch.tensor([1, 0]), source)
    lowered = lower(function, *given)
    assert_as_eager(lowered, function, *given)
    for place in (4, -1, 100):
        wrong = (x, torch.tensor([1, place]), source)
        with pytest.raises((RuntimeError, IndexError)):
            function(*wrong)
        for run in (lowered.run, lowered.program.run):
            with pytest.raises(StepwellError):
                run(*wrong)


@pytest.mark.parametrize("how", ["amax", "amin"])
@pytest.mark.parametrize("is_known", [False, True])
def test_extrema_of_what_is_written_keep_what_was_there(how: str, is_known: bool) -> None:
    """A NaN or an infinity of the tensor itself, at a place that is written and at another."""
    index = torch.tensor([0, 0, 2])
    written = torch.arange(9.0).reshape(3, 3)
    function = Function(
        lambda x, i: x.scatter_reduce(
            0, (index if is_known else i)[:, None].expand(3, 3), written, how
        )
    )
    lowered = lower(function, torch.zeros(5, 3), index)
    for number in (torch.nan, torch.inf, -torch.inf):
        for row in (0, 3):
            x = torch.ones(5, 3)
            x[row] = number
            for program in (lowered, lowered.program):
                assert_as_eager(program, function, x, index)
