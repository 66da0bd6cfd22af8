"""Every form of node over a grid of shapes and datatypes: where XNNPACK is fast, and where not.

    python bench/kernel_atlas.py [--rounds 8] [--families depthwise,movement] [--page FILE.html]

Each node is timed alone on ExecuTorch's runtime (`bench/_nodes.py`: one thread's CPU time, the
difference of two trials, the least of `--rounds`). A product's speed is in GFLOP/s, everything
else's in GB/s read and written; its share is of the best that this machine reaches for a product of
that datatype, or for any node that only moves. Kept in bench/results/atlas_<kind of CPU>.json. The
page draws heat maps: holes are seen, not searched.
"""

from __future__ import annotations

import argparse
import html
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from _atlas_forms import Entry, entries
from _nodes import seconds_here
from _report import RESULTS, prepare, show, write
from costs import kind, machine
from xnnpack import set_threads


@dataclass(frozen=True)
class Square:
    """A measured entry: G operations or G bytes a second, and its share of the best."""

    family: str
    row: str
    column: str
    datatype: str
    is_product: bool
    speed: float | None
    share: float | None = None


def measured(entry: Entry, rounds: int) -> Square:
    """One square; its speed is None where the runtime has no such node."""
    speed: float | None = None
    try:
        taken = seconds_here(entry.form, rounds)
        speed = entry.work / taken / 1e9 if taken else None
    except Exception as problem:
        print(f"{entry.row}, {entry.column}, {entry.datatype}: {problem!r:.120}", flush=True)
    return Square(entry.family, entry.row, entry.column, entry.datatype, entry.is_product, speed)


def with_shares(squares: list[Square]) -> list[Square]:
    """The same with shares of the best of their kind."""
    best: dict[tuple[bool, str], float] = {}
    for square in squares:
        rivals = _rivals(square)
        best[rivals] = max(best.get(rivals, 0.0), square.speed or 0.0)
    return [
        square
        if square.speed is None
        else replace(square, share=square.speed / best[_rivals(square)])
        for square in squares
    ]


def _rivals(square: Square) -> tuple[bool, str]:
    """Return the squares to compare with: products of its datatype, or all data movement."""
    return square.is_product, square.datatype if square.is_product else ""


def page(squares: Iterable[Square], title: str) -> str:
    """Heat maps, one a family and datatype: green is the best of its kind, red a tenth or less."""
    held = list(squares)
    parts = [
        f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title>",
        "<style>body{font:13px system-ui;margin:2em}table{border-collapse:collapse;margin:0 0 2em}"
        "td,th{padding:2px 7px;text-align:right}th{font-weight:500;text-align:left}</style>",
        f"<h1>{html.escape(title)}</h1><p>GFLOP/s of products, GB/s read and written of the rest; "
        "the color is the share of the best of its kind on this machine.</p>",
    ]
    for family in dict.fromkeys(square.family for square in held):
        for datatype in dict.fromkeys(s.datatype for s in held if s.family == family):
            here = [s for s in held if (s.family, s.datatype) == (family, datatype)]
            columns = list(dict.fromkeys(s.column for s in here))
            parts.append(f"<h2>{html.escape(f'{family}, {datatype}')}</h2><table><tr><th>")
            parts += [f"<th>{html.escape(column)}" for column in columns]
            for row in dict.fromkeys(s.row for s in here):
                cells = {s.column: s for s in here if s.row == row}
                parts.append(f"<tr><th>{html.escape(row)}")
                parts += [_cell(cells.get(column)) for column in columns]
            parts.append("</table>")
    return "\n".join(parts) + "\n"


def _cell(square: Square | None) -> str:
    if square is None or square.speed is None or square.share is None:
        return "<td>–"
    hue = round(120 * min(1.0, max(0.0, (square.share - 0.1) / 0.7)))
    return f'<td style="background:hsl({hue} 70% 75%)">{square.speed:.3g}'


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8, help="runs of each trial")
    parser.add_argument("--families", default="", help="some heat maps alone, by name")
    parser.add_argument("--page", type=Path, help="write the heat maps here")
    options = parser.parse_args()
    prepare()
    set_threads(1)
    torch.manual_seed(0)
    wanted = [name for name in options.families.split(",") if name]
    kept = f"atlas_{kind()}"
    file = RESULTS / f"{kept}.json"
    before = json.loads(file.read_text())["results"] if wanted and file.exists() else []
    squares = [Square(**held) for held in before if held["family"] not in wanted]
    squares += [
        measured(entry, options.rounds)
        for entry in entries()
        if not wanted or entry.family in wanted
    ]
    squares = with_shares(squares)
    write(kept, [vars(square) for square in squares])
    holes = sorted((s for s in squares if s.share is not None), key=lambda s: s.share or 0.0)
    rows = [
        [f"{s.family}: {s.row}", s.column, s.datatype, f"{s.speed:.3g}", f"{s.share:.1%}"]
        for s in holes[:30]
    ]
    show(
        f"{len(squares)} squares; the deepest holes",
        ("node", "shape", "type", "G/s", "share"),
        rows,
    )
    if options.page:
        options.page.write_text(
            page(squares, f"XNNPACK's kernels on {machine()} ({kind()}), one thread")
        )


if __name__ == "__main__":
    main()
