"""A program of MLIR's own dialects, or of torch-mlir's, as one of torch's operators.

Before:
    %m = arith.mulf %x, %y : tensor<2xf32>
    %e = math.exp %m : tensor<2xf32>
After:
    %m = aten.mul.Tensor(%x, %y) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %e = aten.exp.default(%m) : (tensor<2xf32>) -> tensor<2xf32>

What an op of MLIR means is a function of torch's tensors (`meanings`, `structured`), and run on
tensors without data it says with which operators. torch-mlir's operators are torch's by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from stepwell.dialects.aten.registry import of_overload
from stepwell.dialects.symbols import Symbols, tensor_type
from stepwell.ir.above import gives
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import (
    Problem,
    StepwellError,
    UnsupportedError,
    describe_op,
    op_name,
)
from stepwell.ir.levels import set_level
from stepwell.ir.program import Program
from stepwell.ir.torch_private import pytree
from stepwell.ir.types import is_static, tensor_like
from stepwell.translate.rewrites.calls.recorded_calls import CannotTraceError, Recorder
from stepwell.translate.rewrites.calls.traced_calls import to_ir
from stepwell.translate.upstream import torch_dialect
from stepwell.translate.upstream.meanings import MEANINGS, Refused
from stepwell.translate.upstream.structured import STRUCTURED

RULES = {**MEANINGS, **STRUCTURED}
"""Name of an op → function of it and its operands."""
HELP = "docs/upstream.md lists what comes in"


@gives("brought-in", Program)
def brought_in(program: Program) -> Program:
    """A program at level `upstream` as one at level aten.

    Args:
        program: it is not changed; weights are shared.

    Raises:
        UnsupportedError: listing every op that has no form.
    """
    made = Program(ModuleOp([]), program.weights.child(), dict(program.samples))
    for name, held in program.module.attributes.items():
        if name.startswith("stepwell.") and name != "stepwell.level":
            made.module.attributes[name] = held
    problems: list[Problem] = []
    methods = [op for op in program.module.body.block.ops if isinstance(op, FuncOp)]
    if not methods:
        raise StepwellError("the text has no function", help="a program is made of func.func")
    for op in program.module.body.block.ops:
        if not isinstance(op, FuncOp):
            problems.append(_problem(op, "it stands outside of functions"))
        elif not op.body.blocks:
            problems.append(_problem(op, "it is only declared"))
        else:
            made.module.body.block.add_op(_Incoming(made, op, problems).func())
    if problems:
        raise UnsupportedError(problems)
    set_level(made.module, "aten")
    return made


def _problem(op: Operation, reason: str) -> Problem:
    hint = op.results[0].name_hint if op.results else None
    where = describe_op(op) or (f"%{hint}" if hint else None)
    return Problem(f"{op_name(op)}: {reason}", where, HELP)


@dataclass
class _Incoming:
    """One function on its way in."""

    program: Program
    old: FuncOp
    problems: list[Problem]
    values: dict[SSAValue, Any] = field(default_factory=dict[SSAValue, Any])
    """What an SSA value of the text is: a value, a Python number, a list, None."""

    def func(self) -> FuncOp:
        """The function of torch's operators."""
        blocks = list(self.old.body.blocks)
        old, taken = blocks[0], [self._type(arg) for arg in blocks[0].args]
        new = Block(arg_types=taken)
        for before, after in zip(old.args, new.args, strict=True):
            self.values[before], after.name_hint = after, before.name_hint
        if len(blocks) > 1:
            self.problems.append(_problem(self.old, "its control flow jumps between blocks"))
        gives: list[Any] = []
        for op in old.ops if len(blocks) == 1 else ():
            if isinstance(op, ReturnOp):
                gives = [self.values[o] for o in op.operands if o in self.values]
                if any(not isinstance(value, SSAValue) for value in gives):
                    self.problems.append(_problem(op, "it returns what is no tensor"))
                    gives = []
            elif all(operand in self.values for operand in op.operands):
                self._take(op, new)
        new.add_op(ReturnOp(*gives))
        results = [value.type for value in gives]
        return FuncOp(self.old.sym_name.data, (taken, results), Region(new))

    def _type(self, value: SSAValue) -> Attribute:
        found = torch_dialect.builtin_type(value.type)
        if not isinstance(found, TensorType):
            self.problems.append(_problem(self.old, f"an argument is {value.type}, no tensor"))
        elif not is_static(found):
            fact = f"{value.type}: sizes are open"
            self.problems.append(_problem(self.old, f"{fact}; state them in the text"))
        return found

    def _take(self, op: Operation, new: Block) -> None:
        if self.problems and any(not is_static_value(v) for v in op.operands):
            return  # A size that is open is among the problems.
        try:
            if op.name.startswith(("torch.", "torch_c.")):
                found = torch_dialect.taken(
                    op, [self.values[o] for o in op.operands], self.constant
                )
                found = self._written(op, found, new)
            else:
                found = self._traced(op, new)
            for result, value in zip(op.results, found, strict=True):
                if isinstance(value, SSAValue):
                    self._check(op, value, result)
                    value.name_hint = value.name_hint or result.name_hint
                self.values[result] = value
        except Refused as error:
            self.problems.append(_problem(op, str(error)))
        except StepwellError as error:
            self.problems.append(_problem(op, error.problems[0].fact))
        except (CannotTraceError, RuntimeError, TypeError, ValueError, LookupError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            self.problems.append(_problem(op, reason))

    def _check(self, op: Operation, value: SSAValue, result: SSAValue) -> None:
        stated = torch_dialect.builtin_type(result.type)
        if isinstance(stated, TensorType) and is_static(stated) and stated != value.type:
            raise Refused(f"the text says {stated}, and torch gives {value.type}")

    def _written(self, op: Operation, found: Sequence[Any], new: Block) -> Sequence[Any]:
        """What was made, with new ops in their place."""
        values: list[Any] = []
        for made in found:
            if isinstance(made, Operation):
                made.location = op.location
                new.add_op(made)
                values += made.results
            else:
                values.append(made)
        return values

    def constant(self, value: torch.Tensor) -> Operation:
        """A constant of the text."""
        key = self.program.weights.constant(value.detach().clone().contiguous())
        return WeightOp(key, tensor_like(self.program.weights.get(key)))

    def _traced(self, op: Operation, new: Block) -> Sequence[Any]:
        """Write the calls that an op's function makes; gives its results."""
        rule = RULES.get(op.name)
        if rule is None:
            raise Refused("nothing says what it is in torch")
        symbols = Symbols()
        symbols.mode.allow_non_fake_inputs = True
        known: dict[int, SSAValue] = {}
        given: list[Any] = []
        for operand in op.operands:
            value = self.values[operand]
            if isinstance(value, SSAValue):
                fake = symbols.fake(value.type)
                if fake is None:
                    raise Refused(f"it reads a {value.type}, which is no tensor")
                known[id(fake)] = value
                value = fake
            given.append(value)
        recorder = Recorder(None, lambda overload, is_root: None, symbols.env)
        with symbols.on_fakes(), recorder:
            results = rule(op, given)
        kept: list[Any] = []
        for call in recorder.calls:
            for used in pytree.tree_leaves(call.arguments):
                if isinstance(used, torch.Tensor) and id(used) not in known:
                    known[id(used)] = self._placed(used, op, new)
                    kept.append(used)
            made = of_overload(call.overload).from_arguments(to_ir(call, known, None), call.types)
            made.location = op.location
            new.add_op(made)
            known.update(
                {id(fake): out for fake, out in zip(call.results, made.results, strict=True)}
            )
        found: list[Any] = []
        for value in results if isinstance(results, list) else [results]:
            value = recorder.latest(value)
            if isinstance(value, torch.Tensor):
                if id(value) not in known:
                    known[id(value)] = self._placed(value, op, new)
                found.append(known[id(value)])
            else:
                found.append(value)
        return found

    def _placed(self, value: torch.Tensor, op: Operation, new: Block) -> SSAValue:
        """A constant that a function made of the text's."""
        held = getattr(value, "constant", None)
        held = value if held is None and type(value) is torch.Tensor else held
        if held is None:
            raise Refused(f"it makes a {tensor_type(value)} of its own")
        made = self.constant(held)
        made.location = op.location
        new.add_op(made)
        return made.results[0]


def is_static_value(value: SSAValue) -> bool:
    """Whether all sizes of a value of the text are numbers."""
    type_ = torch_dialect.builtin_type(value.type)
    return not isinstance(type_, TensorType) or is_static(type_)
