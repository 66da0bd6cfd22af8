"""Format the differences of a replay as a table."""

import io
from typing import Any

from rich.console import Console
from rich.table import Table

from stepwell.ir.renderers import gives
from stepwell.model_zoo.regression.replay import Pair, Replay

NUMBERS = ("bytes", "delegates", "outside", "cost", "seconds", "peak")
"""Figures that are compared as numbers."""
LOUD = {"seconds": 1.25, "peak": 1.25}
"""Measured figures and the ratio from which they are listed; other figures must be equal."""


FORMS = {"seconds": "{:.2f}", "peak": "{:,.0f}"}


@gives("text", Replay)
def table(replay: Replay) -> str:
    """Return changed programs, one per line, and sums over all programs."""
    console = Console(file=io.StringIO(), width=160, color_system=None)
    shown = [pair for pair in replay.pairs if not pair.same or loud(pair)]
    head = f"{replay.base[:10]}..{replay.head[:10]}"
    console.print(
        f"{head}: {len(replay.pairs)} programs, {len(replay.changed)} differ in IR, bytes or fate"
    )
    if shown:
        console.print(differences(shown))
    console.print(sums(replay))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def differences(pairs: list[Pair]) -> Table:
    """Return one line for each program that changed."""
    found = Table("model", "target", "IR", *NUMBERS, "ops")
    for pair in sorted(pairs, key=lambda pair: (pair.same, pair.target, pair.name)):
        fate = [str(side["fails"])[:60] if "fails" in side else "" for side in sides(pair)]
        ops = ", ".join(f"{name.split('.', 1)[-1]} {count:+d}" for name, count in pair.ops.items())
        cells = [moved(pair, name) for name in NUMBERS]
        ir = "same" if pair.before.get("ir") == pair.after.get("ir") else "differs"
        text = f"{fate[0] or 'lowered'} → {fate[1] or 'lowered'}" if any(fate) else ops
        found.add_row(pair.name, pair.target, ir, *cells, text)
    return found


def sides(pair: Pair) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of a program for both commits."""
    return pair.before, pair.after


def moved(pair: Pair, name: str) -> str:
    """Return `12 → 10`, or the number if both are equal or close."""
    if any(name not in side for side in sides(pair)):
        return "–"
    form = FORMS.get(name, "{:,}")
    before, after = (form.format(side[name]) for side in sides(pair))
    return after if before == after or not changed(pair, name) else f"{before} → {after}"


def changed(pair: Pair, name: str) -> bool:
    """Whether a figure changed; a measured figure by more than noise."""
    before, after = (float(side[name]) for side in sides(pair))
    if name not in LOUD:
        return before != after
    low, high = sorted((before, after))
    return high > LOUD[name] * low and high - low > {"seconds": 0.2, "peak": 4 << 20}[name]


def loud(pair: Pair) -> bool:
    """Whether time or memory changed although the program did not."""
    return all("seconds" in side for side in sides(pair)) and any(
        changed(pair, name) for name in LOUD
    )


def sums(replay: Replay) -> Table:
    """Return each figure summed over the programs that both commits lower."""
    both = [p for p in replay.pairs if "fails" not in p.before and "fails" not in p.after]
    found = Table("of all", "base", "head", "ratio")
    for name in NUMBERS:
        before, after = (sum(float(sides(pair)[at][name]) for pair in both) for at in (0, 1))
        ratio = f"{after / before:.3f}" if before else "–"
        found.add_row(name, f"{before:,.1f}", f"{after:,.1f}", ratio)
    lost = sum("fails" in pair.after and "fails" not in pair.before for pair in replay.pairs)
    won = sum("fails" in pair.before and "fails" not in pair.after for pair in replay.pairs)
    found.add_row("fail now / no more", "", f"{lost} / {won}", "")
    return found
