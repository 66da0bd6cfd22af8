"""The measured behavior of an engine's nodes on special values, on each family of CPUs.

A dialect of an engine registers its table of measurements (`tools/special_values.py`). A node,
dtype or family without an entry is unknown: for a NaN, an infinity, a zero or a large number, its
result may be anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from stepwell.ir.diagnostics import StepwellError

Range = tuple[float, float]
"""Numbers from the first to the second, zeros with their sign; two NaN are a NaN."""
NAN: Range = (math.nan, math.nan)
ZEROS, FINITE = frozenset(("0", "-0")), frozenset(("denormal", "finite"))
_TINY = {"f32": 2.0**-126, "f16": 2.0**-14}
_MOST = {"f32": 3.4028234663852886e38, "f16": 65504.0}
_TABLES: dict[str, Path] = {}


@dataclass(frozen=True)
class Change:
    """A set of operands for which an engine's result differs from PyTorch's.

    Attributes:
        operands: the range of each operand, None for any; for a sum or a window, of one element.
        expected: the class of PyTorch's result: nan, inf, -inf, 0, -0, denormal, finite.
        result: the engine's result: a class, a number, a range (`1.4e19 to 1.8e19`), `left` or
            `right` (that operand itself), `lower limit`, or `any` (NaN or any number).
        is_flush: whether the cause is that denormal numbers are read or written as zero, or the
            order in which large numbers are added.
    """

    operands: tuple[Range | None, ...]
    expected: str
    result: str
    is_flush: bool = False

    @property
    def numbers(self) -> Range:
        """Return the least and the greatest result, if the result is a number or a range."""
        low, _, high = self.result.partition(" to ")
        return float(low), float(high or low)

    @property
    def is_loss(self) -> bool:
        """Whether the difference is more than a rounding error.

        These are not: denormal numbers, the sign of a zero, zero for a small number (error bounds
        cover this approximation), and an overflow due to the order of additions.
        """
        if self.is_flush:
            return False
        if self.result in ("left", "right"):
            kept = self.operands[self.result == "right"]
            return not (self.expected in ZEROS and kept is not None and kept[0] == 0 == kept[1])
        return not (self.expected in ZEROS | FINITE and self.result in ZEROS | {"denormal"})

    def may_meet(self, given: Sequence[tuple[float, float, bool]]) -> bool:
        """Whether operands of these ranges, (least, greatest, may be NaN) each, can be affected."""
        return all(
            wanted is None
            or (nan if math.isnan(wanted[0]) else wanted[0] <= high and low <= wanted[1])
            for wanted, (low, high, nan) in zip(self.operands, given, strict=False)
        )


@dataclass(frozen=True)
class EngineBehavior:
    """The behavior of one node on special values, on one engine."""

    engine: str
    node: str
    dtype: str
    changes: tuple[Change, ...] = ()
    is_known: bool = True

    @property
    def losses(self) -> tuple[Change, ...]:
        """Return the differences from PyTorch that are more than rounding errors."""
        return tuple(change for change in self.changes if change.is_loss)

    def keeps(self, given: Sequence[tuple[float, float, bool]]) -> bool:
        """Whether no loss affects operands of these ranges, (least, greatest, may be NaN) each."""
        return not any(change.may_meet(given) for change in self.losses)


def table_stands_in(engine: str, path: Path) -> None:
    """Register the JSON file with the measured behavior of an engine's nodes."""
    _TABLES[engine] = path


def engines() -> tuple[str, ...]:
    """Return the measured engines of imported dialects, by family of CPUs: `xnnpack/avx2`."""
    return tuple(name for path in _TABLES.values() for name in _table(path))


def changes_special_values(node: Any) -> bool:
    """Whether an op is a node of an engine that changes special values on some family of CPUs."""
    behavior = getattr(node, "behavior", None)
    return behavior is not None and any(behavior(engine).losses for engine in engines())


def known_engine(engine: str) -> str:
    """Return the name of an engine unchanged, after checking it.

    Raises:
        StepwellError: no engine of this name was measured.
    """
    if engine not in engines():
        raise StepwellError(
            f"no engine named {engine!r} was measured", help=f"measured are {', '.join(engines())}"
        )
    return engine


@cache
def engine_behavior(node: str, dtype: str, engine: str) -> EngineBehavior:
    """Return the behavior of a node on special values.

    Args:
        node: the op's name, `xnnpack.exp`, followed by `clamped` if the op clamps its result.
        dtype: `f32`, `f16`, or the name of a quantized type.
        engine: one of `engines()`.

    Raises:
        StepwellError: no such engine was measured.
    """
    table = _table(_TABLES[known_engine(engine).partition("/")[0]])
    if dtype not in _TINY:  # Integers have no special values.
        return EngineBehavior(engine, node, dtype)
    rows = table[engine].get(node, {}).get(dtype)
    if rows is None:
        unknown = (Change((NAN,), "nan", "0"), Change(((-math.inf, math.inf),), "finite", "nan"))
        return EngineBehavior(engine, node, dtype, unknown, is_known=False)
    return EngineBehavior(engine, node, dtype, tuple(_change(row, dtype) for row in rows))


@cache
def _table(path: Path) -> Mapping[str, Mapping[str, Mapping[str, list[list[Any]]]]]:
    return json.loads(path.read_text(encoding="utf-8"))


def _change(row: list[Any], dtype: str) -> Change:
    """Parse a row of the table: operands, then the expected and the measured result."""
    *operands, expected, result = row
    ranges: tuple[Range | None, ...]
    if isinstance(operands[0], int):
        ranges = (*[None] * operands[0], _range(operands[1], dtype))
    elif operands[0].startswith("stored of "):
        ranges = (_range(operands[0].removeprefix("stored of "), dtype),)
    elif operands[0].startswith("of "):
        ranges = tuple(_range(name.removeprefix("of "), dtype) for name in operands)
    else:
        ranges = ((float(operands[0]), float(operands[1])),)
    is_small = any(r is not None and 0 < max(map(abs, r)) < _TINY[dtype] for r in ranges)
    is_order = isinstance(operands[0], int) and operands[1].endswith("big")
    return Change(ranges, expected, result, is_small or is_order or expected == "denormal")


def _range(name: str, dtype: str) -> Range:
    """Return the range of numbers that a name in the table stands for: `big`, `-denormal`, `0`."""
    sign, short = (-1.0, name[1:]) if name[0] == "-" else (1.0, name)
    tiny, most = _TINY[dtype], _MOST[dtype]
    named = {
        "denormal": (tiny * 2**-9, tiny * (1 - 2**-9)),
        "big": (most / 2, most),
        "1.5": (tiny, most),
    }
    low, high = named[short] if short in named else (float(short), float(short))
    return (low, high) if sign > 0 else (-high, -low)
