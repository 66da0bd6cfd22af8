"""Operator schemas: PyTorch's declaration strings, parsed without torch.

    aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, ...) -> Tensor

The grammar is that of `native_functions.yaml` and `torch.library` (PyTorch,
aten/src/ATen/native/README.md): alias annotations such as `Tensor(a!)` mark arguments that are
written to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from stepwell.ir.diagnostics import ParseFailure

Literal_ = int | float | bool | str | None | list[int] | list[float] | list[bool]

BaseKind = Literal[
    "Tensor",
    "int",
    "SymInt",
    "float",
    "bool",
    "Scalar",
    "str",
    "ScalarType",
    "Layout",
    "Device",
    "MemoryFormat",
    "Generator",
    "complex",
    "SymBool",
    "DeviceIndex",
    "Stream",
]
_KNOWN = frozenset(BaseKind.__args__)  # pyright: ignore
RUNTIME_KINDS = frozenset({"SymInt", "int", "float", "Scalar", "bool", "SymBool"})
"""Kinds of arguments that may be computed at run time."""

_PYTHON_WORDS = frozenset(
    "self name parent operands results regions attributes properties location successors arg "
    "schema from is in print dim_order traits lambda".split()
) - {"arg", "dim_order"}


@dataclass(frozen=True)
class Type:
    """The type of an argument: `SymInt[2]?` has base `SymInt`, is a list of size 2, and
    nullable.
    """

    base: str
    is_list: bool = False
    size: int | None = None
    nullable: bool = False
    element_nullable: bool = False

    @cached_property
    def is_tensor(self) -> bool:
        """Whether values of this type are SSA operands."""
        return self.base == "Tensor"

    def __str__(self) -> str:
        text = self.base + ("?" if self.element_nullable else "")
        if self.is_list:
            text += f"[{self.size if self.size is not None else ''}]"
        return text + ("?" if self.nullable else "")


@dataclass(frozen=True)
class Argument:
    """One parameter of a schema; `default` is a 1-tuple, empty if the argument is required."""

    name: str
    type: Type
    default: tuple[Literal_] | tuple[()]
    keyword_only: bool
    written: bool

    @property
    def field(self) -> str:
        """Return the Python attribute name of the argument on the op class."""
        return f"{self.name}_" if self.name in _PYTHON_WORDS else self.name


@dataclass(frozen=True)
class Return:
    """One declared result of an operator."""

    type: Type
    name: str | None
    aliases_input: bool


@dataclass(frozen=True)
class Schema:
    """A parsed declaration. `op_name` is the op's name in the IR: `aten.add.Tensor`."""

    namespace: str
    operator: str
    overload: str
    arguments: tuple[Argument, ...]
    returns: tuple[Return, ...]
    text: str

    @cached_property
    def op_name(self) -> str:
        """The overload's name in torch's notation: `aten.conv2d.default`."""
        return f"{self.namespace}.{self.operator}.{self.overload or 'default'}"

    @cached_property
    def is_mutable(self) -> bool:
        """Whether the operator writes to an argument."""
        return any(argument.written for argument in self.arguments)

    @cached_property
    def written(self) -> tuple[Argument, ...]:
        """Return the arguments that the operator writes; the op returns their new values after its
        other results.
        """
        return tuple(a for a in self.arguments if a.written)

    @cached_property
    def result_count(self) -> int:
        """The number of results of an op without lists: its returns, then the written arguments."""
        return len(self.returns) + len(self.written)

    @cached_property
    def tensor_arguments(self) -> tuple[Argument, ...]:
        """Return the arguments that are operands, in order."""
        return tuple(a for a in self.arguments if a.type.is_tensor)

    @cached_property
    def by_name(self) -> dict[str, Argument]:
        """Return the arguments by their schema name."""
        return {a.name: a for a in self.arguments}

    @cached_property
    def takes_runtime_scalars(self) -> bool:
        """Whether an argument may be a number that is computed at run time."""
        return any(a.type.base in RUNTIME_KINDS for a in self.arguments)


