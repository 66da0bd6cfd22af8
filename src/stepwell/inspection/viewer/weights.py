"""List a program's weights in tables: names, types and bytes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from stepwell.dialects.quant.types import quantization
from stepwell.ir.core import WeightOp
from stepwell.ir.program import Program
from stepwell.ir.types import dims, element


@dataclass(frozen=True)
class WeightRow:
    """A row about one weight of the program: key, element type, dimensions and bytes."""

    key: str
    element: str
    shape: str
    bytes: int


def weight_rows(program: Program) -> Iterator[WeightRow]:
    """Yield each weight of the program, largest first, without evaluating it."""
    types: dict[str, Any] = {}
    for op in program.module.walk():
        if isinstance(op, WeightOp):
            types[op.key.data] = op.result.type
    rows: list[WeightRow] = []
    for key, type_ in types.items():
        shape = dims(type_)
        rows.append(
            WeightRow(key, str(element(type_)), "×".join(map(str, shape)), weight_bytes(type_))
        )
    yield from sorted(rows, key=lambda row: -row.bytes)


def weight_bytes(type_: Any) -> int:
    """Return the bytes of a weight's elements; 0 if its element type has no fixed size."""
    held = quantization(type_)
    width = getattr(element(type_) if held is None else held.storage, "bitwidth", 0)
    count = 1
    for dim in dims(type_):
        count *= dim if isinstance(dim, int) else 1
    return (count * int(width) + 7) // 8


Numbers = tuple[float, float, float, tuple[float, ...]]
"""Minimum, maximum and mean of a weight's elements, and the first four."""
_MOST_BYTES = 64_000_000


def weight_numbers(program: Program, most: int = _MOST_BYTES) -> dict[str, Numbers]:
    """Return the statistics of a program's weights, in the order of `weight_rows`, up to `most`
    bytes.

    Quantized weights are described by their stored integers; NaN and infinities are skipped.
    """
    numbers: dict[str, Numbers] = {}
    for row in weight_rows(program):
        most -= row.bytes
        if most < 0:
            continue
        if program.weights.is_known(row.key) and row.bytes:
            values = program.weights.get(row.key).detach().flatten()
            real = values.double() if not values.is_complex() else values.abs().double()
            finite = real[real.isfinite()]
            if finite.numel():
                least, greatest = finite.aminmax()
                first = tuple(_short(value) for value in finite[:4])
                numbers[row.key] = (_short(least), _short(greatest), _short(finite.mean()), first)
    return numbers


def _short(value: torch.Tensor) -> float:
    return float(f"{value.item():.4g}")
