"""Horizontal bar charts as SVG, for the `plot()` of results and the figures of the
documentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from math import isfinite, isnan, log10
from os import PathLike
from pathlib import Path

from stepwell.ir.diagnostics import short
from stepwell.ir.platform.files import write_atomically

OURS, THEIRS, OTHERS = "#0b7285", "#c2570c", ("#6741d9", "#5c7080", "#2b8a3e", "#a61e4d")
COLORS = (OURS, THEIRS, *OTHERS)
MOST_BARS = 40
_MOST_LETTERS = 44
"""Of a label; of a longer one, the end is drawn."""
Value = float | tuple[float, float]
"""A number, or a number and its error."""


@dataclass(frozen=True)
class Plot:
    """A picture that notebooks show; `svg` is its source."""

    svg: str = field(repr=False)

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture as an `.svg` file.

        Raises:
            StepwellError: the file cannot be written.
        """
        write_atomically(Path(path), self.svg.encode())


def plot(
    title: str,
    names: Sequence[str],
    rows: Sequence[tuple[str, Sequence[Value]]],
    logarithmic: bool = False,
) -> Plot:
    """Draw bars for the first `MOST_BARS` rows; the title states how many rows are omitted.

    Args:
        title: the quantity, with its unit.
        names: the name of each bar of a row, at most six.
        rows: a label and a value for each name.
        logarithmic: whether the axis is logarithmic.
    """
    if (more := len(rows) - MOST_BARS) > 0:
        title += f"; {more} more rows are not drawn"
    return Plot(bars(title, names, COLORS[: len(names)], rows[:MOST_BARS], logarithmic))


def bars(
    title: str,
    names: Sequence[str],
    colors: Sequence[str],
    rows: Sequence[tuple[str, Sequence[Value]]],
    logarithmic: bool = False,
) -> str:
    """Draw horizontal bars from zero, of either sign, a group for each row, as SVG.

    Lengths are percentages of the picture's width, and text has one size and the page's color, so
    that a narrow screen shows the same. Numbers that are not finite end where the finite ones do.
    """
    pairs = [[v if isinstance(v, tuple) else (v, 0.0) for v in row] for _, row in rows]
    ends = [v + side for row in pairs for v, e in row for side in (-e, e) if isfinite(v + side)]
    least = min((v for v in ends if v > 0), default=1.0)

    def scaled(value: float) -> float:
        return log10(max(value, least)) - log10(least) + 0.15 if logarithmic else value

    places = [0.0, *map(scaled, ends)]
    low, high = min(places), max(places)
    high = high if high > low else low + 1

    def at(value: float) -> float:
        """Return the place of a value in percent; the right third is for numbers."""
        place = high if isnan(value) else min(max(scaled(value), low), high)
        return 64 * (place - low) / (high - low)

    zero = 64 * -low / (high - low)
    thick, top = 13, 26 + 17 * len(names)
    group = 20 + thick * len(names)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{top + group * len(rows)}" '
        'class="bars" role="img" font-family="system-ui, sans-serif" font-size="12">',
        "<style>text{fill:#1c2230}.bars line{stroke:#1c2230}.bars .error{stroke-width:2}"
        "@media(prefers-color-scheme:dark){text{fill:#d9dee8}.bars line{stroke:#d9dee8}}</style>",
        f"<title>{escape(title)}</title>",
        f'<text x="0" y="14" font-weight="600">{escape(title)}</text>',
    ]
    for which, (name, color) in enumerate(zip(names, colors, strict=False)):
        y = 22 + 17 * which
        parts.append(f'<rect x="0" y="{y}" width="11" height="11" fill="{color}"/>')
        parts.append(f'<text x="16" y="{y + 10}">{escape(name)}</text>')
    for index, ((label, _), row) in enumerate(zip(rows, pairs, strict=True)):
        y = top + index * group + 14
        told = label if len(label) <= _MOST_LETTERS else f"…{label[1 - _MOST_LETTERS :]}"
        parts.append(f'<text x="0" y="{y}">{escape(told)}</text>')
        for which, (value, error) in enumerate(row):
            middle = y + 11 + which * thick
            begin, end = sorted((zero, at(value)))
            number = f"{short(value, '+')} ± {short(error)}" if error else f"{value:g}"
            parts.append(
                f'<rect x="{begin:.2f}%" y="{middle - 5}" width="{end - begin:.2f}%" height="10" '
                f'fill="{colors[which]}"/><text x="100%" y="{middle + 4}" text-anchor="end" '
                f'font-size="11">{number}</text>'
            )
            if error:
                line = f'x1="{at(value - error):.2f}%" x2="{at(value + error):.2f}%"'
                parts.append(f'<line class="error" {line} y1="{middle}" y2="{middle}"/>')
        line = f'x1="{zero:.2f}%" x2="{zero:.2f}%" y1="{y + 5}" y2="{y + 5 + thick * len(names)}"'
        parts.append(f'<line class="zero" {line}/>')
    return "".join(parts) + "</svg>\n"
