"""Compare two programs: find the ops that correspond."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

from stepwell.inspection.viewer.story import OpLine, PassSnapshot, Story, snapshot
from stepwell.ir.program import Program

_NAMES = re.compile(r"%[\w$.-]+")


def with_beside(story: Story, other: Program, name: str) -> Story:
    """Add another program as a last level to a story (the contents of the page), to compare them.
    Corresponding ops get the same number.

    Two ops correspond if their text is equal except for the names of values (op, attributes, types)
    and if they occur in the same order. Ops of the same module of the model are preferred.

    Args:
        name: the name of the other program on the page.
    """
    last = story.levels[-1]
    first_free = 1 + max((line.op for level in story.levels for line in level.lines), default=0)
    level = snapshot(other, name, 0, {})
    lines = alike(last.lines, level.lines, first_free)
    return replace(
        story, levels=(*story.levels, PassSnapshot(name, 0, lines)), beside=len(story.levels) - 1
    )


def alike(old: Sequence[OpLine], new: Sequence[OpLine], first_free: int) -> tuple[OpLine, ...]:
    """Give new lines the numbers of their corresponding old lines, others numbers from
    `first_free`.
    """
    olds = {at: line for at, line in enumerate(old) if line.op >= 0}
    news = {at: line for at, line in enumerate(new) if line.op >= 0}
    pairs = _pairs(olds, news, lambda line: (_spelled(line), line.path))
    for was, now in pairs:
        del olds[was], news[now]
    pairs += _pairs(olds, news, _spelled)
    numbers = {now: old[was].op for was, now in _in_order(pairs)}
    fresh = iter(range(first_free, first_free + len(new)))
    return tuple(
        line if line.op < 0 else replace(line, op=numbers[at] if at in numbers else next(fresh))
        for at, line in enumerate(new)
    )


def _spelled(line: OpLine) -> str:
    return _NAMES.sub("%", line.text)


def _pairs(
    old: dict[int, OpLine], new: dict[int, OpLine], key: Callable[[OpLine], Hashable]
) -> list[tuple[int, int]]:
    """Pair the n-th old line with the n-th new line of the same key (text without value names)."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    for at, line in reversed(new.items()):
        places[key(line)].append(at)
    return [(at, places[k].pop()) for at, line in old.items() if places.get(k := key(line))]


def _in_order(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence of pairs in which both sides increase (patience sorting)."""
    ends: list[int] = []
    last: list[int] = []
    ordered = sorted(pairs)
    before: list[int] = []
    for at, (_, now) in enumerate(ordered):
        pile = bisect_left(ends, now)
        before.append(last[pile - 1] if pile else -1)
        if pile == len(ends):
            ends.append(now)
            last.append(at)
        else:
            ends[pile], last[pile] = now, at
    chosen: list[tuple[int, int]] = []
    at = last[-1] if last else -1
    while at >= 0:
        chosen.append(ordered[at])
        at = before[at]
    return chosen[::-1]
