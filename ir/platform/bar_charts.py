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

from stepwell.ir.platform.files import write_atomically

OURS, THEIRS, OTHERS = "#0b7285", "#c2570c", ("#6741d9", "#5c7080", "#2b8a3e", "#a61e4d")
COLORS = (OURS, THEIRS, *OTHERS)
MOST_BARS = 40
_MOST_LETTERS = 44
"""Of a label; of a longer one, the end is drawn."""
_STYLE = (
    "<style>text{fill:#1c2230}.bars line{stroke:#1c2230}.bars .error{stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#d9dee8}.bars line{stroke:#d9dee8}}</style>"
)


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
    rows: Sequence[tuple[str, Sequence[float]]],
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


def plot_with_errors(
    title: str,
    names: Sequence[str],
    rows: Sequence[tuple[str, Sequence[tuple[float, float]]]],
) -> Plot:
    """Draw bars from zero, of either sign, with error bars, for the first `MOST_BARS` rows.

    Lengths are percentages of the picture's width and text has one size, so that a narrow screen
    shows the same text. Numbers that are not finite end where the finite ones do.

    Args:
        title: the quantity, with its unit.
        names: the name of each bar of a row, at most six.
        rows: a label, and for each name a value and its error.
    """
    if (more := len(rows) - MOST_BARS) > 0:
        title += f"; {more} more rows are not drawn"
    shown = rows[:MOST_BARS]
    ends = [v + side for _, row in shown for v, e in row for side in (-e, e) if isfinite(v + side)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    high = high if high > low else low + 1

    def at(value: float) -> float:
        """Return the place of a value in percent; the right third is for numbers."""
        inside = high if isnan(value) else min(max(value, low), high)
        return 64 * (inside - low) / (high - low)

    thick, top = 13, 26 + 17 * len(names)
    group = 20 + thick * len(names)
    height = top + group * len(shown)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height}" role="img" '
        'class="bars" font-family="system-ui, sans-serif" font-size="12">',
        f"{_STYLE}<title>{escape(title)}</title>",
        f'<text x="0" y="14" font-weight="600">{escape(title)}</text>',
    ]
    for which, name in enumerate(names):
        y = 22 + 17 * which
        parts.append(f'<rect x="0" y="{y}" width="11" height="11" fill="{COLORS[which]}"/>')
        parts.append(f'<text x="16" y="{y + 10}">{escape(name)}</text>')
    for index, (label, row) in enumerate(shown):
        y = top + index * group
        told = label if len(label) <= _MOST_LETTERS else f"…{label[1 - _MOST_LETTERS :]}"
        parts.append(f'<text x="0" y="{y + 14}">{escape(told)}</text>')
        for which, (value, error) in enumerate(row):
            middle = y + 19 + which * thick + thick // 2
            begin, end = sorted((at(0.0), at(value)))
            parts.append(
                f'<rect x="{begin:.2f}%" y="{middle - 5}" width="{end - begin:.2f}%" height="10" '
                f'fill="{COLORS[which]}"/><line class="error" x1="{at(value - error):.2f}%" '
                f'x2="{at(value + error):.2f}%" y1="{middle}" y2="{middle}"/>'
                f'<text x="100%" y="{middle + 4}" text-anchor="end" font-size="11">'
                f"{value:+.4f} ± {error:.4f}</text>"
            )
        y += 19
        zero = f'x1="{at(0.0):.2f}%" x2="{at(0.0):.2f}%"'
        parts.append(f'<line class="zero" {zero} y1="{y}" y2="{y + thick * len(names)}"/>')
    return Plot("".join(parts) + "</svg>\n")


def bars(
    title: str,
    names: Sequence[str],
    colors: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float]]],
    logarithmic: bool = False,
) -> str:
    """Draw horizontal bars, a group for each row, as SVG; labels are text in the page's color."""
    thick, gap, width = 11, 9, 860
    left = max(190, min(420, 10 + 7 * max((len(label) for label, _ in rows), default=0)))
    group = thick * len(names) + gap
    top = 46
    height = top + group * len(rows) + 6
    values = [v for _, row in rows for v in row if v > 0] or [1.0]
    most, least = max(values), min(values)

    def long(value: float) -> float:
        if not logarithmic:
            return value / most
        low = log10(least) - 0.15
        return max(0.0, (log10(max(value, least)) - low) / (log10(most) - low))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">',
        _STYLE,
        f"<title>{escape(title)}</title>",
        f'<text x="0" y="14" font-weight="600">{escape(title)}</text>',
    ]
    at = 0
    for name, color in zip(names, colors, strict=False):  # The palette may be longer.
        parts.append(f'<rect x="{at}" y="23" width="11" height="11" fill="{color}"/>')
        parts.append(f'<text x="{at + 16}" y="33">{escape(name)}</text>')
        at += 34 + 7 * len(name)
    for index, (label, row) in enumerate(rows):
        y = top + index * group
        parts.append(
            f'<text x="{left - 8}" y="{y + group / 2:.0f}" text-anchor="end">{escape(label)}</text>'
        )
        for which, value in enumerate(row):
            wide = long(value) * (width - left - 70)
            parts.append(
                f'<rect x="{left}" y="{y + which * thick}" width="{wide:.1f}" height="{thick - 1}" '
                f'fill="{colors[which]}"/><text x="{left + wide + 5:.1f}" '
                f'y="{y + which * thick + 9}" font-size="10">{value:g}</text>'
            )
    return "".join(parts) + "</svg>\n"
