"""Measure the forms of a layer on XNNPACK's kernels, beside the estimates that decisions use.

    python tools/kernel_atlas.py [--kind x86-avx2] [--rounds 12] [--table docs/xnnpack.md]
    python tools/without_avx512.py --keep FOLDER -- tools/kernel_atlas.py --kind x86-avx2

For each layer it prints GFLOP/s, 2 · multiply-adds over time, of the convolution node, of linear
layers row by row (`convolve_by_rows`), and of a linear layer of the same products: the most that a
convolution can reach. In float32, float16, int8 and dynamic int8, whose time includes quantizing
the image or its patches; one thread, the least of many runs. The last columns are estimated over
measured times with the costs of `--kind` (by default, this CPU's), and the form that they choose.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from xdsl.dialects.test import TestOp
from xdsl.ir import Operation, SSAValue

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

from _nodes import Form, Writer, seconds_here
from _report import between_markers, cpu_name, markdown, prepare, set_threads, show

from stepwell.dialects import xnnpack
from stepwell.dialects.quant import StorageCast
from stepwell.dialects.quant.types import per_axis, per_tensor
from stepwell.dialects.xnnpack import costs
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import f32
from stepwell.ir.types import tensor, tensor_like, with_element
from stepwell.translate.rewrites.xnnpack.convolutions.convolve_by_rows import (
    directly,
    rows_of,
    summed_by_rows,
)


@dataclass(frozen=True)
class Layer:
    """A convolution of a square image with as much padding as keeps its size."""

    inputs: int
    outputs: int
    size: int
    window: int = 3
    stride: int = 1

    def __str__(self) -> str:
        strides = f", stride {self.stride}" if self.stride > 1 else ""
        return f"{self.window}×{self.window}, {self.inputs} → {self.outputs}, {self.size}²{strides}"

    @property
    def results(self) -> int:
        """Return the size of the result's image."""
        return (self.size + 2 * (self.window // 2) - self.window) // self.stride + 1

    @property
    def products(self) -> int:
        """Return the number of multiply-adds."""
        return self.results**2 * self.outputs * self.inputs * self.window**2


LAYERS = (
    Layer(64, 64, 56),
    Layer(128, 128, 28),
    Layer(256, 256, 14),
    Layer(512, 512, 7),
    Layer(64, 64, 112),
    Layer(128, 256, 28, stride=2),
    Layer(256, 512, 14, window=1, stride=2),
    Layer(16, 96, 56),
    Layer(24, 24, 28),
    Layer(32, 64, 28, window=5),
    Layer(3, 64, 224, window=7, stride=2),
    Layer(3, 32, 224, stride=2),
)
FLOATS = {"float32": torch.float32, "float16": torch.float16}


IMAGE, TAPS, RESULTS = (per_tensor(torch.int8, scale) for scale in (0.05, 0.01, 0.5))
"""The types of int8 values."""


class Inserter:
    """What `summed_by_rows` needs of a rewriter, for a block that is written."""

    def __init__(self, writer: Writer) -> None:
        self.writer, self.weights = writer, writer.weights

    def insert(self, op: Operation) -> Operation:
        """Add an op."""
        self.writer(op)
        return op

    def weight(self, key: str) -> SSAValue:
        """Return the constant of a key, derived ones too."""
        return self.writer(WeightOp(key, tensor_like(self.weights.get(key))))

    def constant(self, value: torch.Tensor, name: str) -> SSAValue:
        """Return a constant."""
        return self.writer.weight(value)


def convolution(layer: Layer, image: SSAValue, taps: SSAValue, more: Any, **extra: Any) -> Any:
    """Return the convolution node of a layer."""
    padding = (layer.window // 2,) * 4
    stride = (layer.stride,) * 2
    fields = {"padding": padding, "stride": stride, "dilation": (1, 1), "groups": 1}
    return xnnpack.Convolution2d.make(image, taps, *more, **fields, **extra)


def forms(layer: Layer, kind: str) -> dict[str, Form | None]:
    """Return the forms of a layer whose numbers are of one kind."""
    image = torch.randn(1, layer.size, layer.size, layer.inputs)
    taps = torch.randn(layer.outputs, layer.window, layer.window, layer.inputs) / 10
    bias, reads = torch.randn(layer.outputs), layer.inputs * layer.window**2
    patches = torch.randn(1, layer.results, layer.results, reads)
    if kind not in FLOATS:
        make = _of_integers if kind == "int8" else _of_dynamic_integers
        return make(layer, image, taps, patches)
    image, taps, bias, patches = (x.to(FLOATS[kind]) for x in (image, taps, bias, patches))

    def node(w: Writer, x: SSAValue) -> SSAValue:
        return w(convolution(layer, x, w.weight(taps), (w.weight(bias),)))

    def linear(w: Writer, x: SSAValue) -> SSAValue:
        matrix = taps.reshape(layer.outputs, -1).contiguous()
        return w(xnnpack.FullyConnected.make(x, w.weight(matrix), w.weight(bias)))

    found: dict[str, Form | None] = {"convolution": Form((image,), node)}
    found["rows"] = Form((image,), _by_rows(layer, taps, bias)) if kind == "float32" else None
    return {**found, "linear": Form((patches,), linear)}


def _by_rows(layer: Layer, taps: torch.Tensor, bias: torch.Tensor | None) -> Any:
    """Return a function that writes a layer row by row; without a bias, of int8."""

    def rows(w: Writer, x: SSAValue) -> SSAValue:
        inserter = Inserter(w)
        key = w.weights.constant(taps)
        filter_, more = WeightOp(key, tensor_like(taps)).results[0], ()
        fields = {}
        if bias is None:
            x, filter_ = w.cast(x, IMAGE), StorageCast(filter_, with_element(filter_.type, TAPS))
            filter_, fields = filter_.results[0], {"result": of_results(layer)}
        else:
            more = (w.weight(bias),)
        op = convolution(layer, x, filter_, more, **fields)
        made = summed_by_rows(op, rows_of(op), key, inserter).ssa  # type: ignore[arg-type]
        op.erase(safe_erase=False)
        return made

    return rows


def of_results(layer: Layer) -> Any:
    """Return the type of the int8 results of a layer."""
    return tensor((1, layer.results, layer.results, layer.outputs), RESULTS)


def _of_integers(
    layer: Layer, image: torch.Tensor, taps: torch.Tensor, patches: torch.Tensor
) -> dict[str, Form | None]:
    """Return the forms of a layer of int8."""
    image, taps, patches = (
        (10 * value).clamp(-127, 127).to(torch.int8) for value in (image, taps, patches)
    )

    def node(w: Writer, x: SSAValue) -> SSAValue:
        operands = w.cast(x, IMAGE), w.weight(taps, TAPS)
        return w(convolution(layer, *operands, (), result=of_results(layer)))

    def linear(w: Writer, x: SSAValue) -> SSAValue:
        matrix = w.weight(taps.reshape(layer.outputs, -1).contiguous(), TAPS)
        return w(xnnpack.FullyConnected.make(w.cast(x, IMAGE), matrix, result=of_results(layer)))

    return {
        "convolution": Form((image,), node),
        "rows": Form((image,), _by_rows(layer, taps, None)),
        "linear": Form((patches,), linear),
    }


def _of_dynamic_integers(
    layer: Layer, image: torch.Tensor, taps: torch.Tensor, patches: torch.Tensor
) -> dict[str, Form | None]:
    """Return the forms of a layer with int8 weights, whose image is quantized at run time."""
    taps = (10 * taps).clamp(-127, 127).to(torch.int8)
    held = per_axis(torch.int8, 0, [0.01] * layer.outputs)
    made = tensor((1, layer.results, layer.results, layer.outputs), f32)

    def node(w: Writer, x: SSAValue) -> SSAValue:
        operands = w.dynamic(x, 3), w.weight(taps, held)
        return w(convolution(layer, *operands, (), result=made))

    def linear(w: Writer, x: SSAValue) -> SSAValue:
        matrix = w.weight(taps.reshape(layer.outputs, -1).contiguous(), held)
        return w(xnnpack.FullyConnected.make(w.dynamic(x), matrix, result=made))

    return {"convolution": Form((image,), node), "rows": None, "linear": Form((patches,), linear)}


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", help="of this CPU, if features of it are masked")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--table", type=Path, help="write the table between this file's marks")
    options = parser.parse_args()
    prepare()
    set_threads(1)
    kind = options.kind or costs.cpu_kind()
    table = costs.load(kind)
    heads = ["layer", "numbers", "convolution", "rows", "linear", "estimate ÷ time", "chosen"]
    rows: list[list[str]] = []
    for layer in LAYERS:
        for numbers in (*FLOATS, "int8", "dynamic int8"):
            seconds = {
                name: form and seconds_here(form, rounds=options.rounds)
                for name, form in forms(layer, numbers).items()
            }
            cells = [
                "–" if taken is None else f"{2e-9 * layer.products / taken:.0f}"
                for taken in seconds.values()
            ]
            estimates = ["–", "–"]
            if numbers in ("float32", "int8"):
                estimates = estimated(layer, numbers, seconds, table)
            rows.append([str(layer), numbers, *cells, *estimates])
            print(*rows[-1], sep=" | ", flush=True)
    show(f"{kind}, GFLOP/s on {cpu_name()}", heads, rows)
    if options.table:
        between_markers(options.table, f"atlas {kind}", markdown(heads, rows))


def estimated(
    layer: Layer, numbers: str, seconds: dict[str, float | None], table: costs.Costs
) -> list[str]:
    """Return the estimated over the measured times, and the form that the estimates choose."""
    image = tensor((1, layer.size, layer.size, layer.inputs), f32)
    taps = tensor((layer.outputs, layer.window, layer.window, layer.inputs), f32)
    fields = {}
    if numbers == "int8":
        image, taps = with_element(image, IMAGE), with_element(taps, TAPS)
        fields = {"result": of_results(layer)}
    values = TestOp(result_types=[image, taps]).results
    op = convolution(layer, *values, (), **fields)
    times = {"convolution": directly(op, table), "rows": rows_of(op).cost(table)}
    quotients = (f"{1e-9 * time / (seconds[name] or 1):.2f}" for name, time in times.items())
    return [", ".join(quotients), min(times, key=times.__getitem__)]


if __name__ == "__main__":
    main()
