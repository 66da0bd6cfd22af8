"""The bound of one application: what roundings may do on both sides of it, element by element.

Both sides compute the same function of the values that they share, of real numbers. Each is off
from it by its own roundings, as `roundings` follows them through the ops that went and those that
came; their sum bounds how far the new value may lie from the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from xdsl.ir import Operation, SSAValue

from stepwell.ir.core import WeightOp
from stepwell.ir.declared.interpretation import rule_for
from stepwell.ir.weights import WeightStore
from stepwell.validation.error_rules import NoErrorRule, unit
from stepwell.validation.kernel_steps import STEPS
from stepwell.validation.recording import Recording, dense
from stepwell.validation.roundings import Roundings

FAR = 8
"""How many ops above a replaced value that is left the values are sought that both sides share."""


def _tanh(x: Tensor) -> Tensor:
    power = (x * -2).exp()
    return (1 - power) / (1 + power)


def _power(base: Tensor, exponent: Tensor) -> Tensor:
    return (exponent * base.log()).exp()


C_LIBRARY: dict[str, Callable[..., Tensor]] = {
    "tosa.exp": torch.exp,
    "tosa.log": torch.log,
    "tosa.erf": torch.erf,
    "tosa.sin": torch.sin,
    "tosa.cos": torch.cos,
    "tosa.sigmoid": STEPS["sigmoid"],
    "tosa.tanh": _tanh,
    "tosa.pow": _power,
}
"""Ops whose meaning calls the C library, where torch sees nothing."""


@dataclass
class Sides:
    """What stood before and behind one application.

    Attributes:
        fresh: the ops that it wrote.
        gone: the ops that it took away, with what they read.
    """

    fresh: set[Operation]
    gone: Mapping[Operation, Sequence[SSAValue]]
    recording: Recording
    weights: WeightStore
    noted: Roundings = field(default_factory=Roundings)
    _made: dict[SSAValue, Any] = field(default_factory=dict[SSAValue, Any])
    _reaches: dict[SSAValue, bool] = field(default_factory=dict[SSAValue, bool])

    def tolerance(self, old: SSAValue, new: SSAValue) -> Tensor | None:
        """How far each element of `new` may lie from `old`; None for not at all.

        Raises:
            NoErrorRule: an op's roundings are not known, or it cannot be run again.
            NotRecorded: a value cannot be known here.
        """
        shared = self._shared(new)
        after = self._error(new, shared)
        for value in shared:
            self._reaches[value] = True
        before = self._error(old, shared)
        if before is None or after is None:
            return after if before is None else before
        return before + after

    def _operands(self, op: Operation) -> Sequence[SSAValue]:
        return self.gone.get(op, op.operands)

    def _shared(self, new: SSAValue) -> set[SSAValue]:
        """The values that ops which were written read, and that stood there before."""
        found, waiting, seen = set[SSAValue](), [new], set[SSAValue]()
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            owner = value.owner
            if isinstance(owner, Operation) and owner in self.fresh:
                waiting += owner.operands
            else:
                found.add(value)
        return found

    def _leads_to(self, value: SSAValue, depth: int) -> bool:
        """Whether a value is computed of shared ones, a few ops on."""
        if value not in self._reaches:
            owner = value.owner
            near = depth > 0 and isinstance(owner, Operation) and not isinstance(owner, WeightOp)
            self._reaches[value] = False
            if near and isinstance(owner, Operation):
                read = self._operands(owner)
                self._reaches[value] = any(self._leads_to(v, depth - 1) for v in read)
        return self._reaches[value]

    def _error(self, value: SSAValue, shared: set[SSAValue]) -> Tensor | None:
        made = self._evaluated(value, shared, is_root=True)
        if isinstance(made, Tensor) and made.is_complex():
            raise NoErrorRule("complex numbers")
        return self.noted.of(made)

    def _evaluated(self, value: SSAValue, shared: set[SSAValue], is_root: bool = False) -> Any:
        """The value again, with what it may be off by noted."""
        if value in self._made:
            return self._made[value]
        owner = value.owner
        is_weight = isinstance(owner, WeightOp)
        goes_on = isinstance(owner, Operation) and (
            owner in self.fresh or owner in self.gone or is_root or self._leads_to(value, FAR)
        )
        if is_weight:
            self._made[value] = self._weight(owner)
        elif value in shared or not goes_on:
            self._made[value] = _apart(self.recording.value(value))
        else:
            assert isinstance(owner, Operation)
            operands = [self._evaluated(v, shared) for v in self._operands(owner)]
            results = self._run(owner, operands)
            self._made.update(zip(owner.results, results, strict=True))
        return self._made[value]

    def _run(self, op: Operation, operands: list[Any]) -> list[Any]:
        rule = rule_for(type(op))
        if rule is None or (op in self.gone and op.regions):
            raise NoErrorRule(op.name)
        is_gone = op in self.gone
        if is_gone:
            op.operands = self.gone[op]  # Its rule may ask for their types.
        try:
            with torch.no_grad(), self.noted:
                results = rule(op, operands, self.recording.interpreter)
                results = [dense(v, r) for v, r in zip(results, op.results, strict=True)]
                if (steps := C_LIBRARY.get(op.name)) is not None:
                    read = [v for v in operands if isinstance(v, Tensor)][: len(op.operands)]
                    self.noted.put(results[0], self.noted.of(steps(*read)))
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
            raise NoErrorRule(f"{op.name}: {error}") from error
        finally:
            if is_gone:
                op.operands = ()
        return results

    def _weight(self, op: WeightOp) -> Any:
        """A weight, and what the recipe that made it rounds; a new constant is rounded once."""
        key = op.key.data
        value = _apart(self.weights.get(key))
        if not value.is_floating_point() or value.dtype.itemsize == 1:
            return value
        recipe = self._recipe(key)
        if recipe is not None:
            self.noted.put(value, self.noted.of(recipe))
        elif op in self.fresh and not _is_short(value):
            self.noted.put(value, unit(value.dtype) * value.double().abs())
        return value

    def _recipe(self, key: str) -> Tensor | None:
        recipe = self.weights.recipe_of(key)
        if recipe is None:
            return None
        given = [
            _apart(self.weights.get(source)) if (made := self._recipe(source)) is None else made
            for source in recipe[1]
        ]
        with torch.no_grad(), self.noted:
            return self.weights.evaluated_on(key, given)


def _apart(value: Any) -> Any:
    """A tensor of its own, so that what is noted of it holds for one place."""
    return value.view_as(value) if isinstance(value, Tensor) else value


def _is_short(value: Tensor) -> bool:
    """Whether its numbers are whole, or fractions of few digits, and no rounded constants."""
    return bool((value.bfloat16().to(value.dtype) == value).all())
