"""Why a step stands where it stands: what form of a program it needs, and what form it leaves.

A form is what some rewrites leave: none of them applies any more. So it is looked at by machine,
and the order of a pipeline is checked without running it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Step, apply_step, step_name


@dataclass(frozen=True)
class Form:
    """What is true of a program from one step on.

    Attributes:
        name: how steps name it.
        says: the sentence.
        step: what finds nothing to do in a program of this form.
    """

    name: str
    says: str
    step: Step

    def breach(self, program: Program) -> str | None:
        """What a program has that the form has not; None if it is of this form."""
        history = History()
        if not apply_step(self.step, program.clone(), history):
            return None
        first = history.events[0] if history.events else None
        where = f": {first.rewrite} applies to {first.where}" if first else ""
        return f"the program is not {self.name} ({self.says}){where}"


@dataclass(frozen=True)
class Place:
    """Why a step stands where it stands.

    Attributes:
        because: the reason, a sentence.
        needs: the forms without which its rewrites miss what they are for.
        leaves: the forms that hold behind it.
        ends: the forms that hold no longer.
    """

    because: str
    needs: tuple[Form, ...] = ()
    leaves: tuple[Form, ...] = ()
    ends: tuple[Form, ...] = ()


def misplaced(steps: Iterable[Step], places: Mapping[str, Place]) -> Iterator[str]:
    """A sentence for each step without a reason, and for each that needs what nothing left."""
    forms: set[Form] = set()
    for step in steps:
        name = step_name(step)
        place = places.get(name)
        if place is None:
            yield f"{name} has no reason to stand where it stands"
            continue
        yield from (
            f"{name} needs a program that is {form.name} ({form.says}); no step ahead leaves it so"
            for form in place.needs
            if form not in forms
        )
        forms.difference_update(place.ends)
        forms.update(place.leaves)
