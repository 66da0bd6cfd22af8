"""What a kernel gets wrong is computed by others, to the last bit, or refused before it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import export

import stepwell
from stepwell.ir.diagnostics import StepwellError, UnsupportedError

WIDE = (torch.int8, torch.int16, torch.int32, torch.int64)


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(*given)


def assert_exact(function: Callable[..., Any], *given: torch.Tensor) -> None:
    module = Function(function)
    (found,) = stepwell.lower(export(module, given), "xnnpack").run(*given)
    wanted = module(*given)
    assert found.dtype == wanted.dtype and torch.equal(found, wanted), (found, wanted)


def dividends(dtype: torch.dtype) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    return torch.tensor([-7, 7, -5, 0, limits.max, limits.min, limits.max - 1], dtype=dtype)


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize(
    "function",
    [
        torch.remainder,
        torch.fmod,
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
    ],
    ids=["remainder", "fmod", "truncated", "floored"],
)
def test_quotients_and_remainders_of_integers_have_pytorchs_signs(
    function: Callable[..., Any], dtype: torch.dtype
) -> None:
    divisors = torch.tensor([3, -3, 3, -3, -2, 7, 127], dtype=dtype)
    assert_exact(function, dividends(dtype), divisors)
    assert_exact(lambda a: torch.stack([function(a, 5), function(a, -3)]), dividends(dtype))


def test_a_remainder_inside_another_operator_has_the_divisors_sign() -> None:
    assert_exact(lambda x: F.one_hot(x % 4, 4), torch.tensor([-7, 7, -5, 0]))


@pytest.mark.parametrize("dtype", [torch.uint8, *WIDE])
def test_integers_are_shifted_by_any_count(dtype: torch.dtype) -> None:
    """A count by number is one of the tensor's dtype: 257 is 1 for eight bits."""
    values = dividends(torch.int64).to(dtype)
    numbers = [3, 7, 8, 9, 15, 16, 31, 32, 63, 64, 100, 256, 257, -1, -8]
    counts = torch.tensor(numbers).to(dtype).reshape(-1, 1)
    assert_exact(torch.bitwise_left_shift, values, counts)
    assert_exact(torch.bitwise_right_shift, values, counts)
    assert_exact(lambda a: torch.stack([a << n for n in numbers]), values)
    assert_exact(lambda a: torch.stack([a >> n for n in numbers]), values)


@pytest.mark.parametrize("dtype", [torch.uint8, *WIDE])
def test_integers_have_every_power_that_their_dtype_holds(dtype: torch.dtype) -> None:
    exponents = (0, 1, 2, 7, 64, 65, 127)
    values = dividends(torch.int64).to(dtype)
    assert_exact(lambda a: torch.stack([a**n for n in exponents]), values)


@pytest.mark.parametrize("function", [torch.ceil, torch.floor, torch.trunc, lambda x: x**5])
def test_large_integers_are_not_rounded(function: Callable[..., Any]) -> None:
    assert_exact(function, torch.tensor([2**53 + 1, 2**62 + 1, -(2**60) - 1]))


def test_integers_beyond_single_precision_are_summed_exactly() -> None:
    x = torch.tensor([[2**24 + 1, 1, 1], [2**53 + 1, 1, 1]])
    for function in (lambda x: x.sum(1), lambda x: x.sum((0, 1), keepdim=True), torch.sum):
        assert_exact(function, x)
    assert_exact(lambda x: x.sum(1), x[:1].int())
    assert_exact(lambda x: x.sum(1, dtype=torch.int32), x[:1].int())


def test_bytes_are_divided_by_a_negative_number_as_pytorch_wraps_it() -> None:
    x = torch.tensor([255, 6, 7, 253, 0], dtype=torch.uint8)
    assert_exact(lambda x: torch.stack([torch.fmod(x, -3), x % -3]), x)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers_above_a_threshold_stay_as_they_are(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    x = torch.tensor([info.max, info.min, 2**24 + 1, 0, 1, -1], dtype=dtype)
    assert_exact(lambda x: torch.stack([F.threshold(x, 0.5, -0.0), F.threshold(x, -0.5, 7)]), x)


def test_a_counted_mask_needs_no_running_sum() -> None:
    x = torch.randn(3, 4)
    module = Function(lambda x: (x > 0).sum(1))
    lowered = stepwell.lower(export(module, (x,)), "xnnpack")
    assert "aten.cumsum.default" not in lowered.report.outside
    assert torch.equal(lowered.run(x)[0], module(x))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32])
def test_a_fraction_is_added_to_what_holds_none(dtype: torch.dtype) -> None:
    assert_exact(lambda x: x + 2.5, torch.tensor([1, 0], dtype=dtype))


def test_booleans_that_broadcast_are_compared_in_order() -> None:
    x, y = torch.tensor([False, True, True]), torch.tensor([[False, False, True]] * 2)
    assert_exact(lambda x, y: x <= y, x, y)


