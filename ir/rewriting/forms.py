"""Ordering constraints of passes: the forms of a program that a pass requires and establishes.

A form is the postcondition of some rewrites: none of them applies any more. So a program's form can
be checked automatically, and the order of a pipeline can be checked without running it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Step, apply_step, step_name


@dataclass(frozen=True)
class Form:
    """A property of a program that a pass establishes.

    Attributes:
        name: the name by which passes refer to it.
        says: the property, as a sentence.
        step: a pass that changes nothing in a program of this form.
    """

    name: str
    says: str
    step: Step

    def breach(self, program: Program) -> str | None:
        """Return why a program is not of this form; None if it is."""
        history = History()
        if not apply_step(self.step, program.clone(), history):
            return None
        first = history.events[0] if history.events else None
        where = f": {first.rewrite} applies to {first.where}" if first else ""
        return f"the program is not {self.name} ({self.says}){where}"


@dataclass(frozen=True)
class Position:
    """Why a pass is at its position in the pipeline.

    Attributes:
        because: the reason, a sentence.
        needs: the forms that its rewrites require.
        leaves: the forms that it establishes.
        ends: the forms that it invalidates.
    """

    because: str
    needs: tuple[Form, ...] = ()
    leaves: tuple[Form, ...] = ()
    ends: tuple[Form, ...] = ()


def misplaced(steps: Iterable[Step], places: Mapping[str, Position]) -> Iterator[str]:
    """Yield a sentence for each pass without a reason, and for each whose required form is not
    established.
    """
    forms: set[Form] = set()
    for step in steps:
        name = step_name(step)
        place = places.get(name)
        if place is None:
            yield f"{name} states no reason for its position"
            continue
        yield from (
            f"{name} needs a {form.name} program ({form.says}); no earlier pass leaves it so"
            for form in place.needs
            if form not in forms
        )
        forms.difference_update(place.ends)
        forms.update(place.leaves)
