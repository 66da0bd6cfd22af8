"""The textual format of modules: `parse_module(to_text(module))` is structurally equal to `module`.

The text is MLIR. It is small because weights are keys; `ir/syntax/storage.py` writes the tensors to
a second file. Parsing executes nothing: names resolve to op classes of registered dialects, and to
operators that are registered in torch already.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects import get_all_dialects
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.ir import Attribute, Dialect, Operation
from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Input, Span

from stepwell.ir.core import Stepwell
from stepwell.ir.diagnostics import ParseFailure, StepwellError
from stepwell.ir.options import nearest
from stepwell.ir.syntax.parser import TextParser
from stepwell.ir.syntax.printer import TextPrinter

OpFinder = Callable[[str], type[Operation] | None]
_DIALECTS: dict[str, Callable[[], Dialect]] = {
    "builtin": lambda: Builtin,
    "func": lambda: Func,
    "stepwell": lambda: Stepwell,
}
_BUILT_IN = len(_DIALECTS)
_FINDERS: list[OpFinder] = []


def register_dialect(name: str, load: Callable[[], Dialect]) -> None:
    """Register a dialect; `load` is called when the parser first meets its name."""
    if name in _DIALECTS:
        raise StepwellError(f"dialect {name!r} is registered twice")
    _DIALECTS[name] = load


def is_registered(name: str) -> bool:
    """Whether a dialect of this name is registered."""
    return name in _DIALECTS


def dialect_named(name: str) -> Dialect | None:
    """Load a registered dialect; return None for an unknown name."""
    load = _DIALECTS.get(name)
    return None if load is None else load()


_MORE: list[Callable[[], None]] = []


def ask_for_more(load: Callable[[], None]) -> None:
    """Register a function that is called for an unknown name and may register more dialects."""
    if load not in _MORE:
        _MORE.append(load)


def register_op_finder(find: OpFinder) -> OpFinder:
    """Register a function that creates op classes on demand; it returns None for other names."""
    _FINDERS.append(find)
    return find


@dataclass
class TextContext(Context):
    """The resolution of names while parsing: registered dialects first, then the op finders."""

    _registered_dialects: dict[str, Callable[[], Dialect]] = field(
        default_factory=lambda: dict(_DIALECTS)
    )

    def get_optional_op(
        self, name: str, *, dialect_stack: Sequence[str] = ()
    ) -> type[Operation] | None:
        """Return the class of an op, created on demand if a finder knows it."""
        if (op := self._get_known_op(name)) is not None:
            return op
        for find in _FINDERS:
            if (op := find(name)) is not None:
                self._loaded_ops[name] = op
                return op
        self._ask_for(name)
        return super().get_optional_op(name, dialect_stack=dialect_stack)

    def get_optional_attr(self, name: str) -> type[Attribute] | None:
        """Return the class of an attribute or type."""
        self._ask_for(name)
        return super().get_optional_attr(name)

    def _ask_for(self, name: str) -> None:
        """Load more dialects if the dialect of a name is unknown."""
        dialect = name.partition(".")[0]
        if "." in name and dialect not in self._registered_dialects:
            for load in _MORE:
                load()
            found = _DIALECTS.get(dialect) or get_all_dialects().get(dialect)
            if found is not None:
                self._registered_dialects[dialect] = found


def to_text(module: Operation, *, locations: bool = False, generic: bool = False) -> str:
    """Print a module (or any op) as MLIR text.

    Args:
        module: the op to print.
        locations: also print the location of each op: `loc("conv_1"("blocks.0"("m.py":12:0)))`.
        generic: print every op in the generic form, which `mlir-opt --allow-unregistered-dialect`
            reads.
    """
    printer = TextPrinter(locations=locations, generic=generic)
    printer.print_op(module)
    return printer.text()


def parse_module(
    text: str,
    *,
    name: str = "<text>",
    allow_unregistered: bool = False,
    locate: bool = False,
    others: Mapping[str, Callable[[], Dialect]] | None = None,
) -> ModuleOp:
    """Parse a module.

    Args:
        text: the output of `to_text` in any of its forms, or MLIR written by hand.
        name: the name of the file, for messages.
        allow_unregistered: accept unknown ops, types and attributes as opaque ones.
        locate: set the location of an op without one to its place in this text, as mlir-opt does.
        others: more dialects by name, for this text only.

    Raises:
        ParseFailure: with line and column.
    """
    parser: TextParser | None = None
    try:
        context = TextContext(allow_unregistered)
        context._registered_dialects = {**(others or {}), **_DIALECTS}
        parser = TextParser(context, text, name, locate=locate)
        return parser.parse_module()
    except StepwellError as error:
        raise _failure(parser, error.problems[0].fact, text, name, error.problems[0].help) from None
    except ParseError as error:
        unknown = error.msg.endswith("is not registered") and len(_DIALECTS) == _BUILT_IN
        help = "import stepwell.dialects, which registers them" if unknown else None
        help = help or _near(error.msg)
        raise ParseFailure(
            _sentence(error.msg), _place(error.span), help or _excerpt(error.span)
        ) from None
    except RecursionError:
        raise _failure(parser, "the text nests too deeply", text, name) from None
    except Exception as error:
        # For some malformed text xDSL raises whatever Python raised inside an attribute's
        # constructor (OverflowError, struct.error, AssertionError, …); all of it means an invalid
        # text.
        fact = str(error).strip() or type(error).__name__
        raise _failure(parser, _sentence(fact), text, name) from error


_NAMES: list[Callable[[str], Iterable[str]]] = []


def register_names(names: Callable[[str], Iterable[str]]) -> Callable[[str], Iterable[str]]:
    """Register a function that lists the op names of a dialect whose op classes a
    finder creates.
    """
    _NAMES.append(names)
    return names


def _near(message: str) -> str | None:
    """Return `did you mean 'aten.relu.default'?` for an op or dialect that is not registered, or
    how to register it.
    """
    match = re.match(r"(?:Operation |')([\w.$]+)'? is not registered", message)
    if match is None:
        return None
    dialect, dot, _ = match[1].partition(".")
    if not dot or dialect not in _DIALECTS:
        near = nearest(dialect, _DIALECTS)
    else:
        known = [op.name for op in _DIALECTS[dialect]().operations]
        known += [name for names in _NAMES for name in names(dialect)]
        near = nearest(match[1], known)
    return near.strip() or "--load FILE loads the file that defines it"


def _failure(
    parser: TextParser | None, fact: str, text: str, name: str, help: str | None = None
) -> ParseFailure:
    position = parser.pos if parser is not None else 0
    span = Span(position, min(position + 1, len(text)), Input(text, name))
    return ParseFailure(fact, _place(span), help or _excerpt(span))


def _place(span: Span[str] | Span[bytes]) -> str:
    at = span.get_location()
    return f"{at.file}:{at.line}:{at.col}"


def _sentence(message: str) -> str:
    lines = [line for line in message.splitlines() if line.strip()]
    first = lines[0].strip() if lines else message
    return first if len(first) <= 300 else f"{first[:200]} … {first[-60:]}"


def _excerpt(span: Span[str] | Span[bytes]) -> str | None:
    """Return the text around an error: up to 60 characters of its line."""
    content = span.input.content
    assert isinstance(content, str)
    start = max(span.input.get_start_of_line(span.start), span.start - 30)
    end = min(span.input.get_end_of_line(span.start), span.start + 30)
    shown = content[start:end].strip()
    return f"the text here is: {shown}" if shown else None


def structurally_equal(left: Operation, right: Operation, *, locations: bool = False) -> bool:
    """Whether two modules are equal up to the names of values.

    Ops, operands, types, properties, attributes and regions are compared, floats by their bits.
    Locations are compared only with `locations`.
    """
    if not left.is_structurally_equivalent(right):
        return False
    if not locations:
        return True
    pairs = zip(left.walk(), right.walk(), strict=True)
    return all(a.location == b.location for a, b in pairs)
