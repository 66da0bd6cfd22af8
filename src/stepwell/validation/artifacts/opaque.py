"""Interpret an artifact whose delegates no reader opens, to validate what surrounds them.

The results of such a delegate are taken from the model: the last values of their shapes that are
computed from the delegate's inputs alone. If what follows then computes the model's results, the
artifact is right outside its delegates, as long as these compute those values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.executorch import OpaqueDelegateOp
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.program import Program
from stepwell.ir.traversal import reached
from stepwell.ir.weights import WeightStore
from stepwell.validation.artifacts.fingerprints import Call, Fingerprint, Observer
from stepwell.validation.artifacts.inputs import Case
from stepwell.validation.artifacts.synchronizing import LOCAL
from stepwell.validation.recording import as_real, record


@dataclass
class Assuming(Interpreter):
    """An interpreter that takes the results of opaque delegates from the source's values."""

    source: Mapping[SSAValue, Any] = field(default_factory=dict[SSAValue, Any])
    """The values of the source in the same call, in order."""

    def step(self, op: Operation, environment: dict[SSAValue, Any]) -> None:
        """Evaluate an op; the results of an opaque delegate are values of the source."""
        if isinstance(op, OpaqueDelegateOp):
            inputs = [environment[value] for value in op.inputs]
            for result, value in zip(op.outputs, self._results(op, inputs), strict=True):
                environment[result] = value
        else:
            super().step(op, environment)

    def _results(self, op: OpaqueDelegateOp, inputs: list[Any]) -> list[Any]:
        given = [Fingerprint.of(value) for value in inputs if _is_filled(value)]
        ends = [
            value
            for value, held in self.source.items()
            if _is_filled(held) and any(_equal(Fingerprint.of(held), one) for one in given)
        ]
        prints = [Fingerprint.of(self.source[value]) for value in ends]
        if not all(one.is_constant or any(_equal(other, one) for other in prints) for one in given):
            raise StepwellError(
                f"an input of a delegate of {op.backend.data} is no value of the model: an "
                "operator before it is wrong"
            )
        later = (value for value in self.source if value not in ends)
        inner = [*ends, *(value for value in later if self._is_inside(value, ends))]
        found: list[Any] = []
        for result in op.outputs:
            wanted = list(result.type.get_shape())  # pyright: ignore
            at = next((v for v in reversed(inner) if list(self.source[v].shape) == wanted), None)
            if at is None:
                raise UnsupportedError(
                    f"a delegate of {op.backend.data} cannot be read, and no value of the model "
                    f"has the shape {wanted} of its result"
                )
            inner.remove(at)
            found.append(self.source[at])
        return found

    def _is_inside(self, value: SSAValue, ends: Sequence[SSAValue]) -> bool:
        """Whether a tensor is computed from some values and weights alone."""
        if not isinstance(self.source[value], Tensor) or not isinstance(value.owner, Operation):
            return False

        def operands(at: SSAValue) -> Sequence[SSAValue]:
            return at.owner.operands if isinstance(at.owner, Operation) and at not in ends else ()

        above = list(reached(value, operands))
        is_closed = all(at in ends or isinstance(at.owner, Operation) for at in above)
        return is_closed and any(at in ends for at in above)


def values_of(program: Program, func: FuncOp, case: Case) -> dict[SSAValue, Any]:
    """Return the values of a call, as real numbers, in order."""
    run = record(func, program.weights, replace(case.sample, state=case.state))
    return {value: as_real(value, held) for value, held in run.values.items()}


def assuming(
    func: FuncOp,
    weights: WeightStore,
    inputs: Sequence[Any],
    state: Mapping[str, Tensor],
    source: Mapping[SSAValue, Any],
) -> Call:
    """Interpret a method of an artifact with opaque delegates, and take fingerprints.

    Args:
        func, weights, inputs, state: as for `interpret`.
        source: the source's values in the same call.

    Raises:
        UnsupportedError: no value of the source can be a delegate's result.
    """
    observer = Observer.of(func, inputs)
    interpreter = Assuming(weights, dict(state), observer, None, source)
    return Call(func, interpreter.call(func, inputs), observer.prints)


def _is_filled(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() > 0


def _equal(one: Fingerprint, other: Fingerprint) -> bool:
    return one.count == other.count and one.distance(other) <= LOCAL * one.scale
