"""Measure Fourier transforms: how exact they are, and how fast beside the stock flow.

    python tools/fourier.py [--speed] [--lengths 16 17 …] [--targets xnnpack tosa-1.0+fp …]

Errors are those of ExecuTorch's runtime, or of the interpreter of TOSA's operators, relative to the
largest number of eager PyTorch in double precision. Eager's own error in single precision stands
next to them. Times are the shortest of several runs of the same runtime: the stock flow calls the
kernel `_fft_r2c`, and has no form for other transforms.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, export

import stepwell

fft: Any = torch.fft
real = torch.view_as_real
LENGTHS = (16, 17, 64, 97, 128, 257, 400, 509, 512, 1000, 1021, 1024, 2048, 4093, 4096)
TARGETS = ("xnnpack", "tosa-1.0+fp", "tosa-1.0+fp+fft")


def stft(x: Tensor, window: Tensor) -> Tensor:
    """Transform frames of the window's length that overlap by three quarters."""
    n = len(window)
    return torch.stft(x.flatten(1), n, max(n // 4, 1), window=window, return_complex=True)


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rfft": lambda x, w: real(fft.rfft(x)),
    "magnitude": lambda x, w: fft.rfft(x).abs(),
    "power": lambda x, w: fft.rfft(x).abs() ** 2,
    "irfft": lambda x, w: fft.irfft(torch.complex(x, x.flip(-1))[..., : len(w) // 2 + 1], len(w)),
    "fft": lambda x, w: real(fft.fft(x)),
    "ifft": lambda x, w: real(fft.ifft(torch.complex(x, x.flip(-1)))),
    "fft2": lambda x, w: real(fft.fft2(x)),
    "stft": lambda x, w: real(stft(x, w)),
    "mel": lambda x, w: (stft(x, w).abs() ** 2).mT @ w.new_ones(w.shape[0] // 2 + 1, 8),
    "istft": lambda x, w: torch.istft(stft(x, w) * 0.5, len(w), max(len(w) // 4, 1), window=w),
}


class Net(nn.Module):
    """A function of rows and a window, which is a buffer."""

    window: Tensor

    def __init__(self, name: str, n: int) -> None:
        super().__init__()
        self.function = FUNCTIONS[name]
        self.register_buffer("window", torch.hann_window(n))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.window)


def distance(one: Tensor, exact: Tensor) -> float:
    """Return the greatest difference, as a share of the largest number."""
    return float((one.double() - exact).abs().max() / exact.abs().max())


def errors(name: str, n: int, target: str, *, is_open: bool) -> list[tuple[float, float]]:
    """Return the errors of the target and of eager PyTorch, for each batch."""
    net, sizes = Net(name, n), (2, 1, 5) if is_open else (2,)
    x = torch.randn(2, 3, n)
    shapes = ({0: Dim("batch", min=1, max=8)},) if is_open else None
    lowered = stepwell.lower(export(net, (x,), dynamic_shapes=shapes), target)
    file = lowered.to_pte() if target == "xnnpack" else None
    found: list[tuple[float, float]] = []
    for size in sizes:
        x = torch.randn(size, 3, n)
        results: Any = stepwell.run_pte(file, [x]) if file else lowered.run(x)
        one = results[0] if isinstance(results, tuple | list) else results
        eager = net(x)
        exact = Net(name, n).double()(x.double())
        found.append((distance(one, exact), distance(eager, exact)))
    return found


def exactness(lengths: list[int], targets: list[str]) -> None:
    """Print the errors of each function on each target, over lengths, batches and dynamic batch."""
    for target in targets:
        for name in FUNCTIONS:
            worst, eager, count, refused = 0.0, 0.0, 0, list[str]()
            # torch.export refuses an istft of odd length.
            for n in (n for n in lengths if name != "istft" or n % 2 == 0):
                for is_open in (False, True) if target == "xnnpack" else (False,):
                    try:
                        pairs = errors(name, n, target, is_open=is_open)
                    except stepwell.StepwellError as error:
                        refused.append(f"{n}: {str(error).splitlines()[0]}")
                        continue
                    count += 1
                    worst = max(worst, *(pair[0] for pair in pairs))
                    eager = max(eager, *(pair[1] for pair in pairs))
            print(f"| {target} | {name} | {count} | {worst:.1e} | {eager:.1e} |", flush=True)
            for line in refused:
                print(f"  refused {line}", flush=True)


def shortest(run: Callable[[], Any]) -> float:
    """Return the microseconds of the fastest call."""
    best, start = float("inf"), time.perf_counter()
    while time.perf_counter() - start < 0.4:
        before = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - before)
    return best * 1e6


def called(file: bytes, x: Tensor) -> Callable[[], Any]:
    """Return a call of a program's method."""
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(file)
    method = program.load_method("forward")
    assert method is not None
    method.kept = (file, program)  # type: ignore[attr-defined]
    return lambda: method.execute((x,))


def speed(lengths: list[int]) -> None:
    """Print microseconds of our program, of the stock flow's and of eager PyTorch."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    torch.set_num_threads(1)
    for name in ("rfft", "magnitude", "stft", "mel"):
        for n in lengths:
            for rows in (1, 100):
                wide = n if name in ("rfft", "magnitude") else n * 4
                x = torch.randn(1, rows, wide)
                net = Net(name, n)
                exported = export(net, (x,))
                ours = called(stepwell.lower(exported, "xnnpack").to_pte(), x)
                edge = to_edge_transform_and_lower(
                    exported,
                    partitioner=[XnnpackPartitioner()],
                    compile_config=EdgeCompileConfig(_check_ir_validity=False),
                )
                stock = called(edge.to_executorch().buffer, x)
                times = [min(shortest(ours), shortest(ours)), min(shortest(stock), shortest(stock))]
                eager = shortest(lambda net=net, x=x: net(x))
                print(
                    f"| {name} | {n} | {rows} | {times[0]:.0f} | {times[1]:.0f} | {eager:.0f} "
                    f"| {times[0] / times[1]:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--lengths", type=int, nargs="*", default=list(LENGTHS))
    parser.add_argument("--targets", nargs="*", default=list(TARGETS))
    given = parser.parse_args()
    torch.manual_seed(0)
    speed(given.lengths) if given.speed else exactness(given.lengths, given.targets)
