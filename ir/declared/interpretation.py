"""The semantics of every level: an interpreter with one rule per op class.

A rule takes the op, its evaluated operands and the interpreter, and returns the results. Rules are
pure: they never write to an operand. A run starts from the initial state and changes neither the
model nor the program; a `Session` keeps the buffers that `stepwell.update` wrote between its calls.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import (
    Problem,
    StepwellError,
    UnsupportedError,
    describe_op,
    op_name,
)
from stepwell.ir.weights import WeightStore

Value = Any
"""A run-time value: a tensor, a number, a bool or None."""

Rule = Callable[[Operation, Sequence[Value], "Interpreter"], Sequence[Value]]
_INTERPRETERS: dict[type[Operation], Rule] = {}
_F = TypeVar("_F", bound=Callable[..., Sequence[Value]])


def interprets(*classes: type[Operation]) -> Callable[[_F], _F]:
    """Register the interpreter's rule of these op classes (and their subclasses)."""

    def register(function: _F) -> _F:
        for cls in classes:
            if cls in _INTERPRETERS:
                raise StepwellError(f"{cls.name} has two interpretation rules")
            _INTERPRETERS[cls] = function
        return function

    return register


Follower = Callable[[Any, Sequence[Value], Sequence[Value], "Interpreter"], Sequence[Value]]
FOLLOWERS: dict[type[Operation], Follower] = {}
"""What an engine makes of the results of a class's ops: (op, operands, results, interpreter)."""
_HOMES: dict[str, str] = {}


def meaning_stands_in(dialect: str, module: str) -> None:
    """Register the module with a dialect's interpreter rules, imported when such an op runs."""
    _HOMES[dialect] = module


def rule_for(cls: type[Operation]) -> Rule | None:
    """Return the rule of a class or of the nearest base class that has one."""
    home = _HOMES.get(cls.name.partition(".")[0])
    if home is not None:
        importlib.import_module(home)
    for base in cls.__mro__:
        if base in _INTERPRETERS:
            return _INTERPRETERS[base]
    return None


@dataclass
class Outcome:
    """The results of a method call: outputs, and the values written to state and to user inputs."""

    outputs: tuple[Value, ...]
    state: dict[str, torch.Tensor]
    mutated_inputs: dict[int, torch.Tensor]


@dataclass
class Interpreter:
    """Runs one method once. `observe` is called with every op and its results (for bisection).

    With `engine`, nodes treat special values (NaN, infinities, …) as that engine does.
    """

    weights: WeightStore
    state: dict[str, torch.Tensor] = field(default_factory=dict[str, "torch.Tensor"])
    observe: Callable[[Operation, Sequence[Value]], None] | None = None
    engine: str | None = None

    def call(self, func: FuncOp, inputs: Sequence[Value]) -> Outcome:
        """Run a method; its dynamic inputs are passed in order."""
        block = func.body.block
        environment: dict[SSAValue, Value] = dict(zip(block.args, inputs, strict=True))
        done = _last_reads(block)
        updates: dict[str, torch.Tensor] = {}
        mutated: dict[int, torch.Tensor] = {}
        with torch.no_grad():
            for op in block.ops:
                if isinstance(op, ReturnOp):
                    outputs = [environment[value] for value in op.operands]
                    held = _storages([*inputs, *self._stored(func)])
                    return Outcome(
                        tuple(_fresh(value, held) for value in outputs), updates, mutated
                    )
                if isinstance(op, UpdateOp):
                    updates[op.key.data] = environment[op.value].clone()
                elif isinstance(op, MutateInputOp):
                    mutated[op.index.value.data] = environment[op.value].clone()
                else:
                    self.step(op, environment)
                for value in done[op]:
                    del environment[value]
        raise StepwellError(
            "the method does not end in func.return", help="verify() the program first"
        )

    def step(self, op: Operation, environment: dict[SSAValue, Value]) -> None:
        """Evaluate one op of the program, and bind its results to their SSA values."""
        rule = rule_for(type(op))
        if rule is None:
            raise UnsupportedError(
                f"{op_name(op)}: the interpreter has no rule for it", describe_op(op)
            )
        operands = [environment[value] for value in op.operands]
        try:
            results = rule(op, operands, self)
            if self.engine is not None:
                for base in (cls for cls in type(op).__mro__ if cls in FOLLOWERS):
                    results = FOLLOWERS[base](op, operands, results, self)
        except StepwellError as error:
            if error.problems[0].where is not None:
                raise
            problem = error.problems[0]
            raise type(error)(
                [Problem(f"{op_name(op)}: {problem.fact}", describe_op(op), problem.help)]
            ) from error
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise StepwellError(f"{op_name(op)}: {reason}", describe_op(op)) from error
        for result, value in zip(op.results, results, strict=True):
            environment[result] = value
        if self.observe is not None:
            self.observe(op, results)

    def run_region(
        self,
        region: Region,
        arguments: Sequence[Value],
        outer: dict[SSAValue, Value] | None = None,
    ) -> tuple[Value, ...]:
        """Run a single-block region; the operands of its last op are the result."""
        block: Block = region.block
        environment = dict(outer or {})
        environment.update(zip(block.args, arguments, strict=True))
        last, done = block.last_op, _last_reads(block)
        for op in block.ops:
            if op is last:
                return tuple(environment[value] for value in op.operands)
            self.step(op, environment)
            for value in done[op]:
                del environment[value]
        raise StepwellError("a region has no terminator", help="verify() the program first")

    def _stored(self, func: FuncOp) -> list[torch.Tensor]:
        stored: list[torch.Tensor] = list(self.state.values())
        for op in func.body.block.ops:
            if isinstance(op, WeightOp | StateOp):
                stored.append(self.weights.get(op.key.data))
        return stored


@interprets(WeightOp)
def _weight(op: WeightOp, args: Sequence[Value], ctx: Interpreter) -> Sequence[Value]:
    return (ctx.weights.get(op.key.data),)


@interprets(StateOp)
def _state(op: StateOp, args: Sequence[Value], ctx: Interpreter) -> Sequence[Value]:
    key = op.key.data
    return (ctx.state[key] if key in ctx.state else ctx.weights.get(key),)


def _last_reads(block: Block) -> dict[Operation, list[SSAValue]]:
    """For each op of a block, list the values of the block whose last use it is."""
    values: dict[Operation, list[SSAValue]] = {}
    used_later: set[SSAValue] = set()
    inside = {value for op in block.ops for value in op.results} | set(block.args)
    for op in reversed(block.ops):
        read = (value for part in op.walk() for value in part.operands)
        held = {value: None for value in (*op.results, *read) if value in inside}
        values[op] = [value for value in held if value not in used_later]
        used_later.update(held)
    return values


def _storages(values: Sequence[Value]) -> set[int]:
    return {
        value.untyped_storage().data_ptr()
        for value in values
        if isinstance(value, torch.Tensor) and value.numel()
    }


def _fresh(value: Value, held: set[int]) -> Value:
    """Return a runtime value, or a copy if the caller could change the program by writing to it."""
    is_filled = isinstance(value, torch.Tensor) and value.numel()
    return value.clone() if is_filled and value.untyped_storage().data_ptr() in held else value
