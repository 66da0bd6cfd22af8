"""Fit what operators take on XNNPACK and on OpenVINO: the model that `xnnpack+openvino` reads.

    python tools/engine_costs.py [--write] [--seconds 0.4]
    python tools/without_avx512.py … -- tools/engine_costs.py --write --kind x86-avx2

Chains of two and of six operators of a kind are lowered to each engine and timed on ExecuTorch's
runtime, on one core, in processes of their own; the difference is the time of four. `--write` keeps
the nanoseconds of an operation next to the dialect, under the kind of this CPU or under `--kind`.
Then `--models FILE`, a table that `tools/both_engines.py` printed, fits them to whole models, in
which operators are fused.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "examples/models")]

import numpy  # noqa: E402
import torch  # noqa: E402
from _models import made  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import stepwell  # noqa: E402
from stepwell.dialects.aten.op import SchemaOp  # noqa: E402
from stepwell.dialects.xnnpack.costs import cpu_kind  # noqa: E402
from stepwell.integrations.openvino.engines.costs import kind_of  # noqa: E402
from stepwell.ir.work import operations  # noqa: E402

FOLDER = ROOT / "src/stepwell/integrations/openvino/engines"
ENGINES = ("xnnpack", "openvino")
SHORT, LONG = 2, 6
FIRMNESS = 0.1
"""How much a factor of a rate counts, next to the time of a model."""


class Chain(nn.Module):
    """Operators one after another, each on the result of the one before."""

    def __init__(self, make: Callable[[], nn.Module], count: int) -> None:
        super().__init__()
        self.parts = nn.Sequential(*(make() for _ in range(count)))

    def forward(self, x: Tensor) -> Tensor:
        return self.parts(x)


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Added(nn.Module):
    """A sum with a tensor of the same shape, and a limit."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("other", torch.randn(shape))

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.other).clamp(-3, 3)


