"""The example of a rule as complete IR, with values for its holes, sizes and types.

`for` clauses state the values of holes; missing sizes and types are chosen. The second program is
the rule's result for the first. A weight has the key that `for` states. Its elements are all
different, or one number for a key with a suffix such as `"#ones"`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.ir import dtypes
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import f32, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.cleanup import RemoveDeadCode
from stepwell.ir.rewriting.rewrite import History, Refusal
from stepwell.ir.rewriting.rewriter import Rewriter
from stepwell.ir.signature import Port, Signature, set_signature
from stepwell.ir.syntax.parser import TextParser
from stepwell.ir.syntax.text import TextContext, parse_module, to_text
from stepwell.ir.types import AnyTensor, dims, element, tensor
from stepwell.ir.weights import WeightStore
from stepwell.translate.rules.compiling import Matched, element_named, named_arguments, operator
from stepwell.translate.rules.notation import (
    WEIGHT,
    AnyType,
    Computed,
    Hole,
    Line,
    Miss,
    Rule,
    Term,
    TypePattern,
    ValueName,
)
from stepwell.translate.rules.operators import Parameter
from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.translate.rules.writing import RuleWriter


def examples_of(rewrite: type[RuleRewrite]) -> list[tuple[str, str]]:
    """Return (before, after) as IR texts, for each form of a rule."""
    return [_example_of(rewrite, rule) for rule in rewrite.rule.forms]


def _example_of(rewrite: type[RuleRewrite], rule: Rule) -> tuple[str, str]:
    before = Example(rewrite, rule).text()
    program = Program(parse_module(before), WeightStore())
    for op in program.module.walk():
        if isinstance(op, WeightOp) and op.key.data not in program.weights:
            program.weights.add(op.key.data, elements_of(op))
    rule_rewrite, root = rewrite(), root_of(program, rule)
    match = rule_rewrite.match(root, program)
    assert isinstance(match, Matched), f"the example of rule {rewrite.name} does not match" + (
        f": {match.reason}" if isinstance(match, Refusal) else ""
    )
    values = rule_rewrite.written(match, Rewriter(root, program))
    for line in rule.after:
        for name in line.results if "." in line.op or line.recipe or line.is_again else ():
            values[f"%{name}"].name_hint = name
    RemoveDeadCode().apply(program, History())
    return before, to_text(program.module) + "\n"


def root_of(program: Program, rule: Rule | None = None) -> Operation:
    """Return the op of an example that its rule replaces: the one that defines the last line's
    result.

    If no value has that name, or no rule is given, it is the last op.
    """
    block = program.method().body.block
    assert block.last_op is not None and block.last_op.prev_op is not None
    wanted = rule.root.result if rule else ""
    named = (op for op in block.ops if wanted and op.results)
    return next((op for op in named if op.results[0].name_hint == wanted), block.last_op.prev_op)


def elements_of(op: WeightOp) -> torch.Tensor:
    """Return the elements of a weight of an example."""
    result_quantization = quantization(op.result.type)
    of = storage_element(result_quantization) if result_quantization else element(op.result.type)
    shape = [size if isinstance(size, int) else 1 for size in dims(op.result.type)]
    number, of_torch = _number_of(op.key.data), torch_dtype(of)
    if number is not None:
        return torch.full(shape, number, dtype=of_torch)
    counted = torch.arange(1, prod(shape) + 1).reshape(shape)
    is_counted = op.key.data.endswith("#counted") or not of_torch.is_floating_point
    return (counted if is_counted else 0.5 + 0.25 * counted).to(of_torch)


def _number_of(key: str) -> float | None:
    """Return the number in a key after `#` that all elements have; None if they differ."""
    numbers = {"zeros": 0, "ones": 1, "negative": -1, "tiny": 1e-40, "largest": 3.4e38}
    return numbers.get(key.partition("#")[2])


def missed(rule: Rule, miss: Miss) -> Rule:
    """Return a variant of a rule whose example is a program that the rule does not match (`not for
    …`).
    """
    types = {n for n, v in miss.example.items() if isinstance(v, str) and v.startswith("tensor<")}
    instead = types.union(*(line.results for line in miss.beside))
    options = {option.name for option in rule.options}
    return replace(
        rule,
        before=tuple(
            _renamed(line, miss.example)
            for line in rule.before
            if line.op != WEIGHT or line.result not in instead
        ),
        beside=(*(line for line in rule.beside if line.result not in instead), *miss.beside),
        example=rule.example | {n: v for n, v in miss.example.items() if n not in options},
    )


def _renamed(line: Line, names: Mapping[str, Any]) -> Line:
    """Return a line in which one value is replaced by another (`%z = %x`)."""

    def other(term: Term) -> Term:
        held = names.get(term.name) if isinstance(term, ValueName) else None
        return held if isinstance(held, ValueName) else term

    return replace(line, arguments=tuple((name, other(term)) for name, term in line.arguments))


class Example:
    """A method for an example; its arguments are the values that no line defines."""

    def __init__(self, rewrite: type[RuleRewrite], rule: Rule) -> None:
        self.rewrite, self.rule = rewrite, rule
        self.holes: dict[str, Any] = dict.fromkeys(optional_of(rule)) | {
            name: meant(value) for name, value in rule.example.items()
        }
        self.sizes = count(2)
        self.block = Block()
        self.values: dict[str, SSAValue] = {}
        inputs = inputs_of(rule) + [
            name
            for name in optional_of(rule)
            if self.holes[name] is not None and not isinstance(self.holes[name], ValueName)
        ]
        for name in inputs:
            argument = self.block.insert_arg(self.type(name), len(self.block.args))
            argument.name_hint = name
            self.values[f"%{name}"] = argument
            if name in optional_of(rule):
                self.holes[name] = argument
        for name in lists_of(rule):
            types = self.holes.get(name) or ["tensor<2x3xf32>"] * 2
            self.holes[name] = [
                self.argument(f"{name}_{at}", meant(of)) for at, of in enumerate(types)
            ]

    def argument(self, name: str, of: Attribute) -> SSAValue:
        """Add an argument to the example program."""
        arg = self.block.insert_arg(of, len(self.block.args))
        arg.name_hint = name
        return arg

    def behind_dots(self, parameter: Parameter) -> Term:
        """Return an argument matched by `…`: the value in `for`, else a new argument for its
        type.
        """
        name, hole = parameter.name, self.holes[parameter.name]
        if _names((hole,)):
            return hole
        if not parameter.is_value or not isinstance(hole, Attribute):
            return Hole(name)
        if f"%{name}" not in self.values:
            argument = self.block.insert_arg(self.holes[name], len(self.block.args))
            argument.name_hint = name
            self.values[f"%{name}"] = argument
        return ValueName(name)

    def insert(self, op: Operation) -> Operation:
        """Append an op, as a rewriter would insert it."""
        self.block.add_op(op)
        return op

    def text(self) -> str:
        """Return the method as text."""
        return to_text(self.module()) + "\n"

    def module(self) -> ModuleOp:
        """Return the method in a module."""
        lines = [self.line(line) for line in _ordered(self.rule) if line.op != WEIGHT]
        for line in (*self.rule.beside, *self.rule.before):
            if line.op == WEIGHT:
                self.weight(line)
        writer = RuleWriter(
            replace(self.rule, before=(), after=tuple(lines)), self.rewrite.namespace
        )
        for line, step in zip(lines, writer.steps, strict=True):
            for stated in filter(None, line.result_types):
                self.concrete(stated)
            holes = {f"${name}": self.known(value) for name, value in self.holes.items()}
            absent = [None] * len(line.results)
            made = step({**self.values, **holes}, absent, cast(Any, self))
            for name, value in zip(line.results, made, strict=True):
                value.name_hint = name
                self.values[f"%{name}"] = value
        gives = [self.values[f"%{name}"] for name in self.returned()]
        self.block.add_op(ReturnOp(*gives))
        taken = [argument.type for argument in self.block.args]
        func = FuncOp("forward", (taken, [v.type for v in gives]), Region(self.block))
        if self.rule.lies:
            inputs, outputs = self.ports(self.block.args, writer), self.ports(gives, writer)
            set_signature(func, Signature(inputs, outputs))
        return ModuleOp([func])

    def ports(self, values: Sequence[SSAValue], writer: RuleWriter) -> tuple[Port, ...]:
        """Return the ports of values, which declare their memory order."""
        holes = {f"${name}": value for name, value in self.holes.items()}
        orders = {v.name_hint: self.rule.lies.get(v.name_hint or "") for v in values}
        return tuple(
            Port(name or "", None if order is None else tuple(writer.value(order, holes)))
            for name, order in orders.items()
        )

    def known(self, held: Any) -> Any:
        """Return the value for a placeholder of a rule's text; names of IR values in it are
        replaced by the values.
        """
        if isinstance(held, list):
            return list(map(self.known, cast("list[Any]", held)))
        return self.values.get(f"%{held.name}", held) if isinstance(held, ValueName) else held

    def returned(self) -> list[str]:
        """Return the root's results that the replacement defines, and other unused values."""
        defined = {name for line in self.rule.after for name in line.results}
        results = [name for name in self.rule.root.results if name in defined]
        read = {name for line in (*self.rule.beside, *self.rule.before) for name in _read(line)}
        read |= {*_names(self.rule.example.values())}
        beside = [name for line in self.rule.beside for name in line.results]
        return [name for name in (*results, *beside) if name not in read]

    def line(self, line: Line) -> Line:
        """Return a line of the pattern with a concrete op; for a family, the op that `for` names.

        Arguments that `…` matches are included if `for` names them.
        """
        if line.is_again:
            line = replace(line, op=cast(str, self.holes[line.op[1:]]), family="")
        known = operator(line, self.rule)
        written = named_arguments(line, known, self.rule) if line.is_open else known.by_name
        named = {name for name in known.by_name if name in self.holes} - set(written)
        more = [(name, self.behind_dots(known.by_name[name])) for name in sorted(named)]
        return replace(line, arguments=(*line.arguments, *more), is_open=False)

    def weight(self, line: Line) -> None:
        """Add a weight whose key the rule's `for` clause states, or else is the weight's name."""
        key = self.holes.get(line.result, line.result)
        stated = next(iter(line.result_types), None)
        type_ = self.concrete(stated) if stated else self.type(line.result)
        result = self.insert(WeightOp(key, type_, "parameter")).results[0]
        result.name_hint = line.result
        self.values[f"%{line.result}"] = result

    def type(self, name: str) -> Attribute:
        """Return an input's type: from `for` or its first user, else a small matrix."""
        hole = self.holes.get(name)
        if isinstance(hole, Attribute):
            return hole
        for line in (*self.rule.beside, *self.rule.before):
            for index, value in _operands(line, self.rule):
                stated = line.operand_types[index : index + 1]
                if value == name and stated and stated[0]:
                    return self.concrete(stated[0])
        return tensor(hole if isinstance(hole, list) else [2, 3], f32)

    def concrete(self, pattern: AnyType) -> AnyTensor:
        """Return the concrete type of a pattern."""
        if isinstance(pattern, Hole):
            return self.hole(pattern.name, tensor([2, 3], f32))
        assert isinstance(pattern, TypePattern) and not isinstance(pattern.rest, Computed)
        shape = list(self.hole(pattern.rest.name, [2, 3])) if pattern.rest else []
        for size in pattern.sizes:
            assert not isinstance(size, Computed)
            shape.append(self.hole(size.name, None) if isinstance(size, Hole) else size)
        held = pattern.element
        if isinstance(held, Hole):
            return tensor(shape, self.hole(held.name, f32))
        return tensor(shape, element_named(cast(str, held), self.rule))

    def hole(self, name: str, default: Any) -> Any:
        if name not in self.holes:
            self.holes[name] = next(self.sizes) if default is None else default
        return self.holes[name]


