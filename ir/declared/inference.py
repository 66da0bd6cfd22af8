"""Inference of result types: one rule per op class, looked up along the class's bases.

A rule returns the result types that the op must have, or raises a `StepwellError` that names what
is wrong with its operands. Ops without a rule keep their stated types, which their dialect's
verifier checks. If weights are available, a rule may read the elements of a constant (`stored`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TypeVar

from xdsl.ir import Attribute, Operation

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.weights import WeightStore

InferenceRule = Callable[[Operation], Sequence[Attribute]]
_INFERENCE: dict[type[Operation], InferenceRule] = {}
_F = TypeVar("_F", bound=Callable[..., Sequence[Attribute]])


def infers(*classes: type[Operation]) -> Callable[[_F], _F]:
    """Register the rule that infers the result types of these op classes."""

    def register(function: _F) -> _F:
        for cls in classes:
            if cls in _INFERENCE:
                raise StepwellError(f"{cls.name} has two type inference rules")
            _INFERENCE[cls] = function
        return function

    return register


def inference_rule(cls: type[Operation]) -> InferenceRule | None:
    """Return the type inference rule of an op class or of its nearest base class that has one."""
    for base in cls.__mro__:
        if base in _INFERENCE:
            return _INFERENCE[base]
    return None


def infer(op: Operation, weights: WeightStore | None = None) -> Sequence[Attribute] | None:
    """Return the result types that an op must have, or None if there is no rule."""
    rule = inference_rule(type(op))
    if rule is None:
        return None
    before = _WEIGHTS.set(weights)
    try:
        return rule(op)
    finally:
        _WEIGHTS.reset(before)


_WEIGHTS: ContextVar[WeightStore | None] = ContextVar("weights", default=None)


def stored(key: str) -> torch.Tensor | None:
    """Return a weight of the program whose types are being inferred; None if it is not
    available.
    """
    weights = _WEIGHTS.get()
    return weights.get(key) if weights is not None and key in weights else None
