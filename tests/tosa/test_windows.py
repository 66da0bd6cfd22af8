"""Windows, volumes, running sums and remainders are what PyTorch computes."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stepwell
from stepwell.ir.diagnostics import UnsupportedError

from .graphs import Function, agree, lowered

FP = "tosa-1.0+fp"
IMAGE, VOLUME, EVEN = (1, 4, 9, 9), (1, 2, 5, 6, 7), (1, 4, 8, 8)


CASES: dict[tuple[int, ...], dict[str, Function]] = {
    VOLUME: {
        "padded": nn.Conv3d(2, 4, 3, padding=1, stride=(1, 2, 2)),
        "dilated": nn.Conv3d(2, 4, 2, dilation=2, bias=False),
        "groups": nn.Conv3d(2, 4, 3, groups=2),
        "groups without bias": nn.Conv3d(2, 4, 1, groups=2, bias=False),
        "rest unread": nn.Conv3d(2, 4, 2, stride=2),
        "transposed": nn.ConvTranspose3d(2, 4, 3, (2, 1, 1), 1),
        "maximum, cells apart": lambda x: F.max_pool3d(x, 2, 1, dilation=2),
    },
    IMAGE: {
        "transposed in groups": nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2),
        "transposed, no bias": nn.ConvTranspose2d(4, 6, 2, 2, groups=2, bias=False),
        "transposed, more cut off than the kernel": nn.ConvTranspose2d(4, 6, 3, 2, (3, 4)),
        "average that counts its padding": lambda x: F.avg_pool2d(x, 3, 2, 1),
        "average, rounded up": lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True),
        "average, rest unread": lambda x: F.avg_pool2d(x, 2, 2),
        "maximum, cells apart": lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), dilation=(1, 3)),
        "maximum, rest unread": lambda x: F.max_pool2d(x, (2, 4), 2),
        "adaptive, a whole share": lambda x: F.adaptive_avg_pool2d(x, 3),
        "running sum": lambda x: x.cumsum(-1),
        "running sum of the first axis": lambda x: x[0].cumsum(0),
        "reversed": lambda x: x.flip(1, -1),
    },
    EVEN: {
        "average with a divisor of its own": nn.AvgPool2d(3, 2, 1, True, divisor_override=2),
        "average, padding counted, rounded up": nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        "average, padding counted, rest unread": nn.AvgPool2d(3, 3, (0, 1)),
        "average, padding not counted": nn.AvgPool2d(3, 2, 1, True, count_include_pad=False),
    },
}


@pytest.mark.parametrize("shape", CASES, ids=["volume", "image", "even image"])
def test_windows_sums_and_reversals_compute_what_pytorch_does(shape: tuple[int, ...]) -> None:
    agree(CASES[shape], torch.randn(shape), target=FP, rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (nn.ConvTranspose2d(4, 6, 3, dilation=2), "dilation is not 1"),
        (lambda x: F.adaptive_avg_pool2d(x.repeat(1, 1, 9, 1), (70, 4)), "70 windows"),
        (lambda x: x % 3.0, "not a power of two"),
    ],
)
def test_what_has_no_operator_is_refused_by_its_name(function: Function, reason: str) -> None:
    with pytest.raises(stepwell.StepwellError, match=reason):
        lowered(function, torch.randn(IMAGE), target=FP)


def test_an_inf_or_nan_reaches_only_the_sums_behind_it() -> None:
    x = torch.randn(3, 7)
    x[0, 3], x[1, 4], x[2, 5], x[2, 6] = torch.inf, torch.nan, torch.inf, -torch.inf
    agree(lambda x: x.cumsum(1), x, target=FP, rtol=1e-6)


def test_remainders_by_powers_of_two_are_exact_for_every_float() -> None:
    x = torch.arange(0, 2**32, 2**19 - 1).sub(2**31).to(torch.int32).view(torch.float32)
    ends = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38, torch.inf, -torch.inf])
    x = torch.cat([x, ends, torch.arange(-40, 41) / 4])
    divisors = (2.0, -2.0, 0.25, -1.0, 2.0**60, -(2.0**-60))

    def every(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(f(x, d) for d in divisors for f in (torch.fmod, torch.remainder))

    # PyTorch's own is NaN in f32 where the quotient overflows; in f64 none does.
    exact = [value.float() for value in every(x.double())]
    low = lowered(every, x, target=FP)
    for results in (low.run(x), low.program.run(x)):
        for found, wanted in zip(results, exact, strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_a_number_is_larger_and_smaller_than_nan() -> None:
    x = torch.tensor([1.0, torch.nan, -torch.inf, torch.nan, torch.inf])
    agree(lambda x: (torch.fmax(x[:, None], x), torch.fmin(x[:, None], x)), x, target=FP)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: (x, x[:, 3:-1]), (2, 3)),
        (lambda x: (x, F.pad(x, (0, -3)) > 0), (2, 3)),
        (lambda x: x.sum(0), (0, 3)),
    ],
)
def test_what_has_no_elements_is_refused(function: Function, shape: tuple[int, ...]) -> None:
    with pytest.raises(UnsupportedError, match="TOSA has no empty tensors"):
        lowered(function, torch.ones(shape), target=FP)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x[:, 3:] * 2, "output 0: TOSA has no empty tensors"),
        (lambda x: torch.fft.rfft(x), "output 0: TOSA has no element type complex64"),
        (
            torch.special.airy_ai,
            "airy_ai.default: TOSA has no operator for it, and PyTorch computes it by no",
        ),
    ],
)
def test_what_no_program_could_give_is_said(function: Function, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        lowered(function, torch.ones(2, 3), target=FP)


def test_what_writes_a_place_twice_has_no_result() -> None:
    x, places = torch.ones(1, 1, 2), torch.tensor([[[1, 1]]])
    low = lowered(nn.MaxUnpool1d(2), x, places, ranges={"inputs_1": (0, 3)})
    low.run(x, torch.tensor([[[0, 3]]]))
    with pytest.raises(UnsupportedError, match="PyTorch does not specify which value"):
        low.run(x, places)
