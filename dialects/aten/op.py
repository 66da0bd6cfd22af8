"""`SchemaOp`: the base class of all ops with a PyTorch schema.

Tensor arguments are operands (`Tensor?` optional, `Tensor[]` variadic). All other arguments are
properties named as in the schema; a missing property is an omitted argument. Numbers that are
computed at run time are operands of the last group, `dynamic`. The textual form follows the
schema's order:

    %y = aten.conv2d.default(%x, %w, %b, [2, 2], [3, 3], groups=4) : (…) -> tensor<…>
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Self, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    ComplexType,
    DenseArrayBase,
    IntegerType,
    StringAttr,
    i32,
)
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.aten.attributes import (
    MEMORY_FORMATS,
    NoneArg,
    attribute,
    count_dynamic,
    in_place,
    python_value,
    scalar_type,
)
from stepwell.dialects.aten.call import (
    EXPLICIT_NONE,
    KEYWORDS_FROM,
    SEGMENTS,
    CallOp,
    call_layout,
)
from stepwell.dialects.aten.parsing import parse_call
from stepwell.dialects.aten.schema import Argument
from stepwell.dialects.aten.text import spell
from stepwell.ir.axes.maps import HasAxes
from stepwell.ir.compat.xdsl.xdsl_private import create, operands_of, state_results
from stepwell.ir.declared.families import Family, HasFamilies
from stepwell.ir.declared.inference import infer
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.syntax.printer import TextPrinter
from stepwell.ir.types import element
from stepwell.ir.verification_cache import Verifies

_CONJUGATE = frozenset(("aten.adjoint.default", "aten.matrix_H.default"))


class SchemaOp(Verifies, HasAxes, HasFamilies, CallOp):
    """An op whose operands, properties and results follow `SCHEMA`."""

    def does_as_family(self, family: Family) -> bool:
        """Whether the op behaves as its family: not for dropout in training, or `adjoint` of
        complex numbers.
        """
        if "train" in self.SCHEMA.by_name:
            return (self.arg("train") is not False) == (family == "random")
        if self.name in _CONJUGATE:
            return not isinstance(element(self.operands[0].type), ComplexType)
        return True

    # -- reading -----------------------------------------------------------------------------

    def group_sizes(self) -> tuple[int, ...]:
        """Return the operand count of each tensor argument, then of `dynamic`."""
        if self.HAS_SEGMENTS:
            sizes = self.properties.get(SEGMENTS)
            if not isinstance(sizes, DenseArrayBase):
                raise VerifyException(f"{SEGMENTS} is missing")
            data = sizes.data.data
            found = _SIZES_CACHE.get(data)
            if found is None:
                values = cast(DenseArrayBase[IntegerType], sizes).get_values()
                found = _SIZES_CACHE[data] = tuple(values)
            return found
        return _implied_sizes(type(self), len(operands_of(self)))

    def present(self) -> dict[str, Any]:
        """Return the arguments that were passed, by schema name, as Python and SSA values.

        Tensor lists are lists of values (None for an absent optional element), dtypes are element
        types, everything else is the plain Python value.
        """
        sizes = self.group_sizes()
        operands = operands_of(self)
        has_dynamic = self.SCHEMA.takes_runtime_scalars
        dynamic = iter(operands[len(operands) - sizes[-1] :]) if has_dynamic else iter(())
        found: dict[str, Any] = {}
        offset = group = 0
        nones = self._explicit_none()
        for argument in self.SCHEMA.arguments:
            if argument.type.is_tensor:
                size = sizes[group]
                values = operands[offset : offset + size]
                offset, group = offset + size, group + 1
                if argument.type.is_list:
                    found[argument.name] = self._tensor_list(argument, values)
                elif size:
                    found[argument.name] = values[0]
                elif argument.name in nones:
                    found[argument.name] = None
            elif (attr := self.properties.get(argument.name)) is not None:
                found[argument.name] = python_value(attr, dynamic)
        return found

    def _explicit_none(self) -> tuple[str, ...]:
        attr = self.attributes.get(EXPLICIT_NONE)
        if isinstance(attr, ArrayAttr):
            return tuple(cast(StringAttr, item).data for item in attr.data)
        return ()

    def _tensor_list(
        self, argument: Argument, values: Sequence[SSAValue]
    ) -> list[SSAValue | None] | None:
        mask = self.properties.get(f"{argument.name}_present")
        if isinstance(mask, NoneArg):
            return None
        if isinstance(mask, ArrayAttr):
            rest = iter(values)
            return [
                next(rest) if cast(BoolAttr, item).value.data else None
                for item in cast(ArrayAttr[Attribute], mask).data
            ]
        return list(values)

    def arg(self, name: str) -> Any:
        """Return an argument or its default; lists of fixed size are expanded."""
        readers = _READERS.get(type(self))
        return (_readers(type(self)) if readers is None else readers)[name](self)

    def operand(self, name: str) -> SSAValue | None:
        """Return a tensor argument as an SSA value, or None if it was omitted or None."""
        argument = self.SCHEMA.by_name.get(name)
        if argument is None:
            return None
        if argument.type.is_tensor:
            values = () if argument.type.is_list else self._group(argument)
            return values[0] if values else None
        value = self.present().get(name)
        return value if isinstance(value, SSAValue) else None

    def _group(self, argument: Argument) -> Sequence[SSAValue]:
        """Return the operands of one tensor argument."""
        sizes = self.group_sizes()
        at = _group_numbers(type(self))[argument.name]
        offset = sum(sizes[:at])
        return operands_of(self)[offset : offset + sizes[at]]

    def _default(self, argument: Argument) -> Any:
        if argument.default or argument.type.nullable:
            return stated_default(argument)
        raise StepwellError(f"{self.name}: argument {argument.name} is missing")

    def bind(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and keyword arguments as in the program's call."""
        found = self.present()
        marker = self.attributes.get(KEYWORDS_FROM)
        first_keyword = marker.data if isinstance(marker, StringAttr) else None
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for name, manner in call_layout(self.SCHEMA.arguments, found, first_keyword).items():
            if manner == "name":
                keywords[name] = found[name]
            else:
                positional.append(found.get(name))
        return positional, keywords

    # -- building ----------------------------------------------------------------------------

    @classmethod
    def make(
        cls, *args: Any, result_types: Sequence[Attribute] | None = None, **kwargs: Any
    ) -> Self:
        """Create an op from Python and SSA values, like a call of the operator.

        Args:
            args, kwargs: schema arguments; tensors are SSA values (or ops with one result).
            result_types: the result types; inferred from the operands if None.

        Raises:
            StepwellError: an argument is missing, unknown, or of the wrong kind.
        """
        positional = _positional(cls)
        if len(args) > len(positional):
            raise StepwellError(
                f"{cls.name}: {len(args)} positional arguments, the limit is {len(positional)}"
            )
        given = dict(zip(positional, args, strict=False))
        for name, value in kwargs.items():
            if name not in cls.SCHEMA.by_name or name in given:
                raise StepwellError(f"{cls.name}: argument {name!r} is unknown or was passed twice")
            given[name] = value
        return cls.from_arguments(given, result_types)

    @classmethod
    def from_arguments(
        cls, given: dict[str, Any], result_types: Sequence[Attribute] | None = None
    ) -> Self:
        """Create an op from a dictionary of schema arguments; omitted ones keep their default."""
        operands: list[SSAValue] = []
        sizes: list[int] = []
        properties: dict[str, Attribute] = {}
        dynamic: list[SSAValue] = []
        for argument in cls.SCHEMA.arguments:
            if argument.name not in given:
                if argument.type.is_tensor:
                    if not argument.type.nullable and not argument.type.is_list:
                        raise StepwellError(f"{cls.name}: tensor {argument.name} is missing")
                    sizes.append(0)
                elif not argument.default:
                    raise StepwellError(f"{cls.name}: argument {argument.name} is missing")
                continue
            value = given[argument.name]
            if argument.type.is_tensor:
                before = len(operands)
                operands.extend(_tensor_values(cls.name, argument, value))
                sizes.append(len(operands) - before)
                if argument.type.is_list and (value is None or None in _identities(value)):
                    properties[f"{argument.name}_present"] = (
                        attribute(None)
                        if value is None
                        else ArrayAttr([BoolAttr.from_bool(v is not None) for v in value])
                    )
                continue
            if type(value) not in STATED:
                if isinstance(value, Operation):
                    value = value.results[0]
                _collect_dynamic(value, dynamic)
            properties[argument.name] = attribute(value, argument)
        if cls.SCHEMA.takes_runtime_scalars:
            sizes.append(len(dynamic))
            operands.extend(dynamic)
        elif dynamic:
            raise StepwellError(f"{cls.name}: takes no run-time scalars")
        if cls.HAS_SEGMENTS:
            properties[SEGMENTS] = segments(tuple(sizes))
        if result_types is not None:
            return create(cls, operands, result_types, properties)
        return cls._inferred(operands, properties)

    @classmethod
    def _inferred(cls, operands: list[SSAValue], properties: dict[str, Attribute]) -> Self:
        op = create(cls, operands, (), properties)
        types = None
        try:
            types = infer(op)
        finally:
            if types is None:
                op.erase()
        if types is None:
            raise StepwellError(f"{cls.name}: result types cannot be inferred; state them")
        state_results(op, types)
        return op

    # -- text --------------------------------------------------------------------------------

    def pretty_text(self, printer: TextPrinter) -> str | None:
        """Print the op as the call of its operator; None if it does not follow its schema."""
        return spell(self, printer)

    def print(self, printer: Printer) -> None:
        """Print the op as the call of its operator, with a printer of xDSL."""
        text = self.pretty_text(TextPrinter.sharing_names(printer))
        if text is None:
            printer.print_op_with_default_format(self)
        else:
            printer.print_string(text.removeprefix(self.name))

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Parse the textual form that `pretty_text` prints."""
        return parse_call(cls, parser)

    # -- checking ----------------------------------------------------------------------------

    def verify_(self) -> None:
        """Check the kinds of arguments, and `#aten.dyn`s against the `dynamic` group."""
        schema = self.SCHEMA
        known = {a.name for a in schema.arguments if not a.type.is_tensor}
        needed = 0
        for name, attr in self.properties.items():
            if name == SEGMENTS or name.endswith("_present"):
                continue
            if name not in known:
                raise VerifyException(f"{self.name}: no argument {name!r} in {schema.text}")
            needed += count_dynamic(attr)
        for argument in schema.arguments:
            if argument.type.is_tensor:
                continue
            attr = self.properties.get(argument.name)
            if attr is None:
                if not argument.default:
                    raise VerifyException(f"{self.name}: argument {argument.name} is missing")
            elif reason := kind_mismatch(attr, argument):
                raise VerifyException(f"{self.name}: argument {argument.name}: {reason}")
        have = self.group_sizes()[-1] if schema.takes_runtime_scalars else 0
        if needed != have:
            raise VerifyException(
                f"{self.name}: {needed} arguments are dynamic, there are {have} dynamic operands"
            )


def stated_default(argument: Argument) -> Any:
    """Return the value of an omitted argument; None if the schema has no default."""
    if not argument.default:
        return None
    value = argument.default[0]
    if argument.type.base == "ScalarType":
        return scalar_type(value)
    if argument.type.base == "MemoryFormat" and isinstance(value, int):
        return MEMORY_FORMATS[value]
    return value


Reader = Callable[[SchemaOp], Any]
_READERS: dict[type[SchemaOp], dict[str, Reader]] = {}


def _readers(cls: type[SchemaOp]) -> dict[str, Reader]:
    """Build, for each argument of an op class, the function that reads it from an op."""
    readers = {a.name: _reader(cls, a) for a in cls.SCHEMA.arguments}
    return _READERS.setdefault(cls, readers)


def _reader(cls: type[SchemaOp], argument: Argument) -> Reader:
    name, is_list = argument.name, argument.type.is_list
    if argument.type.is_tensor:
        at = _group_numbers(cls)[name]
        leading = cls.SCHEMA.tensor_arguments[: at + 1]
        if not cls.HAS_SEGMENTS and not any(a.type.is_list or a.type.nullable for a in leading):
            return lambda op: operands_of(op)[at]
        if is_list:
            return lambda op: op._tensor_list(argument, op._group(argument))

        def tensor(op: SchemaOp) -> Any:
            values = op._group(argument)
            return values[0] if values else op._default(argument)

        return tensor
    takes_dynamic = cls.SCHEMA.takes_runtime_scalars
    expands = bool(is_list and argument.type.size)

    def number(op: SchemaOp) -> Any:
        attr = op.properties.get(name)
        if attr is None:
            return op._default(argument)
        read = in_place(attr)
        if read is not None:
            value = read(attr)
        elif takes_dynamic and op.group_sizes()[-1] > 0:
            value = op.present()[name]
        else:
            value = python_value(attr, _NOTHING)
        return _expand(value, argument) if expands else value

    return number


_NOTHING: Iterator[SSAValue] = iter(())


@cache
def _positional(cls: type[SchemaOp]) -> tuple[str, ...]:
    """Return the names of the arguments that may be passed by position."""
    return tuple(a.name for a in cls.SCHEMA.arguments if not a.keyword_only)


@cache
def _group_numbers(cls: type[SchemaOp]) -> dict[str, int]:
    """Return the index of the operand group of each tensor argument."""
    return {a.name: number for number, a in enumerate(cls.SCHEMA.tensor_arguments)}


@cache
def _implied_sizes(cls: type[SchemaOp], total: int) -> tuple[int, ...]:
    """Compute the sizes of operand groups of which at most one varies."""
    sizes: list[int] = []
    for argument in cls.SCHEMA.tensor_arguments:
        variadic = argument.type.is_list or argument.type.nullable
        sizes.append(-1 if variadic else 1)
    if cls.SCHEMA.takes_runtime_scalars:
        sizes.append(-1)
    rest = total - sum(size for size in sizes if size > 0)
    return tuple(rest if size < 0 else size for size in sizes)


_SIZES_CACHE: dict[bytes, tuple[int, ...]] = {}
_SEGMENT_CACHE: dict[tuple[int, ...], DenseArrayBase] = {}


def segments(sizes: tuple[int, ...]) -> DenseArrayBase:
    """Return the interned `operandSegmentSizes`."""
    found = _SEGMENT_CACHE.get(sizes)
    if found is None:
        found = _SEGMENT_CACHE[sizes] = DenseArrayBase.from_list(i32, sizes)
    return found


def _identities(values: Any) -> list[Any]:
    return [None if value is None else True for value in values]


def _tensor_values(name: str, argument: Argument, value: Any) -> Iterator[SSAValue]:
    items = [value] if not argument.type.is_list or value is None else value
    for item in items:
        if isinstance(item, OpResult):
            yield item
            continue
        if isinstance(item, Operation):
            item = item.results[0]
        if item is None and (argument.type.nullable or argument.type.element_nullable):
            continue
        if not isinstance(item, SSAValue):
            raise StepwellError(f"{name}: argument {argument.name} must be a value, not {item!r}")
        yield item


STATED = frozenset((int, float, bool, str, type(None)))
"""Types of arguments without dynamic values; this check is the fastest."""


def _collect_dynamic(value: Any, into: list[SSAValue]) -> None:
    if isinstance(value, list | tuple):
        for item in cast(Sequence[Any], value):
            if type(item) not in STATED:
                _collect_dynamic(item, into)
    elif isinstance(value, SSAValue):
        into.append(value)


def _expand(value: Any, argument: Argument) -> Any:
    """Expand `2` for an `int[2]` to `[2, 2]`, as torch does."""
    size = argument.type.size
    if argument.type.is_list and size:
        if isinstance(value, int) and not isinstance(value, bool):
            return [value] * size
        if isinstance(value, list) and len(cast(list[Any], value)) == 1:
            return cast(list[Any], value) * size
    return value


_EXPECTED: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "SymInt": (int,),
    "DeviceIndex": (int,),
    "float": (float, int),
    "bool": (bool, int),
    "SymBool": (bool,),
    "Scalar": (int, float, bool, complex),
    "complex": (int, float, complex),
    "str": (str,),
    "Layout": (str,),
    "Device": (str,),
    "MemoryFormat": (str,),
}


def kind_mismatch(attr: Attribute, argument: Argument) -> str | None:
    """Return why an attribute cannot be a value of an argument's type, or None."""
    value = python_value(attr, _placeholders())
    if value is None:
        return None if argument.type.nullable else "None is not allowed"
    if argument.type.base in ("Generator", "Stream"):
        return "a program cannot contain generators and streams"
    items = cast(list[Any], value) if isinstance(value, list) else [value]
    if isinstance(value, list) and not argument.type.is_list:
        return f"a list is not of type {argument.type}"
    for item in items:
        if item is _PLACEHOLDER:
            continue
        if argument.type.base == "ScalarType":
            if not isinstance(item, Attribute):
                return f"{item!r} is not a dtype"
        elif not isinstance(item, _EXPECTED[argument.type.base]):
            return f"{item!r} is not of kind {argument.type}"
    return None


_PLACEHOLDER: Any = object()


def _placeholders() -> Iterator[Any]:
    while True:
        yield _PLACEHOLDER