@pytest.mark.parametrize(
    "dtypes",
    [
        (torch.int32, torch.float32),
        (torch.int8, torch.uint8),
        (torch.float16, torch.bfloat16),
        (torch.int64, torch.float64),
        (torch.bool, torch.int8),
        (torch.int16, torch.float32),
    ],
    ids=str,
)
def test_tensors_of_several_dtypes_are_joined_as_numbers(dtypes: tuple[torch.dtype, ...]) -> None:
    """The kernel copies the bytes of operands as wide as the result: 1 came out as 1.4e-45."""
    given = [torch.tensor([[0, 1, 2]]).to(dtype) for dtype in (*dtypes, dtypes[0])]
    assert_exact(lambda x, y, z: torch.cat([x, y, z], 1), *given)
    assert_exact(lambda x, y, z: torch.stack([y, x, z]), *given)


def test_a_power_of_integers_that_no_kernel_computes_is_refused() -> None:
    x = torch.tensor([3, 5])
    with pytest.raises(UnsupportedError, match="computes something else for large numbers"):
        stepwell.lower(export(Function(lambda x, y: x**y), (x, x)), "xnnpack").to_pte()


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
    torch.manual_seed(0)
    x = torch.randn(2, 3, 2, dtype=torch.float64)
    (found,) = stepwell.lower(export(Function(function), (x,)), "xnnpack").run(x)
    torch.testing.assert_close(found, function(x), rtol=1e-12, atol=1e-13)


def test_what_is_added_to_a_temporary_by_index_is_not_written_in_place() -> None:
    index = torch.tensor([1, 1, 0])
    added = torch.arange(6, dtype=torch.int16).reshape(2, 3)
    assert_exact(lambda x: (x ^ 5).index_add(1, index, added), torch.ones(2, 3, dtype=torch.int16))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.pad(x, (-1, -2)),
        lambda x: F.pad(x, (-3, 2), value=1.5),
        lambda x: x[:, 3:].amax(0),
        lambda x: x[2:].log_softmax(1),
        lambda x: torch.cat([x[:, 3:], x[:, 3:]], 1),
    ],
)
def test_what_has_no_elements_needs_no_kernel(function: Callable[..., Any]) -> None:
    assert_exact(function, torch.randn(2, 3))


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
    module = Function(lambda x: sums(x[:, None].expand(2**13, 2**13)).sum())
    lowered = stepwell.lower(export(module, (torch.zeros(2**13),)), "xnnpack")
    assert any(
        "elements would be a constant" in refusal.reason for refusal in lowered.report.refusals
    )


@pytest.mark.parametrize("call", ["gather", "scatter", "scatter of a number", "scatter_add"])
def test_indices_of_int32_are_cast_for_kernels_that_take_int64(call: str) -> None:
    calls: dict[str, Callable[..., Any]] = {
        "gather": lambda x, at: x.gather(1, at),
        "scatter": lambda x, at: x.scatter(1, at, x * 2),
        "scatter of a number": lambda x, at: x.scatter(1, at, 3.0),
        "scatter_add": lambda x, at: x.scatter_add(1, at, x),
    }
    at = torch.tensor([[0, 1, 2], [2, 1, 0]], dtype=torch.int32)
    assert_exact(calls[call], torch.randn(2, 3), at)


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
    module = Function(OUT_OF_RANGE[name])
    given = (x, torch.tensor([1, 0]), source)
    lowered = stepwell.lower(export(module, given), "xnnpack")
    assert torch.allclose(lowered.run(*given)[0], module(*given))
    for place in (4, -1, 100):
        wrong = (x, torch.tensor([1, place]), source)
        with pytest.raises((RuntimeError, IndexError)):
            module(*wrong)
        for run in (lowered.run, lowered.program.run):
            with pytest.raises(StepwellError):
                run(*wrong)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x.index_fill(0, i, 2.0),
        lambda x, i: x.put(i, x[0, :2]),
        lambda x, i: (x ^ 5).index_put((i,), x[:2]),
        lambda x, i: torch.take(x, i),
    ],
)
def test_a_place_may_be_counted_from_the_end(function: Callable[..., Any]) -> None:
    assert_exact(function, torch.arange(12).reshape(4, 3), torch.tensor([1, -1]))


@pytest.mark.parametrize("how", ["amax", "amin"])
@pytest.mark.parametrize("is_known", [False, True])
def test_extrema_of_what_is_written_keep_what_was_there(how: str, is_known: bool) -> None:
    """A NaN or an infinity of the tensor itself, at a place that is written and at another."""
    index = torch.tensor([0, 0, 2])
    written = torch.arange(9.0).reshape(3, 3)
    module = Function(
        lambda x, i: x.scatter_reduce(
            0, (index if is_known else i)[:, None].expand(3, 3), written, how
        )
    )
    lowered = stepwell.lower(export(module, (torch.zeros(5, 3), index)), "xnnpack")
    for number in (torch.nan, torch.inf, -torch.inf):
        for row in (0, 3):
            x = torch.ones(5, 3)
            x[row] = number
            wanted = module(x, index)
            for run in (lowered.run, lowered.program.run):
                torch.testing.assert_close(run(x, index)[0], wanted, equal_nan=True)
