"""The page of measured special values, from the table: `docs/special_values.md`."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

from stepwell.dialects.xnnpack import NODES
from stepwell.ir.declared.engine_behavior import Change, engine_behavior, engines

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "special_values.md"
START, END = "<!-- measured: tools/special_values.py -->", "<!-- end of measured -->"
SUFFIXES = ("", " clamped", " to f16", " to f32", " to qint8", " to quint8")


def told(change: Change) -> str:
    """`NaN → 0`, `88.38 … 88.72 → inf`."""
    named = [
        "any"
        if wanted is None
        else "NaN"
        if math.isnan(wanted[0])
        else f"{wanted[0]:.4g}"
        if wanted[0] == wanted[1]
        else f"{wanted[0]:.4g} … {wanted[1]:.4g}"
        for wanted in change.operands
    ]
    result = {"left": "the first", "right": "the second"}.get(change.result, change.result)
    if change.expected not in ("finite", ""):
        result += f" (for {change.expected})"
    return f"{', '.join(named)} → {result}"


def rows() -> list[str]:
    """A row for each node, dtype and set of families that lose the same."""
    made: list[str] = []
    for name in sorted(node.name + suffix for node in NODES.values() for suffix in SUFFIXES):
        for dtype in ("f32", "f16"):
            by_losses: dict[str, list[str]] = defaultdict(list)
            for engine in engines():
                behavior = engine_behavior(name, dtype, engine)
                if behavior.is_known:
                    said = [told(change) for change in behavior.losses]
                    more = f"; and {len(said) - 6} more" if len(said) > 6 else ""
                    text = "; ".join(said[:6]) + more
                    by_losses[text or "as PyTorch"].append(engine.partition("/")[2])
            for text, families in by_losses.items():
                if list(by_losses) != ["as PyTorch"]:
                    made.append(f"| `{name}` | {dtype} | {', '.join(families)} | {text} |")
    return made


def write() -> None:
    """Put the table between the page's marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(START)[0], text.partition(END)[2]
    table = ["| node | dtype | CPUs | operand → result |", "|---|---|---|---|", *rows()]
    PAGE.write_text(before + "\n".join([START, "", *table, "", END]) + after, encoding="utf-8")
