"""Ordering constraints of passes: the forms of a program that a pass requires and establishes.

A form is the postcondition of some rewrites: none of them applies any more. A program's form can
therefore be checked automatically, and the order of a pipeline without running it.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.ir.rewriting.rewrite import Step


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


@dataclass(frozen=True)
class Position:
    """The reason for a pass's position in the pipeline.

    Attributes:
        because: the reason, a sentence.
        needs: the forms that the pass's rewrites require.
        leaves: the forms that the pass establishes.
        ends: the forms that the pass invalidates.
    """

    because: str
    needs: tuple[Form, ...] = ()
    leaves: tuple[Form, ...] = ()
    ends: tuple[Form, ...] = ()