_HEAD = re.compile(r"^(?P<ns>\w+)::(?P<op>[\w]+)(?:\.(?P<overload>\w+))?\((?P<rest>.*)$", re.S)
_TYPE = re.compile(
    r"^(?P<base>\w+)(?:\((?P<alias>[^)]*)\))?(?P<enull>\?)?"
    r"(?:\((?P<alias2>[^)]*)\))?(?P<list>\[(?P<size>\d*)\])?(?P<null>\?)?$"
)


def parse_schema(text: str) -> Schema:
    """Parse the declaration of one ATen operator.

    Raises:
        ParseFailure: the text is not a schema, or uses a type that no op of a graph can have.
    """
    head = _HEAD.match(text.strip())
    if head is None:
        raise ParseFailure(f"not an operator schema: {text!r}")
    body, returned = _split_at_close(head["rest"], text)
    arguments: list[Argument] = []
    keyword_only = False
    for part in _split_commas(body):
        if part == "*":
            keyword_only = True
        else:
            arguments.append(_argument(part, keyword_only, text))
    return Schema(
        head["ns"], head["op"], head["overload"] or "", tuple(arguments), _returns(returned), text
    )


def _split_at_close(rest: str, text: str) -> tuple[str, str]:
    depth = 1
    for index, char in enumerate(rest):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            tail = rest[index + 1 :].strip()
            if not tail.startswith("->"):
                break
            return rest[:index], tail[2:].strip()
    raise ParseFailure(f"not an operator schema: {text!r}")


def _split_commas(body: str) -> list[str]:
    parts: list[str] = []
    depth, quote, current = 0, "", ""
    for char in body:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(current.strip())
            current = ""
            continue
        current += char
    if current.strip():
        parts.append(current.strip())
    return parts


def _type(text: str, schema: str) -> tuple[Type, str]:
    match = _TYPE.match(text)
    if match is None or match["base"] not in _KNOWN:
        raise ParseFailure(f"type {text!r} cannot occur in a graph", help=f"schema: {schema}")
    is_list = match["list"] is not None
    nullable = match["null"] is not None
    element_nullable = match["enull"] is not None
    if not is_list and element_nullable:
        nullable, element_nullable = True, False
    size = int(match["size"]) if match["size"] else None
    alias = match["alias"] or match["alias2"] or ""
    return Type(match["base"], is_list, size, nullable, element_nullable), alias


def _argument(part: str, keyword_only: bool, schema: str) -> Argument:
    declared, _, default = part.partition("=")
    type_text, _, name = declared.strip().rpartition(" ")
    type_, alias = _type(type_text.strip().replace(" ", ""), schema)
    value: tuple[Literal_] | tuple[()] = (_literal(default.strip(), type_),) if default else ()
    return Argument(name, type_, value, keyword_only, "!" in alias)


def _literal(text: str, type_: Type) -> Literal_:
    if text == "None":
        return None
    if text.startswith("["):
        return [_literal(item, Type(type_.base)) for item in _split_commas(text[1:-1])]  # pyright: ignore
    if text[:1] in "\"'":
        return text[1:-1]
    if text in ("True", "False"):
        return text == "True"
    value: Literal_
    try:
        value = int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            return text
    if type_.base == "float":
        value = float(value)
    if type_.is_list:
        return [value] * (type_.size or 1)  # pyright: ignore[reportReturnType]
    return value


def _returns(text: str) -> tuple[Return, ...]:
    inner = text[1:-1] if text.startswith("(") else text
    returns: list[Return] = []
    for part in _split_commas(inner):
        type_text, _, name = part.rpartition(" ")
        if not type_text or name.endswith(("]", ")", "?")) or name in _KNOWN:
            type_text, name = part, ""
        type_, alias = _type(type_text.replace(" ", ""), text)
        returns.append(Return(type_, name or None, bool(alias)))
    return tuple(returns)
