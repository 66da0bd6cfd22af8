"""A rule as complete IR: holes become what `for` says, sizes and types without one are chosen."""

from __future__ import annotations

from itertools import count
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir import dtypes
from stepwell.ir.dtypes import f32
from stepwell.ir.rewriting import Refusal
from stepwell.ir.text import to_text
from stepwell.ir.types import tensor
from stepwell.translate.rules.compiling import Matched, element_named, named_arguments, op_class
from stepwell.translate.rules.notation import Hole, Line, Rule, TypePattern, ValueName
from stepwell.translate.rules.rewrite import RuleRewrite


def examples_of(rewrite: type[RuleRewrite]) -> list[tuple[str, str]]:
    """(before, after) as texts that parse, of each form of a rule."""
    return [_example_of(rewrite, rule) for rule in rewrite.rule.forms]


def _example_of(rewrite: type[RuleRewrite], rule: Rule) -> tuple[str, str]:
    before = _Example(rewrite, rule)
    root = before.write(before.rule.before, None)
    found = rewrite().match(root, cast(Any, None))
    assert isinstance(found, Matched), f"the example of rule {rewrite.name} does not match" + (
        f": {found.reason}" if isinstance(found, Refusal) else ""
    )
    after = _Example(rewrite, rule)
    tensors = {name: after.holes[name] for name in _optional(rule)}
    holes = {name[1:]: value for name, value in found.found.items() if name[0] == "$"}
    after.holes = holes | tensors
    after.write(before.rule.after, root.results[0].type)
    return before.text(root.results[0].type), after.text(root.results[0].type)


class _Example:
    """A method whose arguments are the values that no line defines."""

    def __init__(self, rewrite: type[RuleRewrite], rule: Rule) -> None:
        self.rewrite, self.rule = rewrite(), rule
        self.holes: dict[str, Any] = dict.fromkeys(_optional(rule)) | {
            name: getattr(dtypes, value, value) if isinstance(value, str) else value
            for name, value in rule.example.items()
        }
        self.sizes = count(2)
        self.values: dict[str, SSAValue] = {}
        inputs = _inputs(rule) + [name for name in _optional(rule) if self.holes[name] is not None]
        self.block = Block(arg_types=[self.type(name) for name in inputs])
        for name, argument in zip(inputs, self.block.args, strict=True):
            argument.name_hint = name
            self.values[f"%{name}"] = argument
            if name in _optional(rule):
                self.holes[name] = argument

    def type(self, name: str) -> Attribute:
        """The type of an input: as its first reader states it, else a small matrix."""
        for line in self.rule.before:
            cls = op_class(line, self.rule)
            written = named_arguments(line, cls, self.rule)
            tensors = [a.name for a in cls.SCHEMA.arguments if a.type.is_tensor]
            for index, argument in enumerate(tensors):
                stated = line.operand_types[index : index + 1]
                if written.get(argument) == ValueName(name) and stated and stated[0]:
                    return self.concrete(stated[0])
        return tensor(self.hole(name, [2, 3]), f32)

    def concrete(self, pattern: TypePattern) -> Attribute:
        """The type that a pattern becomes."""
        shape = list(self.hole(pattern.rest.name, [2, 3])) if pattern.rest else []
        for size in pattern.sizes:
            shape.append(self.hole(size.name, None) if isinstance(size, Hole) else size)
        held = pattern.element
        if isinstance(held, Hole):
            return tensor(shape, self.hole(held.name, f32))
        return tensor(shape, element_named(held, self.rule))

    def hole(self, name: str, default: Any) -> Any:
        if name not in self.holes:
            self.holes[name] = next(self.sizes) if default is None else default
        return self.holes[name]

    def write(self, lines: tuple[Line, ...], result: Attribute | None) -> SchemaOp:
        """The ops of some lines; gives the last one."""
        holes = {f"${name}": value for name, value in self.holes.items()}
        op: SchemaOp | None = None
        for line in lines:
            if line.forwards is not None:
                self.values[f"%{line.result}"] = self.values[f"%{line.forwards.name}"]
                continue
            stated = result if line is lines[-1] else None
            op = self.rewrite.made(line, {**self.values, **holes}, stated)
            op.results[0].name_hint = line.result
            self.block.add_op(op)
            self.values[f"%{line.result}"] = op.results[0]
        return cast(SchemaOp, op)

    def text(self, result: Attribute) -> str:
        """The method as text."""
        self.block.add_op(ReturnOp(self.values[f"%{self.rule.root.result}"]))
        taken = [argument.type for argument in self.block.args]
        func = FuncOp("forward", (taken, [result]), Region(self.block))
        return to_text(ModuleOp([func])) + "\n"


def _optional(rule: Rule) -> list[str]:
    """The holes for tensors that may be absent, and are in examples that give them no shape."""
    found: list[str] = []
    for line in rule.before:
        cls = op_class(line, rule)
        for name, term in named_arguments(line, cls, rule).items():
            if isinstance(term, Hole) and cls.SCHEMA.by_name[name].type.is_tensor:
                found.append(term.name)
    return found


def _inputs(rule: Rule) -> list[str]:
    """The values that stand before and that no line defines, in order."""
    defined = {line.result for line in rule.before}
    found: dict[str, None] = {}
    for line in rule.before:
        for _, term in line.arguments:
            for item in term if isinstance(term, list) else [term]:
                if isinstance(item, ValueName) and item.name not in defined:
                    found[item.name] = None
    return list(found)
