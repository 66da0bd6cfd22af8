"""Locations of the ops of an edited text: unchanged ops keep their location in the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from xdsl.dialects.builtin import FileLineColLoc, LocationAttr, ModuleOp
from xdsl.ir import Operation

from stepwell.ir.syntax.text import parse_module


def with_locations(
    module: ModuleOp, text: str, before: str, locations: Sequence[LocationAttr]
) -> None:
    """Set the locations of ops to those of the ops before the edit.

    An op whose line is unchanged is the same op. So is an op in a changed line, if it replaces as
    many lines as there were before. The location of a new op is its position in the text.

    Args:
        module: parsed from `text`, located in it.
        text: the edited text.
        before: the text before the edit.
        locations: the locations of the ops of `before`, in order.
    """
    old, new = before.splitlines(), text.splitlines()
    of_line = {
        line: location
        for (line, _), location in zip(
            _placed(parse_module(before, locate=True)), locations, strict=True
        )
        if line is not None
    }
    kept: dict[int, int] = {}
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal" or (kind == "replace" and b - a == d - c):
            kept.update(zip(range(c + 1, d + 1), range(a + 1, b + 1), strict=True))
    for line, op in list(_placed(module)):
        if line is not None and (place := of_line.get(kept.get(line, 0))) is not None:
            op.location = place


def _placed(module: ModuleOp) -> Iterator[tuple[int | None, Operation]]:
    for op in module.walk():
        place = op.location
        yield (place.line.data if isinstance(place, FileLineColLoc) else None), op
