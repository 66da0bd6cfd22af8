"""The short form of a method that tests are written in: types are inferred, boilerplate is derived.

    %a = aten.clamp.default(%x: f32[2, 3], 2, 1)
    %y = aten.linear.default(%a, %w: weight f32[4, 3]); return %y

Each statement is an op; `;` or a new line separates two. A call `op(%values, …, field=…)` is read
as in a rule, for an op of any dialect; its result types are inferred unless `-> types` follows.
Other statements are MLIR. `%x: type` at the first use of a value, or as a statement, declares an
argument; `%w: weight type` (or `constant`, `buffer`, `state`) a weight whose key is its name, or
the string before the type (`%w: weight "w#ones" f32[2]`). A tensor's type is `f32[2, s0, 4*n]`, a
quantized one's `i8<0.5:3>[4]`. `%n: int<n>` is an integer known only at run time: the size of one
more argument. The results of the last op are returned, unless there is a `return`. A line that
starts with `#` is a comment.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from stepwell.dialects.quant.ops import DequantizeCast
from stepwell.dialects.quant.types import quantization
from stepwell.dialects.tosa.constants import const_shape
from stepwell.ir.core import StateOp, WeightOp
from stepwell.ir.syntax.parser import TextParser
from stepwell.ir.syntax.text import TextContext, parse_module
from stepwell.ir.types import dims, tensor
from stepwell.translate.rules.operators import OperatorReader, op_named, operator_of
from stepwell.translate.rules.terms import Terms, ValueName

_NESTED = r"<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>"
_ELEMENT = rf"(?:!\w+(?:\.\w+)+|\b(?:ui8|i\d+|f\d+\w*|bf16|complex))(?:{_NESTED})?"
_SHORT = re.compile(rf"({_ELEMENT})\[([^\]]*)\]")
_INTEGER = re.compile(r"(?<![\w.])int<([^<>]*)>")
_NUMBERS = re.compile(r"(ui\d+|i\d+)(<(?:-?\d+:-?\d+;)?.*>)")
_DECLARED = re.compile(
    r'%(\w+):\s*(?:(weight|constant|buffer|state)\s+(?:"([^"]*)"\s+)?)?'
    rf"((?:{_ELEMENT}|tensor{_NESTED}|int<[^<>]*>)(?:\[[^\]]*\])?)"
)
_CALL = re.compile(
    r"^(?:(?P<results>%\w+(?:, %\w+)*) = )?(?P<op>\w+(?:\.\w+)+)\((?P<rest>.*)$", re.S
)
_KINDS = {"weight": "parameter"}


def program_text(text: str) -> ModuleOp:
    """Parse a method in short form, or a whole module."""
    return parse_module(text) if "func.func" in text else _Method(text).module()


def long_types(text: str) -> str:
    """Write the short types of a text as MLIR's."""
    return _SHORT.sub(_long, _INTEGER.sub(r'!stepwell.int<"\1">', text))


def _long(match: re.Match[str]) -> str:
    """`f32[2, s0]` is `tensor<2x?xf32, …>`; `i8<0.5:3>[4]` and `i8<-7:7; 0.5>[4]` are quantized."""
    element, sizes = match.groups()
    if numbers := _NUMBERS.fullmatch(element):
        limits, _, scales = numbers[2][1:-1].rpartition(";")
        storage = f"{numbers[1]}<{limits}>" if limits else numbers[1]
        comma = "" if scales.strip().startswith(":") else ", "
        element = f"!quant.uniform<{storage}:f32{comma}{scales.strip()}>"
    listed = [size.strip() for size in sizes.split(",")] if sizes else []
    shape = "".join(f"{size if size.isdigit() else '?'}x" for size in listed)
    named = [size if size.isdigit() else f'"{size}"' for size in listed]
    symbolic = any(not size.isdigit() and size != "?" for size in listed)
    encoding = f", #stepwell.shape<[{', '.join(named)}]>" if symbolic else ""
    return f"tensor<{shape}{element}{encoding}>"


def statements(text: str) -> Iterator[str]:
    """Yield the statements of a text; brackets that are open join lines."""
    held, depth, quoted = "", 0, False
    for character in re.sub(r"(?m)^\s*#.*$", "", textwrap.dedent(text)):
        quoted ^= character == '"'
        if not quoted:
            depth += (character in "([{") - (character in ")]}")
        if character in ";\n" and not depth and not quoted and not _in_angles(held):
            if held.strip():
                yield held.strip()
            held = ""
        else:
            held += character
    if held.strip():
        yield held.strip()


def _in_angles(text: str) -> bool:
    """Whether a `<` is open, as in `i8<-7:7; 0.5>`."""
    return text.replace("->", "").count("<") > text.replace("->", "").count(">")


