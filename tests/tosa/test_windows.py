"""Windows, volumes, running sums and remainders are what PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stepwell
from stepwell.ir.diagnostics import UnsupportedError

IMAGE, VOLUME, EVEN = (1, 4, 9, 9), (1, 2, 5, 6, 7), (1, 4, 8, 8)


class Call(nn.Module):
    """A function or a module of one tensor."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def lowered(function: Callable[[Tensor], Any], x: Tensor) -> stepwell.Lowered:
    return stepwell.lower(torch.export.export(Call(function).eval(), (x,)), "tosa-1.0+fp")


CASES: dict[str, tuple[Callable[[Tensor], Any], tuple[int, ...]]] = {
    "volume": (nn.Conv3d(2, 4, 3, padding=1, stride=(1, 2, 2)), VOLUME),
    "volume, dilated": (nn.Conv3d(2, 4, 2, dilation=2, bias=False), VOLUME),
    "volume in groups": (nn.Conv3d(2, 4, 3, groups=2), VOLUME),
    "volume, groups without bias": (nn.Conv3d(2, 4, 1, groups=2, bias=False), VOLUME),
    "volume, rest unread": (nn.Conv3d(2, 4, 2, stride=2), VOLUME),
    "volume, transposed": (nn.ConvTranspose3d(2, 4, 3, (2, 1, 1), 1), VOLUME),
    "average with a divisor of its own": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=2),
        EVEN,
    ),
    "transposed in groups": (nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), IMAGE),
    "transposed, no bias": (nn.ConvTranspose2d(4, 6, 2, 2, groups=2, bias=False), IMAGE),
    "transposed, more cut off than the kernel": (nn.ConvTranspose2d(4, 6, 3, 2, (3, 4)), IMAGE),
    "average that counts its padding": (lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE),
    "average, padding counted, rounded up": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        EVEN,
    ),
    "average, padding counted, rest unread": (lambda x: F.avg_pool2d(x, 3, 3, (0, 1)), EVEN),
    "average, rounded up": (lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True), IMAGE),
    "average, padding not counted": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        EVEN,
    ),
    "average, rest unread": (lambda x: F.avg_pool2d(x, 2, 2), IMAGE),
    "maximum, cells apart": (
        lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), dilation=(1, 3)),
        IMAGE,
    ),
    "maximum of a volume, cells apart": (lambda x: F.max_pool3d(x, 2, 1, dilation=2), VOLUME),
    "maximum, rest unread": (lambda x: F.max_pool2d(x, (2, 4), 2), IMAGE),
    "adaptive, a whole share": (lambda x: F.adaptive_avg_pool2d(x, 3), IMAGE),
    "running sum": (lambda x: x.cumsum(-1), IMAGE),
    "running sum of the first axis": (lambda x: x[0].cumsum(0), IMAGE),
    "reversed": (lambda x: x.flip(1, -1), IMAGE),
}


class Every(nn.Module):
    """Several functions, each of the input of its shape."""

    def __init__(self, cases: list[tuple[Callable[[Tensor], Any], tuple[int, ...]]]) -> None:
        super().__init__()
        self.functions = [Call(function) for function, _ in cases]
        self.held = nn.ModuleList(self.functions)
        self.shapes = [shape for _, shape in cases]

    def forward(self, *x: Tensor) -> tuple[Any, ...]:
        given = {tuple(one.shape): one for one in x}
        return tuple(f(given[s]) for f, s in zip(self.functions, self.shapes, strict=True))


def test_windows_sums_and_reversals_compute_what_pytorch_does() -> None:
    torch.manual_seed(0)
    inputs = tuple(torch.randn(shape) for shape in (IMAGE, VOLUME, EVEN))
    model = Every(list(CASES.values())).eval()
    low = stepwell.lower(torch.export.export(model, inputs), "tosa-1.0+fp")
    with torch.no_grad():
        expected = model(*inputs)
    for results in (low.run(*inputs), low.program.run(*inputs)):
        for name, found, wanted in zip(CASES, results, expected, strict=True):
            torch.testing.assert_close(
                found, wanted, rtol=1e-5, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
            )


