"""The variants of an example: every single edit, then combinations of edits."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from xdsl.ir import Operation

from stepwell.validation.contracts.draft import Draft
from stepwell.validation.contracts.edits import Edit, edits_of

MOST_EDITS = 4
"""The limit of combined edits."""


@dataclass(frozen=True)
class Variant:
    """An edited example; `labels` describe its edits, `kinds` classify them."""

    draft: Draft
    labels: tuple[str, ...]
    kinds: tuple[str, ...]


def variants_of(
    example: Draft, anchors: Sequence[type[Operation]], seed: int = 0
) -> Iterator[Variant]:
    """Yield variants indefinitely: the example, each single edit once, then combinations.

    The kinds of edits alternate, so that the first few variants cover many kinds.
    """
    draw = random.Random(seed)
    yield Variant(example, (), ())
    for edit in _in_turns(edits_of(example, anchors), draw):
        draft = example.copy()
        edit.change(draft)
        yield Variant(draft, (edit.label,), (edit.kind,))
    while True:
        yield _several(example, anchors, draw)


def _in_turns(edits: Sequence[Edit], draw: random.Random) -> Iterator[Edit]:
    by_kind: dict[str, list[Edit]] = defaultdict(list)
    for edit in edits:
        by_kind[edit.kind].append(edit)
    for found in by_kind.values():
        draw.shuffle(found)
    for turn in zip_longest(*by_kind.values()):
        yield from (edit for edit in turn if edit is not None)


def _several(example: Draft, anchors: Sequence[type[Operation]], draw: random.Random) -> Variant:
    draft = example.copy()
    done: list[Edit] = []
    for _ in range(draw.randint(2, MOST_EDITS)):
        by_kind: dict[str, list[Edit]] = defaultdict(list)
        for edit in edits_of(draft, anchors):
            by_kind[edit.kind].append(edit)
        if not by_kind:
            break
        edit = draw.choice(by_kind[draw.choice(sorted(by_kind))])
        edit.change(draft)
        done.append(edit)
    return Variant(draft, tuple(e.label for e in done), tuple(e.kind for e in done))
