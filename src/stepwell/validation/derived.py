"""Derive the error bound of one rewrite application from the roundings of the old and the new ops.

Both sides compute the same real function of their shared values. Each differs from it by its own
roundings, which `roundings` propagates through the removed and through the new ops. The sum of both
errors bounds the difference of the new value from the old one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.kernel_steps import STEPS
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.interpretation import Rule, rule_for
from stepwell.ir.traversal import reached
from stepwell.ir.weights import WeightStore
from stepwell.validation.error_rules import NoErrorRule, unit
from stepwell.validation.recording import Recording, dense
from stepwell.validation.roundings import Roundings

FAR = 8
"""How many ops before a remaining replaced value the shared values are searched."""


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
"""Ops whose interpretation calls the C library, which PyTorch's dispatcher does not observe."""


@dataclass
class Sides:
    """The ops before and after one application.

    Attributes:
        fresh: the ops that the application created.
        gone: the ops that the application erased, with their operands.
    """

    fresh: set[Operation]
    gone: Mapping[Operation, Sequence[SSAValue]]
    recording: Recording
    weights: WeightStore
    noted: Roundings = field(default_factory=Roundings)
    _made: dict[SSAValue, Any] = field(default_factory=dict[SSAValue, Any])
    _reaches: dict[SSAValue, bool] = field(default_factory=dict[SSAValue, bool])

    def tolerance(self, old: SSAValue, new: SSAValue) -> Tensor | None:
        """Return how far each element of `new` may differ from `old`; None if it must be equal.

        Raises:
            NoErrorRule: an op's rounding errors are unknown, or it cannot be run again.
            NotRecorded: a value is not recorded.
        """
        shared = self.shared(new)
        after = self._error(new, shared)
        for value in shared:
            self._reaches[value] = True
        before = self._error(old, shared)
        if before is None or after is None:
            return after if before is None else before
        return before + after

    def _operands(self, op: Operation) -> Sequence[SSAValue]:
        return self.gone.get(op, op.operands)

    def shared(self, new: SSAValue) -> set[SSAValue]:
        """Return the operands of the new ops that existed before the application."""

        def operands(value: SSAValue) -> Sequence[SSAValue]:
            owner = value.owner
            return owner.operands if isinstance(owner, Operation) and owner in self.fresh else ()

        return {value for value in reached(new, operands) if value.owner not in self.fresh}

    def above(self, value: SSAValue, depth: int) -> set[SSAValue]:
        """Return a value with the few ops before it that compute it."""
        found, waiting = {value}, [value]
        for _ in range(depth):
            owners = {v.owner for v in waiting if isinstance(v.owner, Operation)}
            waiting = [v for owner in owners for v in self._operands(owner) if v not in found]
            found.update(waiting)
        return found

    def _leads_to(self, value: SSAValue, depth: int) -> bool:
        """Whether at most a few ops compute a value from values that both sides of an application
        use.
        """
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
        """Evaluate a value again and record its rounding error."""
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
            op.operands = self.gone[op]  # The error rule may read their types.
        try:
            with torch.no_grad(), self.noted:
                results = self._interpreted(rule, op, operands)
                if (steps := C_LIBRARY.get(op.name)) is not None:
                    read = [v for v in operands if isinstance(v, Tensor)][: len(op.operands)]
                    self.noted.put(results[0], self.noted.of(steps(*read)))
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
            raise NoErrorRule(f"{op.name}: {error}") from error
        finally:
            if is_gone:
                op.operands = ()
        return results

    def _interpreted(self, rule: Rule, op: Operation, operands: list[Any]) -> list[Any]:
        results = rule(op, operands, self.recording.interpreter)
        return [dense(v, r) for v, r in zip(results, op.results, strict=True)]

    def _weight(self, op: WeightOp) -> Any:
        """Return a weight with the rounding error of its recipe; a new constant is rounded once."""
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
    """Return a view of a tensor, so that its rounding error is recorded separately from the
    original.
    """
    return value.view_as(value) if isinstance(value, Tensor) else value


def _is_short(value: Tensor) -> bool:
    """Whether all numbers are integers or short binary fractions, not rounded constants."""
    return bool((value.bfloat16().to(value.dtype) == value).all())
