"""Fourier transforms on ExecuTorch's runtime, beside eager PyTorch in double precision."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, export

import stepwell
from stepwell.backends.executorch.container import KernelCall
from stepwell.backends.executorch.reading.read import read_container

fft: Any = torch.fft
real = torch.view_as_real
Function = Callable[[Tensor, Tensor], Tensor]
PERIODIC = torch.hann_window(16)


def stft(x: Tensor, window: Tensor | None, hop: int = 4, **more: Any) -> Tensor:
    return torch.stft(x, 16, hop, window=window, return_complex=True, **more)


def istft(x: Tensor, window: Tensor, hop: int = 4, **more: Any) -> Tensor:
    return torch.istft(x, 16, hop, window=window, **more)


def numbers(x: Tensor) -> Tensor:
    """A spectrum of 16 points and 7 frames."""
    return x[:, :63].reshape(-1, 9, 7)


OF_ROWS: dict[str, Function] = {
    "rfft": lambda x, w: real(fft.rfft(x)),
    "a cut rfft along another axis": lambda x, w: real(fft.rfft(x, 5, dim=1, norm="ortho")),
    "magnitudes": lambda x, w: fft.rfft(x, 40).abs(),
    "phases": lambda x, w: fft.rfft(x).angle()[..., 1:-1],
    "irfft": lambda x, w: fft.irfft(torch.complex(x, x.flip(-1))),
    "an odd irfft of pairs": lambda x, w: fft.irfft(
        torch.view_as_complex(x.unflatten(-1, (-1, 2))), n=31
    ),
    "fft": lambda x, w: real(fft.fft(x, norm="forward")),
    "fft of complex numbers": lambda x, w: real(fft.fft(torch.complex(x, x * x))),
    "ifft of stacked parts": lambda x, w: real(
        fft.ifft(torch.view_as_complex(torch.stack([x, x * x], -1)), dim=1)
    ),
    "fft2": lambda x, w: real(fft.fft2(x)),
    "mirrored halves": lambda x, w: real(fft.fft(x.flatten(1)[:, :255], norm="ortho")),
    "mirrored parts": lambda x, w: real(fft.fft(torch.complex(x, x * x).flatten(1))),
    "mirrored back": lambda x, w: real(fft.ifft(torch.complex(x, x * x).flatten(0, 1).mT, 255, 0)),
    "rfft2 and back": lambda x, w: fft.irfft2(fft.rfft2(x) * 2),
    "mixing of FNet": lambda x, w: fft.fft(fft.fft(x, dim=-1), dim=-2).real,
    "a kernel, two factors and back": lambda x, w: fft.irfft(
        fft.fft(fft.rfft(x.flatten(1), 1080), dim=-1), 1080
    ),
}
OF_SIGNALS: dict[str, Function] = {
    "power": lambda x, w: stft(x, w).abs() ** 2,
    "parts": lambda x, w: real(stft(x, w, normalized=True)).permute(0, 3, 2, 1) * 2,
    "a hop without a common factor": lambda x, w: real(stft(x, w, 5, center=False)),
    "two-sided, a short window": lambda x, w: real(
        stft(x[0], w[:10], win_length=10, onesided=False)
    ),
    "and back": lambda x, w: istft(stft(x, w), w),
    "a mask": lambda x, w: istft(
        stft(x, w) * torch.complex(w[:9, None], w[1:10, None]), w, normalized=True
    ),
    "no overlap": lambda x, w: istft(stft(x, None, 16, center=False), w + 1, 16, center=False),
    "a given length": lambda x, w: istft(stft(x, w, 6), w, 6, length=x.shape[-1] - 12),
    "magnitudes and phases": lambda x, w: istft(
        torch.polar(stft(x, w).abs(), stft(x, w).angle()), w
    ),
    "cosines and sines": lambda x, w: istft(
        numbers(x).abs() * (numbers(x).cos() + 1j * numbers(x).sin()), w
    ),
    "an exponential": lambda x, w: istft(numbers(x).abs() * torch.exp(1j * numbers(x)), w),
    "quotients": lambda x, w: real(stft(x, w) / (stft(x, w).abs() + 1)),
    "complex quotients": lambda x, w: real(1 / (stft(x, w).abs() + 1 + 2j)),
    "sums with real numbers": lambda x, w: (stft(x, w) + stft(x, w).real).mean(-1).abs(),
    "movements": lambda x, w: (
        torch.stack([z.flip(1).roll(1, 2) for z in (stft(x, w), stft(x, w).conj())], 1)
        .sum(-1)
        .abs()
    ),
    "padding": lambda x, w: F.pad(stft(x, w), (2, 1))[..., 1:].abs(),
    "a kernel": lambda x, w: torch.stft(x, 256, 16, window=w.repeat(16), return_complex=True).abs(),
    "a kernel and back": lambda x, w: torch.istft(
        torch.stft(x, 240, 60, window=w.repeat(15) + 1, return_complex=True)[..., :3],
        240,
        60,
        window=w.repeat(15) + 1,
    ),
}


class Net(nn.Module):
    """Functions of a signal and a window, which is a buffer."""

    window: Tensor

    def __init__(self, functions: dict[str, Function]) -> None:
        super().__init__()
        self.functions = functions
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(x, self.window) for function in self.functions.values())


def agree(net: Net, file: bytes, *inputs: Tensor) -> None:
    for x in inputs:
        exact = net.double()(x.double())
        found = stepwell.run_pte(file, [x])
        for name, one, wanted in zip(net.functions, found, exact, strict=True):
            largest = float(wanted.abs().max())
            torch.testing.assert_close(
                one.double(), wanted, rtol=0, atol=3e-6 * largest, msg=lambda m, n=name: f"{n}: {m}"
            )
    net.float()


@pytest.mark.parametrize(
    ("functions", "shape"), [(OF_ROWS, (2, 8, 32)), (OF_SIGNALS, (2, 320))], ids=["rows", "signals"]
)
def test_a_transform_is_torchs(functions: dict[str, Function], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    net, x = Net(functions), torch.randn(shape)
    lowered = stepwell.lower(export(net, (x,)), "xnnpack")
    assert set(lowered.report.outside) <= {
        "aten._fft_r2c.default",
        "aten._fft_c2r.default",
        "aten.abs.default",
        "aten.atan2.default",
        "aten.index_select.default",
        "aten.permute.default",
        "aten.reflection_pad1d.default",
        "aten.slice.Tensor",
        "aten.unfold.default",
        "aten.view_as_complex.default",
        "aten.view_as_real.default",
    }
    agree(net, lowered.to_pte(), x)


def test_pairs_in_pytorchs_layout_are_not_moved() -> None:
    """PyTorch's `stft` returns the transforms of frames with their axes declared otherwise."""
    pairs: Function = lambda x, w: real(  # noqa: E731
        torch.stft(x, 256, 64, window=w.repeat(16) + 1, return_complex=True)
    )
    net, x = Net({"pairs": pairs}), torch.randn(40, 640)
    lowered = stepwell.lower(export(net, (x,)), "xnnpack")
    calls = read_container(lowered.to_pte()).methods[0].instructions
    names = [call.kernel for call in calls if isinstance(call, KernelCall)]
    assert "aten::_fft_r2c.out" in names and "aten::permute_copy.out" not in names
    (found,) = lowered.run(x)
    assert found.stride() == net(x)[0].stride()
    agree(net, lowered.to_pte(), x)


