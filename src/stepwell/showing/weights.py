"""The weights of a program as rows: names, types and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stepwell.ir.core import WeightOp
from stepwell.ir.program import Program
from stepwell.ir.types import dims, element


@dataclass(frozen=True)
class WeightRow:
    """One weight of the program: key, element type, dimensions and bytes."""

    key: str
    element: str
    shape: str
    bytes: int


def weight_rows(program: Program) -> Iterator[WeightRow]:
    """Each weight that the program names, largest first; nothing is evaluated."""
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
    """Bytes of a weight's elements; 0 where its element type has no fixed size."""
    held = element(type_)
    width = getattr(held, "bitwidth", None)
    if width is None:
        stored = getattr(held, "storage_type", None)
        width = getattr(stored, "bitwidth", 0)
    count = 1
    for dim in dims(type_):
        count *= dim if isinstance(dim, int) else 1
    return (count * int(width) + 7) // 8
