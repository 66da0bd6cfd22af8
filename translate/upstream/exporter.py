"""Export of an aten program to text of torch-mlir's `torch` dialect.

    %int1 = torch.constant.int 1
    %add = torch.aten.add.Tensor %x, %y, %int1 : …

Arguments are written in the order of the operator's schema, including defaults; each number and
list is a separate op. Weights are literals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.aten.attributes import MEMORY_FORMATS, number_of_scalar_type
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import (
    Problem,
    StepwellError,
    UnsupportedError,
    describe_op,
    op_name,
)
from stepwell.ir.dtypes import f64
from stepwell.ir.program import Program
from stepwell.ir.renderers import gives
from stepwell.translate.upstream.linalg_exporter.bodies import number_text
from stepwell.translate.upstream.torch_dialect import literal, spelled

MOST_ELEMENTS = 1 << 20
"""The most elements of a weight in a text."""
_LISTS = {bool: "bool", int: "int", float: "float"}


@gives("torch-mlir", Program)
def to_torch_mlir(program: Program) -> str:
    """Return a program as text of torch-mlir's `torch` dialect.

    Args:
        program: a program at level aten.

    Raises:
        StepwellError: the program is at another level.
        UnsupportedError: lists every op that the dialect cannot express.
    """
    if program.level != "aten":
        raise StepwellError(
            f"a program at level {program.level!r} cannot be exported to torch-mlir's dialect",
            help='program.raise_to("aten") may raise it first',
        )
    problems: list[Problem] = []
    lines = ["module {"]
    for func in program.methods.values():
        lines += _Outgoing(program, problems).lines(func)
    if problems:
        raise UnsupportedError(problems)
    return "\n".join([*lines, "}", ""])


class _Outgoing:
    """Writes one method as upstream MLIR."""

    def __init__(self, program: Program, problems: list[Problem]) -> None:
        self.program, self.problems = program, problems
        self.names: dict[SSAValue, str] = {}
        self.taken: set[str] = set()
        self.made: dict[str, str] = {}
        """A constant's text → its name."""
        self.out: list[str] = []

    def lines(self, func: FuncOp) -> Iterator[str]:
        """Yield the method, line by line."""
        block = func.body.block
        text = ", ".join(f"{self.name(arg)}: {self.type(arg, func)}" for arg in block.args)
        last = block.last_op
        gives = list(last.operands) if isinstance(last, ReturnOp) else []
        results = ", ".join(self.type(value, func) for value in gives)
        for op in block.ops:
            if isinstance(op, WeightOp):
                self.weight(op)
            elif isinstance(op, SchemaOp):
                self.call(op)
            elif op is not last:
                self.problem(op, "torch-mlir's dialect has no such op")
        yield f"  func.func @{func.sym_name.data}({text}) -> ({results}) {{"
        yield from (f"    {line}" for line in self.out)
        names = ", ".join(map(self.name, gives))
        yield f"    return {names} : {results}" if gives else "    return"
        yield "  }"

    def problem(self, op: Operation, reason: str) -> None:
        """Record a construct that cannot be exported."""
        fact = f"{op_name(op)}: {reason}"
        self.problems.append(Problem(fact, describe_op(op), "docs/mlir.md lists the supported ops"))

    def type(self, value: SSAValue, op: Operation) -> str:
        """Return the MLIR type of a value."""
        if isinstance(value.type, TensorType):
            return spelled(value.type)
        self.problem(op, f"the type {value.type} is not a tensor type")
        return "!torch.none"

    def name(self, value: SSAValue) -> str:
        """Return the name of a value in the text."""
        if value not in self.names:
            self.names[value] = self.fresh(value.name_hint or str(len(self.names)))
        return self.names[value]

    def fresh(self, hint: str) -> str:
        """Return a name that no value has yet."""
        name, number = hint, 0
        while name in self.taken:
            number += 1
            name = f"{hint}.{number}"
        self.taken.add(name)
        return f"%{name}"

    def weight(self, op: WeightOp) -> None:
        """Write a weight as a literal."""
        value = self.program.weights.get(op.key.data)
        if value.numel() > MOST_ELEMENTS or value.is_complex():
            self.problem(op, f"a weight of {value.numel()} elements is too large for a text")
            return
        try:
            self.out.append(f"{self.name(op.result)} = {literal(value.detach())}")
        except (TypeError, ValueError, StepwellError):
            self.problem(op, "its elements have no text")

    def constant(self, text: str, type_: str, hint: str) -> tuple[str, str]:
        """Return the name and the type of a constant, which is written once."""
        if text not in self.made:
            self.made[text] = self.fresh(hint)
            self.out.append(f"{self.made[text]} = {text}")
        return self.made[text], type_

    def argument(self, value: Any, kind: Any) -> tuple[str, str]:
        """Return the name and the type of an argument.

        Raises:
            ValueError: the argument cannot be written as text.
        """
        if isinstance(value, SSAValue):
            if not isinstance(value.type, TensorType):
                raise ValueError("an argument is known only at run time")
            return self.name(value), spelled(value.type)
        if value is None:
            return self.constant("torch.constant.none", "!torch.none", "none")
        if isinstance(value, bool):
            word = "true" if value else "false"
            return self.constant(f"torch.constant.bool {word}", "!torch.bool", word)
        if isinstance(value, Attribute):
            found = number_of_scalar_type(value)
            if found is None:
                raise ValueError(f"torch has no number for {value}")
            value = found
        if isinstance(value, str) and kind.base == "MemoryFormat":
            value = MEMORY_FORMATS.index(value)
        if isinstance(value, int):
            return self.constant(f"torch.constant.int {value}", "!torch.int", f"int{value}")
        if isinstance(value, float):
            text = number_text(value, f64)
            return self.constant(f"torch.constant.float {text}", "!torch.float", "float")
        if isinstance(value, str):
            return self.constant(f'torch.constant.str "{value}"', "!torch.str", "str")
        if isinstance(value, list | tuple):
            return self.listed(list(value), kind)  # pyright: ignore[reportUnknownArgumentType]
        raise ValueError(f"{value!r} has no text")

    def listed(self, values: Sequence[Any], kind: Any) -> tuple[str, str]:
        """Write a list of arguments."""
        parts = [self.argument(value, kind) for value in values]
        if kind.is_tensor:
            held = (
                parts[0][1].removeprefix("!torch.")
                if len({t for _, t in parts}) == 1
                else "vtensor"
            )
            held = f"optional<{held}>" if None in values else held
        else:
            held = _LISTS.get(type(values[0])) if values else None
            held = held or {"float": "float", "bool": "bool"}.get(kind.base, "int")
        names, types = ", ".join(n for n, _ in parts), ", ".join(t for _, t in parts)
        type_ = f"!torch.list<{held}>"
        text = f"torch.prim.ListConstruct {names}".rstrip() + f" : ({types}) -> {type_}"
        return self.constant(text, type_, "list")

    def call(self, op: SchemaOp) -> None:
        """Write an operator with all of its arguments."""
        try:
            parts = [self.argument(op.arg(a.name), a.type) for a in op.SCHEMA.arguments]
        except (ValueError, StepwellError) as error:
            self.problem(op, str(error).partition("\n")[0])
            return
        name = op.name.removesuffix(".default")
        results = [self.type(result, op) for result in op.results]
        text = ", ".join(map(self.name, op.results))
        names, types = ", ".join(n for n, _ in parts), ", ".join(t for _, t in parts)
        self.out.append(f"{text} = torch.{name} {names} : {types} -> {', '.join(results)}")
