"""One edit of a draft, and helpers for edits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import (
    TensorType,
)

from stepwell.ir import dtypes
from stepwell.validation.contracts.draft import Draft, DraftInput

Change = Callable[[Draft], None]


@dataclass(frozen=True)
class Edit:
    """One change.

    Attributes:
        kind: the property that it varies: "dtypes", "shapes", "arguments", "readers", "constants",
            "quantized", "layouts", "operators", "symbols" or "no data".
        label: the description of the edit.
        change: applies it to a draft in place.
    """

    kind: str
    label: str
    change: Change


KINDS = (
    "dtypes", "shapes", "arguments", "readers", "constants", "quantized", "layouts", "operators",
    "symbols", "no data",
)  # fmt: skip

ELEMENTS = (
    dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64,
    dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64, dtypes.ui8, dtypes.i1,
)  # fmt: skip
INTEGERS = (0, 1, -1, 2, -2, 3, 7, 100)
LARGE = (1 << 31, -(1 << 31), (1 << 63) - 1)
REALS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.5, 1e-45, 1e-40, 1e38, 3.5e38, 70000.0,
    math.inf, -math.inf, math.nan,
)  # fmt: skip
WORDS: dict[str, tuple[str, ...]] = {
    "approximate": ("none", "tanh"),
    "padding": ("same", "valid"),
    "mode": ("constant", "reflect", "replicate", "circular"),
    "rounding_mode": ("floor", "trunc"),
    "reduce": ("sum", "prod", "mean", "amax", "amin"),
}
"""The choices of a string argument, by its name."""


def name_of(draft: Draft, source: DraftInput) -> str:
    """Return the name of a source in labels."""
    return source.key or f"input {[s for s in draft.sources if s.key is None].index(source)}"


def tensors_of(draft: Draft) -> Iterator[tuple[int, DraftInput]]:
    """Yield the tensor sources with their index."""
    for index, source in enumerate(draft.sources):
        if isinstance(source.type, TensorType):
            yield index, source


def numbers_of(attr: Any) -> list[Any]:
    """Return the numbers of an array attribute."""
    return list(attr.get_values())
