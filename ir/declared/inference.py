"""Result types from operands: one rule per op class, looked up along the class's bases.

A rule returns the result types the op must have, or raises `StepwellError` naming what is wrong
with its operands. Ops without a rule keep the types they state (their dialect's verifier decides).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from xdsl.ir import Attribute, Operation

from stepwell.ir.diagnostics import StepwellError

InferenceRule = Callable[[Operation], Sequence[Attribute]]
_RULES: dict[type[Operation], InferenceRule] = {}
_F = TypeVar("_F", bound=Callable[..., Sequence[Attribute]])


def infers(*classes: type[Operation]) -> Callable[[_F], _F]:
    """Register the rule that infers the result types of these op classes."""

    def register(function: _F) -> _F:
        for cls in classes:
            if cls in _RULES:
                raise StepwellError(f"{cls.name} has two type inference rules")
            _RULES[cls] = function
        return function

    return register


def inference_rule(cls: type[Operation]) -> InferenceRule | None:
    """The rule of a class or of the nearest base that has one."""
    for base in cls.__mro__:
        if base in _RULES:
            return _RULES[base]
    return None


def infer(op: Operation) -> Sequence[Attribute] | None:
    """The result types an op must have, or None where there is no rule."""
    rule = inference_rule(type(op))
    return None if rule is None else rule(op)
