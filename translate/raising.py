"""Up again: a program at a target's level as one of torch's operators.

An op of a target is raised by what it means: the interpreter's rule computes it with torch, and run
on tensors without data it says with which operators. So there is no second table to keep true, and
the result computes what the target does: `xnnpack.convolution_2d` is a `convolution` between two
permutes, and a target's own normal form removes these. Where TOSA's rules say more than torch's
operators can (the order of a sum), `raising_tosa` says with which operators they are written.

Before:
    %y = xnnpack.square_root(%x) : (tensor<2xf32>) -> tensor<2xf32>
After:
    %y = aten.sqrt.default(%x) : (tensor<2xf32>) -> tensor<2xf32>

Delegates are opened in place. What a program has of torch's operators stays as it is. Quantised
nodes, branches and loops of a target, and symbolic sizes have no way up, and are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import IsTerminator

from stepwell.dialects.aten.registry import of_overload
from stepwell.dialects.ethosu import DelegateOp as EthosuDelegate
from stepwell.dialects.quant.ops import StorageCast
from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.dialects.symbols import Symbols, tensor_type
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.xnnpack import DelegateOp as XnnpackDelegate
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.above import gives
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import (
    Problem,
    StepwellError,
    UnsupportedError,
    describe_op,
    op_name,
)
from stepwell.ir.interpretation import Interpreter, rule_for
from stepwell.ir.levels import AFTER, set_level, stopped_after
from stepwell.ir.program import Program
from stepwell.ir.torch_private import pytree
from stepwell.ir.types import is_static, tensor_like, with_element
from stepwell.translate.raising_tosa import in_torch
from stepwell.translate.rewrites.calls.recorded_calls import CannotTraceError, Recorder
from stepwell.translate.rewrites.calls.traced_calls import to_ir

RAISED = ("xnnpack", "tosa", "executorch", "ethosu")
"""Levels that have a way up."""
TARGETS = ("tosa.target", "cmsis.target")


@gives("aten", Program)
def raised(program: Program) -> Program:
    """A program at a target's level as one at the aten level, which computes the same.

    Args:
        program: it is not changed; weights are shared.

    Raises:
        StepwellError: the level has no way up.
        UnsupportedError: listing every op that torch's operators do not say.
    """
    is_on_its_way = stopped_after(program.module) is not None
    if program.level == "aten" and not is_on_its_way:
        return program
    if program.level not in RAISED and not is_on_its_way:
        raise StepwellError(
            f"a program at level {program.level!r} has no way up to aten",
            help="levels with one are " + ", ".join(RAISED),
        )
    made = program.clone()
    raiser = _Raiser(made)
    for func in made.methods.values():
        old = func.body.block
        new = Block(arg_types=[arg.type for arg in old.args])
        for before, after in zip(old.args, new.args, strict=True):
            raiser.values[before] = after
            after.name_hint = before.name_hint
        raiser.block(old, new)
        func.body.detach_block(old)
        func.body.add_block(new)
        old.erase(safe_erase=False)
    if raiser.problems:
        raise UnsupportedError(raiser.problems)
    set_level(made.module, "aten")
    for name in (AFTER, *TARGETS):
        made.module.attributes.pop(name, None)
    return made


@dataclass
class _Raiser:
    program: Program
    values: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    shapes: dict[SSAValue, Any] = field(default_factory=dict[SSAValue, Any])
    """What is no tensor: TOSA's shapes, known ahead."""
    problems: list[Problem] = field(default_factory=list[Problem])

    def block(self, old: Block, new: Block) -> Operation | None:
        """Raise the ops of a block into another; gives the terminator of a delegate."""
        for op in old.ops:
            if isinstance(op, XnnpackDelegate | EthosuDelegate):
                self._open(op, new)
            elif op.has_trait(IsTerminator) and isinstance(
                op.parent_op(), XnnpackDelegate | EthosuDelegate
            ):
                return op
            elif isinstance(op, StorageCast):
                self.values[op.result] = self.values[op.input]
            elif isinstance(op, XnnpackOp | TosaOp):
                if not self.problems or not any(o in self.shapes for o in op.operands):
                    self._raise(op, new)
            else:
                self._copy(op, new)
        return None

    def _open(self, op: XnnpackDelegate | EthosuDelegate, new: Block) -> None:
        body = op.body.block
        for argument, operand in zip(body.args, op.operands, strict=True):
            self.values[argument] = self.values[operand]
        last = self.block(body, new)
        assert last is not None
        for result, yielded in zip(op.results, last.operands, strict=True):
            if yielded in self.values:
                self.values[result] = self.values[yielded]

    def _copy(self, op: Operation, new: Block) -> None:
        """An op as it is, over what its operands became."""
        if any(operand not in self.values for operand in op.operands):
            return  # What made it is among the problems.
        copy = op.clone_without_regions(dict(self.values))
        for old, region in zip(op.regions, copy.regions, strict=True):
            for block in old.blocks:
                inner = Block(arg_types=[arg.type for arg in block.args])
                self.values.update(zip(block.args, inner.args, strict=True))
                self.block(block, inner)
                region.add_block(inner)
        new.add_op(copy)
        for before, after in zip(op.results, copy.results, strict=True):
            self.values[before] = after
            after.name_hint = before.name_hint

    def _raise(self, op: XnnpackOp | TosaOp, new: Block) -> None:
        rule = rule_for(type(op))
        if not op.regions and rule and all(operand in self.shapes for operand in op.operands):
            given = [self.shapes[operand] for operand in op.operands]
            (value,) = rule(op, given, Interpreter(self.program.weights))
            if isinstance(value, torch.Tensor):
                self.values[op.results[0]] = self._constant(value, op, new)
            else:
                self.shapes[op.results[0]] = value
            return
        if not self._is_ready(op):
            return
        try:
            found = self._traced(op, new)
        except (CannotTraceError, StepwellError) as error:
            text = error.problems[0].fact if isinstance(error, StepwellError) else str(error)
            self._problem(op, text)
        except (RuntimeError, TypeError, ValueError, LookupError, NotImplementedError) as error:
            self._problem(op, (str(error).splitlines() or [type(error).__name__])[0])
        else:
            for result, value in zip(op.results, found, strict=True):
                if isinstance(value, SSAValue):
                    self.values[result] = value
                    value.name_hint = value.name_hint or result.name_hint
                else:
                    self.shapes[result] = value

    def _is_ready(self, op: Operation) -> bool:
        """Whether all that an op reads is known, and of one size."""
        if any(o not in self.values and o not in self.shapes for o in op.operands):
            return False
        if op.regions:
            self._problem(op, "branches and loops of the target have no way up")
            return False
        tensors = [v.type for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)]
        if not all(map(is_static, tensors)):
            self._problem(op, "its sizes are symbolic; read or lower it at one size")
            return False
        return True

    def _problem(self, op: Operation, reason: str) -> None:
        fact = f"{op_name(op)}: what it means is said by no operators of torch: {reason}"
        self.problems.append(Problem(fact, describe_op(op), "leave the program at its level"))

    def _constant(self, value: torch.Tensor, op: Operation, new: Block) -> SSAValue:
        key = self.program.weights.constant(value.detach().clone().contiguous())
        weight = WeightOp(key, tensor_like(self.program.weights.get(key)))
        weight.location = op.location
        new.add_op(weight)
        return weight.result

    def _fake(self, symbols: Symbols, value: SSAValue) -> Any:
        """What stands for an operand: of one number that is known, with that number."""
        held = self.values[value]
        if isinstance(held.owner, WeightOp):
            known = self.program.weights.get(held.owner.key.data)
            if known.numel() == 1:
                with symbols.on_fakes():
                    return torch.tensor(known.tolist(), dtype=known.dtype)
        return symbols.fake(_stored(held.type))

    def _traced(self, op: XnnpackOp | TosaOp, new: Block) -> Sequence[Any]:
        """Write the calls that an op's rule makes; gives its results."""
        rule = rule_for(type(op))
        if rule is None:
            raise CannotTraceError("the interpreter has no rule for it")
        symbols = Symbols()
        symbols.mode.allow_non_fake_inputs = True
        given = [
            self.shapes[o] if o in self.shapes else self._fake(symbols, o) for o in op.operands
        ]
        known: dict[int, SSAValue] = {
            id(fake): self.values[o]
            for fake, o in zip(given, op.operands, strict=True)
            if o in self.values
        }
        recorder = Recorder(None, lambda overload, is_root: None, symbols.env)
        other = in_torch(op)
        with symbols.on_fakes(), recorder:
            results = (
                [other(op, given)]
                if other is not None
                else rule(op, given, Interpreter(self.program.weights))
            )
        results = [recorder.latest(result) for result in results]
        for call in recorder.calls:
            for used in pytree.tree_leaves(call.arguments):
                if isinstance(used, torch.Tensor) and id(used) not in known:
                    constant = getattr(used, "constant", None)
                    if constant is None:
                        raise CannotTraceError("it makes a tensor of its own")
                    known[id(used)] = self._constant(constant, op, new)
            made = of_overload(call.overload).from_arguments(to_ir(call, known, None), call.types)
            made.location = op.location
            new.add_op(made)
            known.update(
                {id(fake): out for fake, out in zip(call.results, made.results, strict=True)}
            )
        found: list[Any] = []
        for result, value in zip(op.results, results, strict=True):
            if not isinstance(value, torch.Tensor):
                found.append(value)
                continue
            if id(value) not in known:
                raise CannotTraceError("it gives a tensor of its own")
            if tensor_type(value) != _stored(result.type):
                raise CannotTraceError(f"its rule gives {tensor_type(value)}")
            found.append(known[id(value)])
        return found


def _stored(type_: Attribute) -> Any:
    """The type of the numbers that lie in memory."""
    held = quantization(type_)
    return type_ if held is None else with_element(cast(Any, type_), storage_element(held))
