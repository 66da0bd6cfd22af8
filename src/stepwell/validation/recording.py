"""Interpret a method and record the runtime value of every SSA value.

The last bits of a float kernel may depend on the memory layout, so every value is made dense before
it is used: the result of an op then depends only on its numbers, and an exact rewrite upstream
changes nothing downstream. Dense includes the strides of axes of size 1 and the alignment of an
allocation's start, because kernels are selected by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from stepwell.dialects.quant.ops import dequantize
from stepwell.dialects.quant.types import quantization
from stepwell.dialects.xnnpack.meaning.arithmetic import DynamicTensor
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.declared.interpretation import Interpreter, Outcome, rule_for
from stepwell.ir.diagnostics import (
    StepwellError,
    UnsupportedError,
    describe_op,
    first_line,
    op_name,
)
from stepwell.ir.types import TensorType
from stepwell.ir.weights import WeightStore
from stepwell.validation.samples import Sample


class NotRecorded(Exception):
    """Raised for a value that a recorded run did not compute, and that cannot be computed now."""


@dataclass
class RecordingInterpreter(Interpreter):
    """An interpreter that makes values dense and keeps all of them in `values`."""

    values: dict[SSAValue, Any] = field(default_factory=dict[SSAValue, Any])

    def step(self, op: Operation, environment: dict[SSAValue, Any]) -> None:
        """Evaluate an op, make its results dense, and record them."""
        super().step(op, environment)
        for result in op.results:
            environment[result] = self.values[result] = dense(environment[result], result)

    def run_region(
        self,
        region: Region,
        arguments: Sequence[Any],
        outer: dict[SSAValue, Any] | None = None,
    ) -> tuple[Any, ...]:
        """Run a region, and record its arguments too."""
        self.values.update(zip(region.block.args, arguments, strict=True))
        return super().run_region(region, arguments, outer)


def as_real(value: SSAValue, number: Any) -> Any:
    """Return a runtime value as real numbers; the integers of a quantized type are dequantized."""
    if isinstance(number, DynamicTensor):
        return number.real
    stored = quantization(value.type) if isinstance(value.type, TensorType) else None
    is_stored = isinstance(number, torch.Tensor) and not number.is_floating_point()
    return dequantize(number, stored) if stored is not None and is_stored else number


ALIGNED = 64
"""The alignment of PyTorch's allocator in bytes. The rounding of a matrix library may depend on it.
"""


def dense(value: Any, of: SSAValue) -> Any:
    """Return a tensor in row-major memory order, unless its users depend on its strides."""
    if not isinstance(value, torch.Tensor):
        return value
    if any("as_strided" in op_name(use.operation) for use in of.uses):
        return value
    if not value.is_contiguous() or (value.numel() and value.data_ptr() % ALIGNED):
        value = value.clone(memory_format=torch.contiguous_format)
    strides = torch.empty(value.shape, device="meta").stride()
    return value if value.stride() == strides else value.as_strided(value.shape, strides)


@dataclass
class Recording:
    """The values of one run of a method on one sample (a set of inputs).

    Attributes:
        sample: the inputs and state of the run.
        outcome: the result of the method.
        values: every SSA value's run-time value; grows as rewrites add ops.
    """

    sample: Sample
    outcome: Outcome
    interpreter: RecordingInterpreter
    followed_to: dict[str, Any] | None = None
    """The observations of the current program, if passes were followed since the run."""
    stale: set[Operation] = field(default_factory=set[Operation])
    """Ops whose values changed (within a bound) upstream; they are evaluated again on demand."""
    _has_history: dict[SSAValue, bool] = field(default_factory=dict[SSAValue, bool])

    @property
    def values(self) -> dict[SSAValue, Any]:
        """The runtime value of every SSA value."""
        return self.interpreter.values

    def observed(self) -> dict[str, Any]:
        """Return everything that a caller of the method can observe, by name."""
        if self.followed_to is not None:
            return dict(self.followed_to)
        seen: dict[str, Any] = {f"output {i}": v for i, v in enumerate(self.outcome.outputs)}
        seen |= {f"state {key}": value for key, value in self.outcome.state.items()}
        seen |= {f"input {i} as left": v for i, v in self.outcome.mutated_inputs.items()}
        return seen

    def followed(self, func: FuncOp) -> dict[str, Any]:
        """Return `observed` for the current program, from the values that were computed after each
        rewrite.

        Raises:
            NotRecorded: an inner value was dropped, or cannot be computed outside its region.
        """
        if not self.values:
            raise NotRecorded
        seen: dict[str, Any] = {}
        for op in func.body.block.ops:
            if isinstance(op, ReturnOp):
                seen |= {f"output {i}": self.value(v) for i, v in enumerate(op.operands)}
            elif isinstance(op, UpdateOp):
                seen[f"state {op.key.data}"] = self.value(op.value)
            elif isinstance(op, MutateInputOp):
                seen[f"input {op.index.value.data} as left"] = self.value(op.value)
        return seen

    def on(self, func: FuncOp) -> Recording:
        """Return this recording with the results after a pass, computed from the values that
        replaced others in the pass.

        Raises:
            NotRecorded: an inner value was dropped, or cannot be computed outside its region.
            StepwellError: an op that the pass created fails.
        """
        return replace(self, followed_to=self.followed(func))

    def has_history(self, value: SSAValue) -> bool:
        """Whether a value depends on the buffers that the sample fills; a value that does not is
        compared on another sample.

        Apart from its state, this sample is the method's random one, which is compared completely.
        """
        if not self.sample.state:
            return True
        known = self._has_history
        waiting = [value]
        while waiting:
            at = waiting[-1]
            owner = at.owner
            if at in known:
                waiting.pop()
                continue
            if not isinstance(owner, Operation) or owner.regions or owner.parent is None:
                known[at] = isinstance(owner, Operation) or _is_within(owner)
                continue
            if isinstance(owner, StateOp):
                known[at] = True
                continue
            missing = [operand for operand in owner.operands if operand not in known]
            waiting += missing
            if not missing:
                known[at] = any(known[operand] for operand in owner.operands)
        return known[value]

    def value(self, wanted: SSAValue) -> Any:
        """Return the runtime value of an SSA value; evaluate ops that were created since the run.

        Raises:
            NotRecorded: the value depends on one that this run did not record.
        """
        if wanted not in self.values:
            owner = wanted.owner
            if not isinstance(owner, Operation) or owner.parent is None:
                raise NotRecorded
            for result, value in zip(owner.results, self.evaluate(owner), strict=True):
                self.values[result] = value
        return self.values[wanted]

    def invalidate(self, value: SSAValue) -> None:
        """Mark the users of a value as stale, so that they are evaluated again."""
        waiting = [use.operation for use in value.uses]
        while waiting:
            op = waiting.pop()
            if op in self.stale:
                continue
            self.stale.add(op)
            for result in op.results:
                self.values.pop(result, None)
                waiting += [use.operation for use in result.uses]
            if op.regions:
                for inner in op.walk():
                    for block in (b for region in inner.regions for b in region.blocks):
                        for argument in block.args:
                            self.values.pop(argument, None)
                    for result in inner.results:
                        self.values.pop(result, None)
            parent = op.parent_op()
            if parent is not None and parent.results:
                waiting.append(parent)

    def evaluate(self, op: Operation) -> tuple[Any, ...]:
        """Return the results of an op on the recorded values of its operands.

        Raises:
            NotRecorded: an operand is not available, or the op cannot run outside its region.
        """
        if isinstance(op, UpdateOp | MutateInputOp):
            raise NotRecorded
        self.stale.discard(op)
        operands = [self.value(operand) for operand in op.operands]
        rule = rule_for(type(op))
        if rule is None:
            raise NotRecorded
        try:
            with torch.no_grad():
                results = rule(op, operands, self.interpreter)
        except (KeyError, UnsupportedError):
            raise NotRecorded from None
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
            fact = f"{op_name(op)}: {first_line(error)}"
            raise StepwellError(fact, describe_op(op)) from error
        return tuple(dense(v, r) for v, r in zip(results, op.results, strict=True))


def _is_within(block: Block) -> bool:
    """Whether a block is nested in an op of a method, so that its arguments were not recorded."""
    return not isinstance(block.parent_op(), FuncOp)


def record(func: FuncOp, weights: WeightStore, sample: Sample) -> Recording:
    """Run a method on a sample and record every value."""
    interpreter = RecordingInterpreter(weights, dict(sample.state))
    for argument, value in zip(func.body.block.args, sample.inputs, strict=True):
        interpreter.values[argument] = value
    outcome = interpreter.call(func, sample.inputs)
    return Recording(sample, outcome, interpreter)


def recorded_bytes(recording: Recording) -> int:
    """Return the number of bytes of a recording, without the program's own weights."""
    own: set[int] = set()
    total = 0
    for key, value in recording.values.items():
        if isinstance(key.owner, WeightOp | StateOp) or not isinstance(value, torch.Tensor):
            continue
        storage = value.untyped_storage()
        if storage.data_ptr() not in own:
            own.add(storage.data_ptr())
            total += storage.nbytes()
    return total
