"""Special numbers, their classes and their names, as `special_values.py` measures them."""

from __future__ import annotations

import math
from typing import Any

import torch

SPECIAL = {
    "nan": math.nan, "inf": math.inf, "-inf": -math.inf, "0": 0.0, "-0": -0.0,
    "denormal": 0.25, "-denormal": -0.25,  # of the smallest normal number
}  # fmt: skip
ORDINARY = {"1.5": 1.5, "-1.5": -1.5, "big": 0.75, "-big": -0.75}
"""Ordinary operands next to special ones; large ones as a fraction of the largest number."""


def special(name: str, dtype: torch.dtype) -> float:
    """A special value by its name."""
    info = torch.finfo(dtype)
    factor = {"denormal": info.smallest_normal, "big": info.max}.get(name.lstrip("-"), 1.0)
    return (SPECIAL | ORDINARY)[name] * factor


def classes(value: torch.Tensor) -> torch.Tensor:
    """0 NaN, 1 +inf, 2 -inf, 3 +0, 4 -0, 5 denormal, 6 any other number."""
    tiny = torch.finfo(value.dtype).smallest_normal
    found = torch.full(value.shape, 6)
    found[(value.abs() < tiny) & (value != 0)] = 5
    zero = value == 0
    found[zero] = 3 + value[zero].signbit().long()
    found[value == math.inf], found[value == -math.inf], found[value.isnan()] = 1, 2, 0
    return found


NAMES = ("nan", "inf", "-inf", "0", "-0", "denormal", "finite")


def named(value: float, dtype: torch.dtype, lower_limit: float = math.nan) -> str:
    """The class of one number, or the number itself, or `lower limit`."""
    if value == lower_limit:
        return "lower limit"
    found = NAMES[int(classes(torch.tensor([value], dtype=dtype))[0])]
    return f"{value:.9g}" if found in ("finite", "denormal") else found


def lower_limit_of(node: str) -> float:
    """The lower limit with which a node is measured."""
    return -1.0 if node.split()[-1] in ("clamped", "xnnpack.clamp") else math.nan


BITS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}


def _swapped(bits: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bits of floats to their places in order of size, the negative ones first; or back."""
    return torch.where(bits < 0, torch.iinfo(BITS[dtype]).min - 1 - bits, bits)


def places_of(numbers: torch.Tensor) -> torch.Tensor:
    """The places of floats in the order of all floats of their dtype."""
    return _swapped(numbers.view(BITS[numbers.dtype]).long(), numbers.dtype)


def at_places(places: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The floats at places in the order of all floats of a dtype."""
    return _swapped(places, dtype).to(BITS[dtype]).view(dtype)


def grid(dtype: torch.dtype) -> torch.Tensor:
    """Every number of 16 bits; or every single whose lower 16 bits are zero; from −NaN to NaN."""
    every = at_places(torch.arange(-(1 << 15), 1 << 15), torch.bfloat16)
    if dtype == torch.float32:
        return (every.view(torch.int16).to(torch.int32) << 16).view(torch.float32)
    return every.view(torch.int16).view(dtype)


def next_up(value: float, dtype: torch.dtype) -> float:
    """The next number of a dtype; past 0 and the zero between two segments."""
    return float(
        torch.nextafter(torch.tensor(value, dtype=dtype), torch.tensor(math.inf, dtype=dtype))
    )


def text(value: float) -> str:
    """A number as short as reads back in float32."""
    return f"{value:.9g}"


DENSE = 12
"""So many deviations of one node are taken together where they lie close."""
WORST = ("any", "nan", "inf", "-inf", "finite", "denormal", "0", "-0")
SMALL = {"denormal", "0", "-0"}
ANY = 7
"""The class of results of several classes, beside those of `NAMES`."""

Segment = tuple[float, float, int, float]
"""(lowest operand, highest, class of the result · 8 + that of PyTorch's, result of the lowest)."""


def runs(x: torch.Tensor, y: torch.Tensor, kinds: torch.Tensor) -> list[Segment]:
    """Neighbors of one deviation: (low, high, class, result of the lowest)."""
    key = kinds * 4 + x.isnan() * 2 + (x == 0)
    ends = (key[1:] != key[:-1]).nonzero().flatten().tolist()
    starts = [0, *(end + 1 for end in ends)]
    return [
        (float(x[low]), float(x[high]), int(kinds[low]), float(y[low]))
        for low, high in zip(starts, [*ends, len(x) - 1], strict=True)
        if int(kinds[low]) >= 0
    ]


def merged(found: list[Segment], dtype: torch.dtype, lower_limit: float) -> list[Any]:
    """Segments that meet, as one; numbers as text."""
    segments: list[list[Any]] = []
    points: set[tuple[str, str, str, str]] = set()
    for low, high, kind, y in sorted(found, key=lambda f: (f[0] == f[0], f[:3])):
        last = segments[-1] if segments else None
        if low != low or low == 0 == high:
            at = named(low, dtype)
            points.add((at, at, NAMES[kind % 8], named(y, dtype, lower_limit)))
        elif last and last[2] == kind and low <= next_up(last[1], dtype):
            last[1] = max(last[1], high)
        else:
            segments.append([low, high, kind, y])
    if len(segments) > DENSE:
        segments = widened(segments)
    return [
        *map(list, sorted(points)),
        *(
            [
                text(low),
                text(high),
                NAMES[kind % 8],
                result_of(kind, y, dtype, lower_limit),
            ]
            for low, high, kind, y in segments
        ),
    ]


def result_of(kind: int, y: float, dtype: torch.dtype, lower_limit: float) -> str:
    """The result of a segment: a class, the number of its lowest operand, or `any`."""
    if kind // 8 == ANY:
        return "any"
    return named(y, dtype, lower_limit) if kind // 8 in (5, 6) else NAMES[kind // 8]


def widened(segments: list[list[Any]]) -> list[list[Any]]:
    """Deviations that alternate with ordinary results, as one: a larger one is a sound one."""
    made: list[list[Any]] = []
    for low, high, kind, y in segments:
        last = made[-1] if made else None
        if last and low * last[1] > 0 and (low - last[1]) <= 0.25 * max(abs(low), abs(last[1])):
            last[1] = max(last[1], high)
            results = [NAMES[k // 8] if k // 8 != ANY else "any" for k in (kind, last[2])]
            if not set(results) <= SMALL and results[0] != results[1]:
                last[2] = ANY * 8 + last[2] % 8
            elif WORST.index(results[0]) < WORST.index(results[1]):
                last[2:] = kind, y
        else:
            made.append([low, high, kind, y])
    return made
