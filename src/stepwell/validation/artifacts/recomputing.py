"""Narrow a wrong region of a program down to one operator, by computing the region again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from xdsl.ir import Operation, SSAValue

from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import StepwellError
from stepwell.validation.artifacts.fingerprints import Fingerprint, is_exact
from stepwell.validation.artifacts.matching import Correspondence, Parting, fused
from stepwell.validation.artifacts.synchronizing import orders

LARGEST = 1 << 18
"""The most numbers of an operand whose orders are tried."""


@dataclass
class Region:
    """Operators of the source that compute another value than the artifact does.

    Attributes:
        place: the region.
        matches: the values of both programs that are equal.
        values: those of the source, in one call.
        others: those of the artifact.
        interpreter: computes the source's operators.
    """

    place: Parting
    matches: Correspondence
    values: Mapping[SSAValue, Any]
    others: Mapping[SSAValue, Any]
    interpreter: Interpreter

    def missing(self) -> Parting | None:
        """Return an operator without which the region computes the artifact's value."""
        for op in self._ops():
            if op.results[0] is self.place.value or is_of(op, "factory"):
                continue
            for operand in op.operands:
                own, result = self.values.get(operand), self.values.get(op.results[0])
                if not isinstance(own, Tensor) or not isinstance(result, Tensor):
                    continue
                if own.shape == result.shape and self._gives({op.results[0]: own}):
                    return self._at(op, None)
        return None

    def misplaced(self) -> Parting | None:
        """Return a movement of data before the region: with the artifact's order of its result, the
        region computes the artifact's value.
        """
        for op in self._ops():
            for operand in op.operands:
                own, twins = self.values.get(operand), self.matches.found.get(operand, ())
                if (
                    not isinstance(own, Tensor)
                    or own.numel() > LARGEST
                    or _movement(operand) is None
                ):
                    continue
                for twin in twins:
                    for other in _arrangements(self.others.get(twin), own):
                        if self._gives({operand: other}):
                            return self._at(self._first_movement(operand), twin)
        return None

    def _ops(self) -> Sequence[Operation]:
        ops = [op for op in self.place.ops if not isinstance(op, WeightOp)]
        is_plain = all(len(op.results) == 1 and not op.regions for op in ops)
        return ops if is_plain else ()

    def _gives(self, changed: Mapping[SSAValue, Tensor]) -> bool:
        """Whether the region computes the artifact's value, after some values were changed."""
        environment = {**self.values, **changed}
        results = fused(self.matches, self.place.value)
        later = [value.owner for value in results[1:] if isinstance(value.owner, Operation)]
        try:
            for op in (*self.place.ops, *later):
                if not isinstance(op, WeightOp) and op.results[0] not in changed:
                    self.interpreter.step(op, environment)
        except (StepwellError, RuntimeError):
            return False
        for result in results:
            found, allowed = environment[result], self.matches.tolerances[result]
            held = Fingerprint.of(found) if isinstance(found, Tensor) else None
            near = () if held is None else self._unmatched.get(held.count, ())
            if held is not None and any(held.distance(one) <= allowed for one in near):
                return True
        return False

    @cached_property
    def _unmatched(self) -> Mapping[int, list[Fingerprint]]:
        """The fingerprints of the artifact's values that equal none of the source, by count."""
        found: dict[int, list[Fingerprint]] = defaultdict(list)
        for value, held in self.matches.artifact.prints.items():
            if value not in self.matches.images:
                found[held.count].append(held)
        return found

    def _at(self, op: Operation, twin: SSAValue | None) -> Parting:
        by = (twin.owner,) if twin is not None and isinstance(twin.owner, Operation) else ()
        return Parting((op,), op.results[0], by or self.place.by, None, torch.inf, 0.0)

    def _first_movement(self, value: SSAValue) -> Operation:
        """Return the last movement before a value that changes the order of numbers."""
        op = _movement(value)
        assert op is not None
        before = self.values.get(op.operands[0])
        own = self.values[value]
        same = isinstance(before, Tensor) and torch.equal(before.flatten(), own.flatten())
        return self._first_movement(op.operands[0]) if same and _movement(op.operands[0]) else op


def _movement(value: SSAValue) -> Operation | None:
    owner = value.owner
    return owner if isinstance(owner, Operation) and is_exact(owner) else None


def _arrangements(one: Any, like: Tensor) -> Iterator[Tensor]:
    """Yield a tensor's numbers in the shape of another one, in every order of axes but its own."""
    if not isinstance(one, Tensor) or one.numel() != like.numel():
        return
    for order in orders(one):
        moved = one.permute(order).reshape(like.shape).to(like.dtype)
        if not torch.equal(moved, like):
            yield moved
