"""Canonical names of statements: those that differ only in names are decided once.

Layers of a model repeat, and so do the applications in them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from stepwell.ir.weights import WeightStore
from stepwell.validation.certificates.decision import GIVEN, Undecided, decide, is_constant
from stepwell.validation.certificates.statements import read

_NAMED = re.compile(r'stepwell\.weight <"((?:[^"\\]|\\.)*)">|"(?:[^"\\]|\\.)*"|%v\d+')
"""A weight, another string, which is kept, or a value."""


@dataclass
class Decisions:
    """Decisions on statements with one weight store, each made once."""

    weights: WeightStore
    seed: int = 0
    made: dict[tuple[str, tuple[str, ...]], str | Undecided] = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]

    def decide(self, text: str, kinds: Sequence[str]) -> str:
        """Return the first reading in which a statement holds.

        Raises:
            Undecided: it holds in none.
        """
        given = any(kind.endswith(GIVEN) for kind in kinds)
        key = renamed(text, self.weights, given), tuple(kinds)
        if key not in self.made:
            try:
                self.made[key] = decide(read(text, self.weights)[0], kinds, self.seed)
            except Undecided as error:
                self.made[key] = error
        found = self.made[key]
        if isinstance(found, Undecided):
            raise found
        return found


def renamed(text: str, weights: WeightStore, given: bool = False) -> str:
    """Return a statement with values and weights renamed by the order of their occurrence.

    Args:
        text: the statement.
        weights: its weight store.
        given: whether small weights are distinguished by their elements.
    """
    values: dict[str, str] = {}
    leaves: dict[str, str] = {}

    def said(key: str) -> str:
        if key not in weights:
            return key
        recipe = weights.recipe_of(key)
        if recipe is not None:
            name, sources, parameters = recipe
            return f"{name}{sorted(parameters.items())}({', '.join(map(said, sources))})"
        if is_constant(weights, key, given):
            return f"constant {key}"
        return leaves.setdefault(key, f"any {len(leaves)}: {weights.type_of(key)}")

    def called(found: re.Match[str]) -> str:
        if found[1] is not None:
            return f"stepwell.weight <{said(found[1])}>"
        name = found[0]
        return name if name[0] == '"' else values.setdefault(name, f"%{len(values)}")

    return _NAMED.sub(called, text)