def conv(channels: int, window: int, groups: int = 1) -> Callable[[], nn.Module]:
    """Return a maker of convolutions with a rectifier."""
    made = dict(kernel_size=window, padding=window // 2, groups=groups)
    return lambda: nn.Sequential(nn.Conv2d(channels, channels, **made), nn.ReLU())


Case = tuple[Callable[[], nn.Module], tuple[int, ...], float]
"""A maker of operators, the shape of their operand, and their operations."""


def cases() -> dict[str, list[Case]]:
    """Return the cases of each kind."""
    images = ((64, 56), (128, 28), (256, 14))
    rows = ((197, 384), (64, 512), (196, 768))
    found: dict[str, list[Case]] = {
        "convolution": [(conv(c, 3), (1, c, s, s), 9.0 * c * c * s * s) for c, s in images],
        "pointwise": [(conv(c, 1), (1, c, s, s), float(c * c * s * s)) for c, s in images],
        "depthwise": [
            (conv(c, 3, c), (1, c, s, s), 9.0 * c * s * s)
            for c, s in ((96, 56), (144, 28), (384, 14))
        ],
        "linear": [(lambda w=w: nn.Linear(w, w), (n, w), float(n * w * w)) for n, w in rows],
    }
    found |= {f"int8 {kind}": held for kind, held in found.items()}
    found["int8 addition"] = [
        (lambda c=c, s=s: Added((1, c, s, s)), (1, c, s, s), 2.0 * c * s * s) for c, s in images
    ]
    found["addition"] = found["int8 addition"]
    attend = Of(lambda x: F.scaled_dot_product_attention(x, x, x))
    found["attention"] = [
        (lambda: attend, (1, 6, n, d), 2.0 * 6 * n * n * d) for n, d in ((197, 64), (64, 32))
    ]
    elements = [(n, w, float(n * w)) for n, w in rows]
    found["norm"] = [(lambda w=w: nn.LayerNorm(w), (n, w), k) for n, w, k in elements]
    found["function"] = [
        (lambda f=f: Of(f), (n, w), k) for n, w, k in elements for f in (F.gelu, torch.sigmoid)
    ]
    found["movement"] = [
        (lambda w=w: Of(lambda x: torch.cat([x[:, w // 3 :], x[:, : w // 3]], 1)), (n, w), 2 * k)
        for n, w, k in elements
    ]
    return found


def timed(case: Case, kind: str, seconds: float) -> dict[str, tuple[float, float]]:
    """Return the nanoseconds of both chains on each engine."""
    from quantized import quantize
    from stepwell.backends.executorch.running.runner import PteSession

    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})
    make, shape, _ = case
    torch.manual_seed(0)
    x = torch.randn(shape)
    calls: dict[tuple[str, int], Callable[[], Any]] = {}
    for count in (SHORT, LONG):
        model = Chain(make, count).eval()
        exported = (
            quantize(model, (x,), per_channel=True)
            if kind.startswith("int8")
            else torch.export.export(model, (x,))
        )
        for engine in ENGINES:
            session = PteSession.load(stepwell.lower(exported, engine).to_pte())
            held = session._engine, session.container.method("forward")
            calls[engine, count] = lambda held=held: held[0].execute(held[1], [x])
    best = dict.fromkeys(calls, math.inf)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for key, call in calls.items():
            started = time.perf_counter()
            call()
            best[key] = min(best[key], time.perf_counter() - started)
    return {e: (1e9 * best[e, SHORT], 1e9 * best[e, LONG]) for e in ENGINES}


def _child(pipe: Any, *given: Any) -> None:
    pipe.send(timed(*given))


def alone(*given: Any) -> dict[str, tuple[float, float]]:
    """Return the result of `timed` in a process of its own."""
    here, there = get_context("fork").Pipe()
    process = get_context("fork").Process(target=_child, args=(there, *given))
    process.start()
    there.close()
    found = here.recv()
    process.join()
    return found


def features(name: str) -> dict[str, float]:
    """Return the operations of each kind in a model, at the place where engines are chosen."""
    exported = made(name).exported()
    lowered = stepwell.lower(exported, "xnnpack", stop="widen-floats")
    found = Counter[str]()
    for op in lowered.program.method().body.block.ops:
        if isinstance(op, SchemaOp) and (kind := kind_of(op)) is not None:
            found[kind] += operations(op)
    return dict(found)


def fitted(rates: dict[str, float], times: dict[str, float]) -> dict[str, float]:
    """Return rates near those of single operators with which whole models take these times in ms.

    In a model, operators are fused, and of other shapes. Errors of models and of factors count
    alike, both as shares.
    """
    held = {name: features(name) for name in times}
    kinds = sorted({kind for counts in held.values() for kind in counts})
    of = {kind: rates.get(kind, rates.get(kind.removeprefix("int8 "), 0.1)) for kind in kinds}
    rows = [[held[n].get(k, 0.0) * of[k] / (1e6 * ms) for k in kinds] for n, ms in times.items()]
    near = FIRMNESS * numpy.eye(len(kinds))
    matrix = numpy.vstack([numpy.array(rows), near])
    wanted = numpy.concatenate([numpy.ones(len(rows)), FIRMNESS * numpy.ones(len(kinds))])
    factors, *_ = numpy.linalg.lstsq(matrix, wanted, rcond=None)
    factors = factors.clip(0.1, 10.0)
    return rates | {k: float(f"{of[k] * f:.3g}") for k, f in zip(kinds, factors, strict=True)}


def times_of(file: Path) -> dict[str, dict[str, float]]:
    """Return the milliseconds of each model on each engine, from a table of `both_engines.py`."""
    rows = [line.split("|")[1:-1] for line in file.read_text().splitlines() if "|" in line]
    rows = [[cell.strip() for cell in row] for row in rows if len(row) == 6]
    held = [row for row in rows if row[2].replace(".", "").isdigit()]
    return {e: {row[0]: float(row[at]) for row in held} for at, e in enumerate(ENGINES, 2)}


def mean(numbers: list[float]) -> float:
    """Return the geometric mean, of three digits."""
    return float(f"{math.exp(sum(map(math.log, numbers)) / len(numbers)):.3g}")


def main() -> None:
    """Print the table, and write it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--kind", default=cpu_kind())
    parser.add_argument("--machine", default="AMD EPYC")
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--models", type=Path, help="fit the table to a table of whole models")
    parser.add_argument("--only", help="measure one kind, and keep the others of the table")
    arguments = parser.parse_args()
    path = FOLDER / f"{arguments.kind}.json"
    keeps = arguments.only or arguments.models
    known = json.loads(path.read_text(encoding="utf-8")) if keeps else {}
    rates: dict[str, dict[str, float]] = {engine: known.get(engine, {}) for engine in ENGINES}
    crossing = list[float]()
    for kind, held in cases().items():
        if arguments.models or arguments.only not in (None, kind):
            continue
        steps: dict[str, list[float]] = {engine: [] for engine in ENGINES}
        for case in held:
            for engine, (short, long) in alone(case, kind, arguments.seconds).items():
                step = max((long - short) / (LONG - SHORT), 1.0)
                steps[engine].append(step / case[2])
                if kind == "convolution":
                    crossing.append(max(short - SHORT * step, 0.0) / (8 * math.prod(case[1])))
        for engine in ENGINES:
            rates[engine][kind] = mean(steps[engine])
        print(kind, *(rates[engine][kind] for engine in ENGINES), flush=True)
    if arguments.models:
        times = times_of(arguments.models)
        rates = {engine: fitted(rates[engine], times[engine]) for engine in ENGINES}
    table = {"machine": arguments.machine, **known}
    if crossing:
        table |= boundary(crossing, arguments.seconds)
    table |= rates
    print(json.dumps(table, indent=1))
    if arguments.write:
        path.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def boundary(crossing: list[float], seconds: float) -> dict[str, float]:
    """Return the times of a delegate's call and of a byte that crosses."""
    small: Case = (nn.ReLU, (1, 8), 8.0)
    call = sum(short for short, _ in alone(small, "addition", seconds).values())
    return {"call": round(call), "byte": float(f"{sum(crossing) / len(crossing):.3g}")}


if __name__ == "__main__":
    main()
