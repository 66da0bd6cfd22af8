"""The memory plan of a `.pte` as text: which tensor uses which bytes, when, and the peak."""

from __future__ import annotations

from string import ascii_letters, digits

from stepwell.inspection.viewer.memory import Held, MemoryPlan

COLUMNS, ROWS = 72, 24
"""The size of the picture; more steps or bytes share a character."""
_NAMES = ascii_letters + digits
_FREE, _MANY, _LISTED = "·", "#", 20


def to_text(plan: MemoryPlan, columns: int = COLUMNS, rows: int = ROWS) -> str:
    """Return steps from left to right, bytes of the arena upwards, with a letter for each tensor.

    A character that several tensors share shows the one that covers most of it. The largest tensors
    get letters; the others are `#`. Below the picture are listed the tensors of the step that
    bounds the arena, then the largest of the others.

    Args:
        plan: the plan of a method.
        columns, rows: the maximum size of the picture.
    """
    columns, rows = min(columns, max(plan.steps, 1)), min(rows, max(len(plan.held) * 2, 4))
    largest = sorted(plan.held, key=lambda held: (-held.bytes, held.first, held.offset))
    names = dict(zip(largest, _NAMES, strict=False))
    lines = [f"{plan.method}: {plan.size:,} bytes of arena, {plan.steps} steps", ""]
    wide = len(f"{plan.size:,}")
    for row in reversed(range(rows)):
        low, high = plan.size * row // rows, plan.size * (row + 1) // rows
        shown = "".join(
            _cell(plan, names, range(low, max(high, low + 1)), _steps(plan, column, columns))
            for column in range(columns)
        )
        lines.append(f"{low:>{wide},} {shown}")
    at, most = plan.busiest
    lines += [f"{'':{wide}} {_ruler(plan, at, columns)}", "", _bound(plan, at, most)]
    together = [held for held in largest if held.first <= at <= held.last]
    lines += [_row(names.get(held, _MANY), held) for held in together]
    others = [held for held in largest if held not in together]
    lines += (
        ["elsewhere", *(_row(names.get(held, _MANY), held) for held in others)] if others else []
    )
    return "\n".join(lines)


def _steps(plan: MemoryPlan, column: int, columns: int) -> range:
    start = plan.steps * column // columns
    return range(start, max(plan.steps * (column + 1) // columns, start + 1))


def _cell(plan: MemoryPlan, names: dict[Held, str], place: range, steps: range) -> str:
    shares = [
        (
            _common(place, held.offset, held.offset + held.bytes)
            * _common(steps, held.first, held.last + 1),
            held,
        )
        for held in plan.held
    ]
    share, held = max(shares, key=lambda pair: pair[0], default=(0, None))
    return names.get(held, _MANY) if share and held is not None else _FREE


def _common(part: range, start: int, stop: int) -> int:
    return max(0, min(part.stop, stop) - max(part.start, start))


def _ruler(plan: MemoryPlan, at: int, columns: int) -> str:
    """Return a ruler that marks the step of the peak."""
    column = next(c for c in range(columns) if at in _steps(plan, c, columns))
    text = f"^ step {at}"
    return (
        " " * column + text if column + len(text) <= COLUMNS else f"{f'step {at} ^':>{column + 1}}"
    )


def _bound(plan: MemoryPlan, at: int, most: int) -> str:
    """Return what bounds the arena: the tensors of one step, or fragmentation."""
    text = f"step {at} holds {most:,} bytes at once"
    if most >= plan.size:
        return f"{text}, all of the arena: no placement is smaller, other calls would be"
    return f"{text}; the other {plan.size - most:,} are gaps between tensors and alignment"


def _row(name: str, held: Held) -> str:
    place = f"{held.bytes:>10,} bytes at {held.offset:>9,}, steps {held.first} to {held.last}"
    return f"  {name} {place}  {held.label}"
