"""Generate the variants of an example: every single edit, then combinations of edits.

Each edit changes one property of a draft independently of the rewrite. Many edits do not give a
valid program; building the draft detects this.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from xdsl.ir import Operation

from stepwell.validation.contracts.draft import Draft
from stepwell.validation.contracts.op_edits import (
    argument_edits,
    blind_edits,
    constant_edits,
    operator_edits,
    reader_edits,
)
from stepwell.validation.contracts.type_edits import (
    Change,
    dtype_edits,
    layout_edits,
    quantization_edits,
    shape_edits,
    symbol_edits,
)

MOST_EDITS = 4
"""The limit of combined edits."""


@dataclass(frozen=True)
class Edit:
    """A change of one property of a draft (a program as editable data).

    Attributes:
        kind: the varied property: "dtypes", "shapes", "arguments", "readers", "constants",
            "quantized", "layouts", "operators", "symbols" or "no data".
        label: the description of the edit.
        change: a function that applies the edit to a draft in place.
    """

    kind: str
    label: str
    change: Change


def edits_of(draft: Draft, anchors: Sequence[type[Operation]] = ()) -> list[Edit]:
    """Return every edit that changes one property of a draft, in a fixed order."""
    by_kind = {
        "dtypes": dtype_edits(draft),
        "shapes": shape_edits(draft),
        "arguments": argument_edits(draft),
        "readers": reader_edits(draft),
        "constants": constant_edits(draft),
        "quantized": quantization_edits(draft),
        "layouts": layout_edits(draft),
        "operators": operator_edits(draft, anchors),
        "symbols": symbol_edits(draft),
        "no data": blind_edits(draft),
    }
    return [Edit(kind, *edit) for kind, edits in by_kind.items() for edit in edits]


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
    by_kind = _by_kind(edits)
    for found in by_kind.values():
        draw.shuffle(found)
    for turn in zip_longest(*by_kind.values()):
        yield from (edit for edit in turn if edit is not None)


def _by_kind(edits: Sequence[Edit]) -> dict[str, list[Edit]]:
    by_kind: dict[str, list[Edit]] = defaultdict(list)
    for edit in edits:
        by_kind[edit.kind].append(edit)
    return by_kind


def _several(example: Draft, anchors: Sequence[type[Operation]], draw: random.Random) -> Variant:
    draft = example.copy()
    done: list[Edit] = []
    for _ in range(draw.randint(2, MOST_EDITS)):
        by_kind = _by_kind(edits_of(draft, anchors))
        if not by_kind:
            break
        edit = draw.choice(by_kind[draw.choice(sorted(by_kind))])
        edit.change(draft)
        done.append(edit)
    return Variant(draft, tuple(e.label for e in done), tuple(e.kind for e in done))
