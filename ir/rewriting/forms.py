"""Ordering constraints of passes: the forms of a program that a pass requires and establishes.

A form is the postcondition of some rewrites: none of them applies any more. So a program's form can
be checked automatically, and the order of a pipeline can be checked without running it.
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
