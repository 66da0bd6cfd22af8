"""Figures, drawn from the tables that benchmarks wrote into the pages, and from programs."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from reference.text import ROOT
from stepwell.ir.platform.bar_charts import OTHERS, OURS, THEIRS, bars

if TYPE_CHECKING:
    from stepwell.inspection.viewer.memory import MemoryPlan


def pages() -> dict[str, str]:
    """Return SVG files below `figures`."""
    return {
        "figures/latency.svg": latency(),
        "figures/op_counts.svg": op_counts(),
        "figures/speed.svg": speed(),
        "figures/memory.svg": memory(False),
        "figures/memory_by_rows.svg": memory(True),
    }


def table_of(page: str, name: str) -> str:
    """Return the text of a page between the comments of a name."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return text.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0]


def compared() -> list[tuple[str, ...]]:
    """Return the models of `xnnpack.md` that no rewrite was written for: counts and ratios."""
    found = re.finditer(COMPARED, table_of("xnnpack.md", "untuned"), re.M)
    return [match.groups() for match in found]


def latency() -> str:
    """Milliseconds per call, from the first table of `peers.md`."""
    rows = [
        (c[0], [float(v) for v in c[1:5]])
        for line in table_of("peers.md", "peers 1").splitlines()
        if (c := [cell.strip() for cell in line.strip("| ").split("|")]) and _is_number(c[1:2])
    ]
    return bars(
        "Milliseconds a call, one thread, logarithmic (docs/peers.md)",
        ("stepwell", "ONNX Runtime", "OpenVINO", "PyTorch"),
        (OURS, THEIRS, *OTHERS),
        rows,
        logarithmic=True,
    )


COMPARED = r"^\| ([a-z][\w ,-]*) \| (\d+)/(\d+) → (\d+)/(\d+) \| [\d.]+ → [\d.]+ \| ([\d.]+)× "


def op_counts() -> str:
    """Delegates and ops outside them, stock and stepwell, of the models in `xnnpack.md`."""
    rows = [(r[0], [float(r[3]) + float(r[4]), float(r[1]) + float(r[2])]) for r in compared()]
    rows.sort(key=lambda row: -row[1][1])
    title = "Calls that the runtime makes, every model of docs/xnnpack.md that both flows lower"
    return bars(title, ("stepwell", "stock ExecuTorch"), (OURS, THEIRS), rows)


def speed() -> str:
    """Speed relative to the stock flow, of the same models."""
    rows = [(r[0], [float(r[5])]) for r in compared()]
    rows.sort(key=lambda row: -row[1][0])
    title = "Stock milliseconds divided by ours, of the same models, logarithmic"
    return bars(title, ("times faster",), (OURS,), rows, logarithmic=True)


def memory(by_rows: bool) -> str:
    """The arena of an int8 MobileNetV1-0.25 on a Cortex-M4, unmodified or row by row."""
    import torch

    import stepwell
    from stepwell.backends.executorch.reading.read import read_container
    from stepwell.inspection.viewer.memory import memory_plans

    for folder in ("examples", "examples/models"):
        sys.path.insert(0, str(ROOT / folder))
    from quantize_for_cortex_m import quantized

    from microcontrollers import mobilenet_v1_025

    model, (image,) = mobilenet_v1_025()
    model = model.eval().to(memory_format=torch.channels_last)
    program = quantized(model, (image.to(memory_format=torch.channels_last),))
    optimize = "memory" if by_rows else "speed"
    lowered = stepwell.lower(program, "cortex-m4", io="int8", optimize=optimize)
    (plan,) = memory_plans(read_container(lowered.to_pte()))
    style = "<style>svg{color:#1c2230}@media(prefers-color-scheme:dark){svg{color:#d9dee8}}</style>"
    return to_svg(plan).replace("<title>", style + "<title>", 1)


def to_svg(plan: MemoryPlan) -> str:
    """Return the plan as SVG: steps from left to right, bytes of the arena upwards.

    Colors are those of the surrounding text (`currentColor`), so that it suits both themes.
    """
    width, height = 860, 320
    left, bottom, top = 70, 26, 14
    across, up = (
        (width - left - 8) / max(plan.steps, 1),
        (height - bottom - top) / max(plan.size, 1),
    )
    step, most = plan.busiest
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'class="plan" font-family="system-ui, sans-serif" font-size="11" fill="currentColor">',
        f"<title>{escape(plan.method)}: {plan.size:,} bytes of arena, {plan.steps} steps; at most "
        f"{most:,} bytes are held at once, at step {step}</title>",
    ]
    for at in range(5):
        bytes_ = plan.size * at // 4
        y = height - bottom - bytes_ * up
        parts.append(
            f'<path d="M{left} {y:.1f}H{width - 8}" stroke="currentColor" opacity=".18"/>'
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{bytes_:,}</text>'
        )
    for number, held in enumerate(plan.held):
        x, y = left + held.first * across, height - bottom - (held.offset + held.bytes) * up
        wide = (held.last - held.first + 1) * across
        shown = f"{held.label}, {held.bytes:,} bytes at {held.offset:,}"
        shown += f", steps {held.first} to {held.last}"
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(wide - 0.5, 1):.1f}" '
            f'height="{max(held.bytes * up, 1):.1f}" fill="hsl({number * 47 % 360} 55% 55%)" '
            f'fill-opacity=".75" stroke="currentColor" stroke-opacity=".35" stroke-width=".6">'
            f"<title>{escape(shown)}</title></rect>"
        )
    parts.append(
        f'<text x="{left}" y="{height - 8}">step 0</text>'
        f'<text x="{width - 8}" y="{height - 8}" text-anchor="end">step {plan.steps - 1}</text>'
        f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">'
        f"{plan.size:,} bytes of arena</text></svg>"
    )
    return "".join(parts)


def _is_number(cells: Sequence[str]) -> bool:
    return bool(cells) and re.fullmatch(r"[\d.]+", cells[0]) is not None