@pytest.mark.parametrize(
    ("shape", "size", "kernel", "more"),
    [
        ((2, 64, 10), (1, 208), (1, 64), {"stride": (1, 16)}),
        ((2, 64, 10), (1, 172), (1, 64), {"stride": (1, 12)}),
        ((2, 100, 7), (1, 53), (1, 20), {"stride": 5}),
        ((2, 27, 36), (6, 6), (3, 3), {"padding": 1}),
        ((2, 27, 12), (6, 7), (3, 3), {"padding": 1, "stride": 2}),
        ((36, 16), (6, 7), (3, 4), {}),
    ],
)
def test_windows_that_overlap_are_added_in_the_delegate(
    shape: tuple[int, ...], size: tuple[int, int], kernel: tuple[int, int], more: Any
) -> None:
    class Fold(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.fold(x, size, kernel, **more)

    x = torch.randn(shape)
    lowered = stepwell.lower(export(Fold(), (x,)), "xnnpack")
    assert (lowered.report.delegates, lowered.report.outside.total()) == (1, 0)
    torch.testing.assert_close(lowered.run(x)[0], Fold()(x))


def test_no_number_is_made_of_special_points() -> None:
    torch.manual_seed(0)
    net = Net(
        {
            "rfft": lambda x, w: real(fft.rfft(x)),
            "irfft": lambda x, w: fft.irfft(torch.complex(x, x.flip(-1))),
            "frames": lambda x, w: istft(stft(x, w), w),
        }
    )
    x = torch.randn(4, 64)
    x[0, 20], x[1, 30], x[2, 0] = torch.nan, torch.inf, -torch.inf
    exported = export(net, (x,))
    lowered = stepwell.lower(exported, "xnnpack")
    changed = {one.rewrite for one in lowered.report.deviations}
    assert {"transforms-to-products", "stft-to-frames", "istft-to-frames"} <= changed
    for found, eager in zip(lowered.run(x), net(x), strict=True):
        assert not (found.isfinite() & ~eager.isfinite()).any()
    bounded = stepwell.lower(exported, "xnnpack", ranges={"x": (-1, 1)})
    assert "transforms-to-products" not in {one.rewrite for one in bounded.report.deviations}
    strict = stepwell.lower(exported, "xnnpack", numerics="strict")
    assert not strict.report.deviations
    agree(net, strict.to_pte(), torch.randn(4, 64))


@pytest.mark.parametrize(
    ("function", "x", "remedy"),
    [
        (fft.rfft, torch.randn(3, 8), r"output 0: .*complex(.|\n)*torch\.view_as_real"),
        (fft.irfft, torch.randn(3, 8).cfloat(), r"input x: .*complex(.|\n)*view_as_complex\(x\)"),
        (lambda x: fft.rfft(x).cumsum(0).abs(), torch.randn(3, 8), "does not take complex64"),
        (
            lambda x: istft(torch.view_as_complex(x), PERIODIC, center=False),
            torch.randn(9, 5, 2),
            "istft-to-frames refuses it: the windows add up to less than 1e-11",
        ),
    ],
)
def test_what_has_no_form_says_what_helps(
    function: Callable[[Tensor], Tensor], x: Tensor, remedy: str
) -> None:
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(x)

    with pytest.raises(stepwell.StepwellError, match=remedy):
        stepwell.lower(export(Plain(), (x,)), "xnnpack")


DYNAMIC: dict[str, tuple[Function, tuple[int, ...], Any, tuple[tuple[int, ...], ...]]] = {
    "rfft of any length": (
        lambda x, w: fft.rfft(x).abs(),
        (2, 200),
        {1: Dim("n", min=16, max=4096)},
        ((2, 17), (2, 1021), (2, 4096)),
    ),
    "rows": (
        lambda x, w: fft.irfft(fft.rfft(x) * 2),
        (4, 20),
        {0: Dim("rows", min=1, max=9)},
        ((1, 20), (9, 20)),
    ),
    "a signal": (
        lambda x, w: stft(x, w).abs(),
        (2, 200),
        {1: Dim("n", min=64, max=1600)},
        ((2, 65), (2, 1600)),
    ),
    "a signal of whole hops": (
        lambda x, w: torch.stft(x, 32, 16, window=torch.cat([w, w]), return_complex=True).abs(),
        (2, 320),
        {1: 16 * Dim("k", min=4, max=100)},
        ((2, 64), (2, 1600)),
    ),
    "a signal and back": (
        lambda x, w: istft(stft(x, w) * 0.5, w),
        (2, 200),
        {1: Dim("n", min=64, max=1600)},
        ((2, 65), (2, 1600)),
    ),
    "a batch": (
        lambda x, w: istft(stft(x, w) * 0.5, w),
        (4, 200),
        {0: Dim("batch", min=1, max=9)},
        ((1, 200), (9, 200)),
    ),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_sizes_may_be_dynamic(name: str) -> None:
    torch.manual_seed(0)
    function, shape, dynamic, others = DYNAMIC[name]
    net = Net({name: function})
    exported = export(
        net,
        (torch.randn(shape),),
        dynamic_shapes=(dynamic,),
        prefer_deferred_runtime_asserts_over_guards=True,
    )
    file = stepwell.lower(exported, "xnnpack").to_pte()
    agree(net, file, *(torch.randn(size) for size in (shape, *others)))