class _Method:
    """Builds a method from statements in order."""

    def __init__(self, text: str) -> None:
        self.block, self.values = Block(), dict[str, SSAValue]()
        self.returned: Sequence[SSAValue] | None = None
        for statement in statements(text):
            self.statement(_DECLARED.sub(self.declared, statement))

    def module(self) -> ModuleOp:
        """The module with the method `@forward`."""
        last = self.block.last_op
        if self.returned is None:
            assert last is not None, "a method without statements"
            self.returned = last.results
        self.block.add_op(ReturnOp(*self.returned))
        types = (
            [argument.type for argument in self.block.args],
            [value.type for value in self.returned],
        )
        return ModuleOp([FuncOp("forward", types, Region(self.block))])

    def declared(self, match: re.Match[str]) -> str:
        """Add the argument or weight of `%x: type`, and leave `%x`."""
        name, kind, key, type_ = match.groups()
        assert name not in self.values, f"%{name} is declared twice"
        if type_.startswith("int<"):
            sized = self.block.insert_arg(self.type(f"f32[{type_[4:-1]}]"), len(self.block.args))
            size = self.op("aten.sym_size.int").make({"self": sized, "dim": 0}, None)
            self.block.add_op(size)
            value: SSAValue = size.results[0]
        elif kind is None:
            value = self.block.insert_arg(self.type(type_), len(self.block.args))
        else:
            entry = (key or name, self.type(type_))
            op = StateOp(*entry) if kind == "state" else WeightOp(*entry, _KINDS.get(kind, kind))
            self.block.add_op(op)
            value = op.result
        value.name_hint = name
        self.values[name] = value
        return f"%{name}"

    def statement(self, text: str) -> None:
        """Add an op, or note what is returned."""
        if re.fullmatch(r"%\w+(, %\w+)*", text):
            return  # It only declares.
        if text.startswith("return "):
            self.returned = [self.values[name.strip(" %")] for name in text[7:].split(",")]
            return
        match = _CALL.match(text)
        op = self.call(match) if match else None
        if op is not None:
            self.block.add_op(op)
            return
        parser = TextParser(TextContext(), long_types(text))
        parser.ssa_values = {name: (value,) for name, value in self.values.items()}
        op = parser.parse_operation()
        self.block.add_op(op)
        self.named(re.findall(r"%(\w+)", text.partition(" = ")[0]) if op.results else [], op)

    def named(self, names: Sequence[str], op: Operation) -> None:
        """Note the names of an op's results."""
        for name, value in zip(names, op.results, strict=True):
            value.name_hint = name
            self.values[name] = value

    def call(self, match: re.Match[str]) -> Operation | None:
        """Create the op of a call; None for MLIR, which states the types of operands."""
        terms = Terms(match["rest"])
        try:
            arguments = list(terms.until(")"))
        except Exception:
            if " : (" in match["rest"]:
                return None
            raise
        rest = terms.rest()
        if rest and not rest.startswith("->"):
            return None
        known = self.op(match["op"])
        given = dict(self.arguments(known, arguments))
        types = self.types(rest.removeprefix("->")) if rest else None
        if types is None and known.cls is DequantizeCast:
            type_ = given["input"].type
            types = [tensor(dims(type_), quantization(type_).expressed)]
        op = known.make(given, types)
        self.named(re.findall(r"%(\w+)", match["results"] or ""), op)
        return op

    def op(self, name: str) -> OperatorReader:
        """The parameters of an op."""
        cls = op_named(name)
        assert cls is not None, f"there is no op {name}"
        return operator_of(cls)

    def arguments(
        self, known: OperatorReader, given: Sequence[tuple[str | None, Any]]
    ) -> Iterator[Any]:
        """Yield the name and the value of each argument."""
        positional = [parameter.name for parameter in known.parameters if not parameter.by_name]
        for index, (name, term) in enumerate(given):
            key, value = name or positional[index], self.value(term)
            parameter = known.by_name[key]
            if isinstance(value, list) and parameter.is_value and not parameter.is_list:
                self.block.add_op(sizes := const_shape(value))
                value = sizes.results[0]
            yield key, value

    def value(self, term: Any) -> Any:
        """The value of a term."""
        if isinstance(term, ValueName):
            return self.values[term.name]
        return [self.value(item) for item in term] if isinstance(term, list) else term

    def type(self, text: str) -> Attribute:
        """A type, short or MLIR's."""
        (found,) = self.types(text)
        return found

    def types(self, text: str) -> list[Attribute]:
        """One type, or several in brackets."""
        parser = TextParser(TextContext(), long_types(text.strip()))
        if not text.strip().startswith("("):
            return [parser.parse_type()]
        return parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