def meant(value: Any) -> Any:
    """Resolve a value in `for`: an element, a type or an op by its name, else the value itself."""
    if not isinstance(value, str):
        return value
    if value.startswith(("!", "tensor<")):
        return TextParser(TextContext(), value).parse_type()
    return getattr(dtypes, value, value)


def _operands(line: Line, rule: Rule) -> Iterator[tuple[int, str]]:
    """Yield the values that a line reads, with their operand indices."""
    if line.op == WEIGHT:
        return
    if line.is_again:
        terms = [(index, term) for index, (_, term) in enumerate(line.arguments)]
    else:
        known = operator(line, rule)
        written = named_arguments(line, known, rule)
        terms = [(index, written.get(p.name)) for index, p in enumerate(known.values)]
    for index, term in terms:
        listed = term if isinstance(term, list) else [term]
        for at, item in enumerate(listed):
            if isinstance(item, ValueName):
                yield index + at, item.name


def optional_of(rule: Rule) -> list[str]:
    """Return the holes for optional tensors, which examples without a shape for them omit."""
    found: list[str] = []
    for line in rule.before:
        if line.op == WEIGHT or line.is_again:
            continue
        known = operator(line, rule)
        for name, term in named_arguments(line, known, rule).items():
            parameter = known.by_name[name]
            if isinstance(term, Hole) and parameter.is_value and parameter.may_be_absent:
                found.append(term.name)
    return found