REFUSED: list[tuple[Callable[[Tensor], Any], tuple[int, ...], str]] = [
    (nn.ConvTranspose2d(4, 6, 3, dilation=2), IMAGE, "dilation is not 1"),
    (lambda x: F.adaptive_avg_pool2d(x.repeat(1, 1, 9, 1), (70, 4)), IMAGE, "70 windows"),
    (lambda x: x % 3.0, IMAGE, "no power of two"),
]


def test_what_has_no_operator_is_refused_by_its_name() -> None:
    inputs = tuple(torch.randn(shape) for shape in (IMAGE, VOLUME))
    model = Every([(function, shape) for function, shape, _ in REFUSED]).eval()
    with pytest.raises(stepwell.StepwellError) as refused:
        stepwell.lower(torch.export.export(model, inputs), "tosa-1.0+fp")
    assert len(refused.value.problems) == len(REFUSED)
    for _, _, reason in REFUSED:
        assert reason in str(refused.value)


def test_an_inf_or_nan_reaches_only_the_sums_behind_it() -> None:
    x = torch.randn(3, 7)
    x[0, 3], x[1, 4], x[2, 5], x[2, 6] = torch.inf, torch.nan, torch.inf, -torch.inf
    found = lowered(lambda x: x.cumsum(1), x).run(x)[0]
    torch.testing.assert_close(found, x.cumsum(1), equal_nan=True)


def test_remainders_by_powers_of_two_are_exact_for_every_float() -> None:
    x = torch.arange(0, 2**32, 2**19 - 1).sub(2**31).to(torch.int32).view(torch.float32)
    ends = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38, torch.inf, -torch.inf])
    x = torch.cat([x, ends, torch.arange(-40, 41) / 4])
    divisors = (2.0, -2.0, 0.25, -1.0, 2.0**60, -(2.0**-60))

    def every(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(f(x, d) for d in divisors for f in (torch.fmod, torch.remainder))

    # PyTorch's own is NaN in f32 where the quotient overflows; in f64 none does.
    exact = [value.float() for value in every(x.double())]
    low = lowered(every, x)
    for found, own, wanted in zip(low.run(x), low.program.run(x), exact, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(own, wanted, rtol=0, atol=0, equal_nan=True)


def test_a_number_is_larger_and_smaller_than_nan() -> None:
    x = torch.tensor([1.0, torch.nan, -torch.inf, torch.nan, torch.inf])

    def ends(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.fmax(x[:, None], x), torch.fmin(x[:, None], x)

    low = lowered(ends, x)
    for found, own, wanted in zip(low.run(x), low.program.run(x), ends(x), strict=True):
        torch.testing.assert_close(found, wanted, equal_nan=True)
        torch.testing.assert_close(own, wanted, equal_nan=True)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: (x, x[:, 3:-1]), (2, 3)),
        (lambda x: (x, F.pad(x, (0, -3)) > 0), (2, 3)),
        (lambda x: x.sum(0), (0, 3)),
    ],
)
def test_what_has_no_elements_is_refused(
    function: Callable[[Tensor], Any], shape: tuple[int, ...]
) -> None:
    with pytest.raises(UnsupportedError, match="TOSA has no empty tensors"):
        lowered(function, torch.ones(shape))


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
def test_what_no_program_could_give_is_said(function: Callable[[Tensor], Any], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        lowered(function, torch.ones(2, 3))


def test_what_writes_a_place_twice_has_no_result() -> None:
    x, places = torch.ones(1, 1, 2), torch.tensor([[[1, 1]]])
    low = stepwell.lower(
        torch.export.export(nn.MaxUnpool1d(2), (x, places)),
        "tosa-1.0+fp+int",
        ranges={"indices": (0, 3)},
    )
    low.run(x, torch.tensor([[[0, 3]]]))
    with pytest.raises(UnsupportedError, match="PyTorch does not specify which value"):
        low.run(x, places)
