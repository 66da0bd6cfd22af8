"""Import a program in MLIR's own dialects, or torch-mlir's, to PyTorch's operators.

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

from xdsl.dialects import scf
from xdsl.dialects.builtin import AnyFloat, IndexType, IntegerType, ModuleOp, TensorType
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.traits import IsTerminator

from stepwell.dialects.aten.registry import of_overload, op_class
from stepwell.dialects.symbols import Symbols, tensor_type
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.torch.torch_private import pytree
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.interpretation import Interpreter, rule_for
from stepwell.ir.diagnostics import (
    Problem,
    StepwellError,
    UnsupportedError,
    describe_op,
    op_name,
)
from stepwell.ir.dtypes import i64
from stepwell.ir.levels import set_level
from stepwell.ir.program import Program
from stepwell.ir.renderers import gives
from stepwell.ir.types import is_static, tensor, tensor_like
from stepwell.ir.weights import WeightStore
from stepwell.translate.raising.tosa import fake_of, in_torch
from stepwell.translate.rewrites.calls.recorded_calls import CannotTraceError, Recorder
from stepwell.translate.rewrites.calls.traced_calls import to_ir
from stepwell.translate.upstream import torch_dialect
from stepwell.translate.upstream.meanings import MEANINGS, CannotImport, Rule
from stepwell.translate.upstream.structured import STRUCTURED, free_values

ABSENT = object()
"""The value of an operand that could not be imported."""
MOST_TURNS = 64
"""The most iterations of a loop with constant bounds that is unrolled."""
RULES = {**MEANINGS, **STRUCTURED}
"""Name of an op → function of it and its operands."""
HELP = "docs/mlir.md lists the supported ops"


def _of_tosa(op: TosaOp) -> Rule:
    """Return the semantics, in PyTorch's operators, of a TOSA operator in a program that also has
    ops of other dialects.
    """
    if op.regions or (rule := rule_for(type(op))) is None:
        raise CannotImport("it is unsupported among other dialects")
    written = in_torch(op)
    if written is not None:
        return written
    return lambda op, args: list(rule(op, args, Interpreter(WeightStore())))


@gives("brought-in", Program)
def brought_in(program: Program) -> Program:
    """Import a program at level `upstream` to level aten.

    Args:
        program: the program, which is not changed; weights are shared.

    Raises:
        UnsupportedError: lists every op without an equivalent.
    """
    made = Program(ModuleOp([]), program.weights.child(), dict(program.samples))
    for name, attribute in program.module.attributes.items():
        if name.startswith("stepwell.") and name != "stepwell.level":
            made.module.attributes[name] = attribute
    problems: list[Problem] = []
    methods = [op for op in program.module.body.block.ops if isinstance(op, FuncOp)]
    called = {
        op.callee.root_reference.data for op in program.module.walk() if isinstance(op, CallOp)
    }
    if not methods:
        raise StepwellError("the text has no function", help="a program consists of func.func")
    for op in program.module.body.block.ops:
        if not isinstance(op, FuncOp):
            problems.append(_problem(op, "it is outside of functions"))
        elif not op.body.blocks:
            problems.append(_problem(op, "it is only declared"))
        elif op.sym_name.data in called and _is_private(op):
            continue  # It is inlined where it is called.
        else:
            made.module.body.block.add_op(_Incoming(made, op, problems).func())
    if problems:
        raise UnsupportedError(problems)
    set_level(made.module, "aten")
    return made


def _is_private(func: FuncOp) -> bool:
    return func.sym_visibility is not None and func.sym_visibility.data == "private"


def _problem(op: Operation, reason: str) -> Problem:
    hint = op.results[0].name_hint if op.results else None
    where = describe_op(op) or (f"%{hint}" if hint else None)
    return Problem(f"{op_name(op)}: {reason}", where, HELP)


@dataclass
class _Incoming:
    """Imports one function of upstream MLIR."""

    program: Program
    old: FuncOp
    problems: list[Problem]
    values: dict[SSAValue, Any] = field(default_factory=dict[SSAValue, Any])
    """SSA value of the text → a value, a Python number, a list, or None."""
    calling: list[FuncOp] = field(default_factory=list[FuncOp])
    """Functions that are being inlined."""

    def func(self) -> FuncOp:
        """Convert an upstream MLIR function to a function of PyTorch's operators, and return it."""
        blocks = list(self.old.body.blocks)
        old, taken = blocks[0], [self._type(arg) for arg in blocks[0].args]
        new = Block(arg_types=taken)
        for before, after in zip(old.args, new.args, strict=True):
            self.values[before], after.name_hint = after, before.name_hint
        if len(blocks) > 1:
            self.problems.append(_problem(self.old, "its control flow jumps between blocks"))
        gives = self._block(old, new) if len(blocks) == 1 else []
        if gives is None:  # The defining op is among the problems.
            gives = []
        gives = [self._returned(value, old, new) for value in gives]
        new.add_op(ReturnOp(*gives))
        results = [value.type for value in gives]
        return FuncOp(self.old.sym_name.data, (taken, results), Region(new))

    def _type(self, value: SSAValue) -> Attribute:
        builtin_type = torch_dialect.builtin_type(value.type)
        if isinstance(builtin_type, IntegerType | IndexType | AnyFloat):
            return tensor([], i64 if isinstance(builtin_type, IndexType) else builtin_type)
        if not isinstance(builtin_type, TensorType):
            self.problems.append(_problem(self.old, f"an argument is {value.type}, no tensor"))
        elif not is_static(builtin_type):
            fact = f"{value.type}: sizes are dynamic"
            self.problems.append(_problem(self.old, f"{fact}; state them in the text"))
        return builtin_type

    def _block(self, old: Block, new: Block) -> list[Any] | None:
        """Import the ops of a block; return the terminator's operands, or None after a problem."""
        for op in old.ops:
            if op.has_trait(IsTerminator):
                known = all(operand in self.values for operand in op.operands)
                return [self.values[operand] for operand in op.operands] if known else None
            if all(operand in self.values for operand in op.operands):
                self._take(op, new)
        return []

    def _returned(self, value: Any, old: Block, new: Block) -> SSAValue:
        """Return a result; a number becomes a tensor of rank 0."""
        if isinstance(value, bool | int | float):
            value = self.constant(torch.tensor(value))
            new.add_op(value)
            return value.results[0]
        if not isinstance(value, SSAValue):
            assert old.last_op is not None
            self.problems.append(_problem(old.last_op, "it returns a value that is no tensor"))
            return new.args[0] if new.args else self._returned(0, old, new)
        return value

    def _nested(self, op: Operation, new: Block) -> Sequence[Any] | None:
        """Inline a call, a loop with constant bounds or a choice; return None for other ops."""
        values = [self.values[operand] for operand in op.operands]
        if isinstance(op, CallOp):
            return self._called(op, values, new)
        if isinstance(op, scf.ForOp):
            bounds, carried = values[:3], values[3:]
            if not all(isinstance(bound, int) for bound in bounds):
                raise CannotImport("how often it turns is known only at run time")
            turns = range(*bounds)
            if len(turns) > MOST_TURNS:
                raise CannotImport(f"it turns {len(turns)} times, and {MOST_TURNS} are written out")
            for turn in turns:
                carried = self._region(op.body.block, [turn, *carried], new)
            return carried
        if isinstance(op, scf.IfOp):
            condition = values[0]
            if not isinstance(condition, SSAValue):
                region = op.true_region if condition else op.false_region
                return self._region(region.block, [], new)
            regions = (op.true_region, op.false_region)
            ones, others = (self._region(region.block, [], new) for region in regions)
            pairs = zip(ones, others, strict=True)
            return [self._chosen(condition, one, other, new) for one, other in pairs]
        return None

    def _region(self, block: Block, given: Sequence[Any], new: Block) -> list[Any]:
        self.values.update(zip(block.args, given, strict=True))
        region = self._block(block, new)
        if region is None:
            raise CannotImport("an op in it has no form")
        return region

    def _chosen(self, condition: SSAValue, one: Any, other: Any, new: Block) -> SSAValue:
        """Select one of two values; ops on tensors have no side effects, so that both are
        computed.
        """
        if not isinstance(one, SSAValue) or not isinstance(other, SSAValue):
            raise CannotImport("it chooses between numbers")
        made = op_class("aten.where.self").make(condition, one, other)
        new.add_op(made)
        return made.results[0]

    def _called(self, op: CallOp, given: Sequence[Any], new: Block) -> Sequence[Any]:
        name = op.callee.root_reference.data
        module = self.old.parent_op()
        assert isinstance(module, ModuleOp)
        callee = next(
            (f for f in module.ops if isinstance(f, FuncOp) and f.sym_name.data == name), None
        )
        if callee is None or len(callee.body.blocks) != 1 or callee is self.old:
            raise CannotImport(f"@{name} has no body of one block")
        if callee in self.calling:
            raise CannotImport(f"@{name} calls itself")
        self.calling.append(callee)
        region = self._region(callee.body.block, given, new)
        self.calling.pop()
        return region

    def _take(self, op: Operation, new: Block) -> None:
        if self.problems and any(not is_static_value(v) for v in op.operands):
            return  # A dynamic size is among the problems.
        try:
            if op.name.startswith(("torch.", "torch_c.")):
                found = torch_dialect.taken(
                    op, [self.values[o] for o in op.operands], self.constant
                )
                found = self._written(op, found, new)
            elif (found := self._nested(op, new)) is None:
                found = self._traced(op, new)
            for result, value in zip(op.results, found, strict=True):
                if isinstance(value, SSAValue):
                    self._check(op, value, result)
                    value.name_hint = value.name_hint or result.name_hint
                self.values[result] = value
        except CannotImport as error:
            self.problems.append(_problem(op, str(error)))
        except StepwellError as error:
            self.problems.append(_problem(op, error.problems[0].fact))
        except (CannotTraceError, RuntimeError, TypeError, ValueError, LookupError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            self.problems.append(_problem(op, reason))

    def _check(self, op: Operation, value: SSAValue, result: SSAValue) -> None:
        stated = torch_dialect.builtin_type(result.type)
        if isinstance(stated, TensorType) and is_static(stated) and stated != value.type:
            raise CannotImport(f"the text states {stated}, and PyTorch returns {value.type}")

    def _written(self, op: Operation, found: Sequence[Any], new: Block) -> Sequence[Any]:
        """Insert the new ops among these results, and return the results as values."""
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
        """Create the op of a constant with these elements."""
        key = self.program.weights.constant(value.detach().clone().contiguous())
        return WeightOp(key, tensor_like(self.program.weights.get(key)))

    def _traced(self, op: Operation, new: Block) -> Sequence[Any]:
        """Write the calls of an op's function, and return its results."""
        rule = _of_tosa(op) if isinstance(op, TosaOp) else RULES.get(op.name)
        if rule is None:
            raise CannotImport("it has no equivalent in PyTorch")
        symbols = Symbols()
        symbols.mode.allow_non_fake_inputs = True
        known: dict[int, SSAValue] = {}
        given: list[Any] = []
        for operand in (*op.operands, *free_values(op)):
            value = self.values.get(operand, ABSENT)
            if value is ABSENT:
                raise CannotImport("its body reads an unsupported value")
            if isinstance(value, SSAValue):
                fake = fake_of(symbols, value, self.program.weights)
                if fake is None:
                    raise CannotImport(
                        f"it reads a value of type {value.type}, which is not a tensor"
                    )
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
        """Insert a constant that a function computed from constants of the text."""
        held = getattr(value, "constant", None)
        held = value if held is None and type(value) is torch.Tensor else held
        if held is None:
            raise CannotImport(
                f"it creates a constant of type {tensor_type(value)}, whose elements are unknown"
            )
        constant = self.constant(held)
        constant.location = op.location
        new.add_op(constant)
        return constant.results[0]


def is_static_value(value: SSAValue) -> bool:
    """Whether all sizes of a value's type are numbers."""
    type_ = torch_dialect.builtin_type(value.type)
    return not isinstance(type_, TensorType) or is_static(type_)