def lists_of(rule: Rule) -> list[str]:
    """Return the holes for lists of tensors."""
    found: list[str] = []
    for line in rule.before:
        if line.op == WEIGHT or line.is_again:
            continue
        known = operator(line, rule)
        for name, term in named_arguments(line, known, rule).items():
            if isinstance(term, Hole) and known.by_name[name].is_list:
                found.append(term.name)
    return found


def inputs_of(rule: Rule) -> list[str]:
    """Return the values in the pattern that no line defines, in order."""
    lines = (*rule.beside, *rule.before)
    defined = {name for line in lines for name in line.results}
    read = dict.fromkeys(name for line in lines for name in _read(line))
    return [name for name in read if name not in defined]


def _read(line: Line) -> list[str]:
    """Return the values that a line reads."""
    return _names(term for _, term in line.arguments)


def _names(terms: Iterable[Any]) -> list[str]:
    """Return the values among terms, and in lists of them."""
    items = [item for t in terms for item in (cast("list[Any]", t) if isinstance(t, list) else [t])]
    return [item.name for item in items if isinstance(item, ValueName)]


def _ordered(rule: Rule) -> list[Line]:
    """Return the pattern's lines and additional ones such that operands precede users."""
    waiting, lines = list(rule.beside), list[Line]()
    late = {name for line in (*rule.beside, *rule.before) for name in line.results}
    for line in rule.before:
        while ready := [each for each in waiting if not late.intersection(_read(each))]:
            lines.append(ready[0])
            waiting.remove(ready[0])
            late -= {*ready[0].results}
        lines.append(line)
        late -= {*line.results}
    return [*lines, *waiting]
