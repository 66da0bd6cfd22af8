"""Types and attributes that every level uses.

The encoding of a tensor type with a dynamic shape contains its symbolic dimensions:
`tensor<?x197xf32, #stepwell.shape<["s77", 197]>>`. Two tensors have the same type exactly if their
shapes are provably the same expression; a `?` without an expression is unknown. The type of a
scalar that is computed at run time contains its expression likewise: `!stepwell.int<"s77 * 2">`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, IntAttr, NoneAttr, TensorType
from xdsl.ir import Attribute, Data, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import element_type, is_float
from stepwell.ir.identity_cache import once_each
from stepwell.ir.sizes.size import UNKNOWN, Dim, Size, settled
from stepwell.ir.sizes.size_ranges import Ranges, holds
from stepwell.ir.sizes.size_text import dim_of

AnyTensor = TensorType[Attribute]


def _print_quoted(printer: Printer, text: str) -> None:
    printer.print_string_literal(text)


@irdl_attr_definition
class ShapeAttr(Data[tuple[Dim, ...]]):
    """`#stepwell.shape<["s77", 197]>`: dimensions; symbolic ones are strings in the text."""

    name = "stepwell.shape"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Dim, ...]:
        """Parse the dimensions, such as `<["s0", 4]>`."""
        with parser.in_angle_brackets():
            return tuple(
                parser.parse_comma_separated_list(
                    parser.Delimiter.SQUARE,
                    lambda: (
                        dim_of(text)
                        if (text := parser.parse_optional_str_literal()) is not None
                        else parser.parse_integer(allow_boolean=False)
                    ),
                )
            )

    def print_parameter(self, printer: Printer) -> None:
        """Print the dimensions, such as `<["s0", 4]>`."""
        with printer.in_angle_brackets():
            printer.print_string("[")
            for index, dim in enumerate(self.data):
                if index:
                    printer.print_string(", ")
                if isinstance(dim, Size):
                    _print_quoted(printer, str(dim))
                else:
                    printer.print_string(str(dim))
            printer.print_string("]")


class _TextAttr(Data[str]):
    """An attribute or type with a string as its only parameter."""

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        """Parse the parameter, a quoted string: `<"text">`."""
        with parser.in_angle_brackets():
            return parser.parse_str_literal()

    def print_parameter(self, printer: Printer) -> None:
        """Print the parameter, a quoted string: `<"text">`."""
        with printer.in_angle_brackets():
            _print_quoted(printer, self.data)


@irdl_attr_definition
class WeightAttr(_TextAttr):
    """`#stepwell.weight<"blocks.0.attn.qkv.weight">`: a key of the program's weight store."""

    name = "stepwell.weight"


@irdl_attr_definition
class IntType(_TextAttr, TypeAttribute):
    """`!stepwell.int<"s77">`: an integer known at run time, with its symbolic expression."""

    name = "stepwell.int"

    @property
    def size(self) -> Dim:
        """Return the integer as a size."""
        return dim_of(self.data)


@irdl_attr_definition
class FloatType(_TextAttr, TypeAttribute):
    """`!stepwell.float<"...">`: a float known at run time."""

    name = "stepwell.float"


@irdl_attr_definition
class BoolType(_TextAttr, TypeAttribute):
    """`!stepwell.bool<"s77 > 4">`: a truth value known at run time."""

    name = "stepwell.bool"


@irdl_attr_definition
class NoneType(ParametrizedAttribute, TypeAttribute):
    """`!stepwell.none`: a result that is None."""

    name = "stepwell.none"


ScalarType = IntType | FloatType | BoolType

_interned: dict[tuple[tuple[Dim | str, ...], Attribute], AnyTensor] = {}
_NO_ENCODING = NoneAttr()


def tensor(shape: Sequence[Dim | str], element: Attribute) -> AnyTensor:
    """Return the tensor type of a shape and element type, interned (creating one takes 7 µs).

    Symbolic dimensions, given as sizes or as their text, become `?`; the encoding keeps the
    expression.
    """
    key = (tuple(shape), element)
    tensor_type = _interned.get(key)
    if tensor_type is None:
        stated = tuple(dim_of(d) if isinstance(d, str) else settled(d) for d in key[0])
        dims = [DYNAMIC_INDEX if isinstance(d, Size) else d for d in stated]
        encoding = ShapeAttr(stated) if DYNAMIC_INDEX in dims else _NO_ENCODING
        array = ArrayAttr([IntAttr(d) for d in dims])
        tensor_type = _interned[key] = TensorType(element, array, encoding)
    return tensor_type


def tensor_like(torch_tensor: object) -> AnyTensor:
    """Return the type of a concrete torch tensor."""
    shape = cast(Sequence[int], getattr(torch_tensor, "shape"))  # noqa: B009
    return tensor([int(d) for d in shape], element_type(getattr(torch_tensor, "dtype")))  # noqa: B009


@once_each
def dims(type_: Attribute) -> tuple[Dim, ...]:
    """Return the dimensions of a tensor type, symbolic ones as sizes (a bare `?` is `UNKNOWN`)."""
    if not isinstance(type_, TensorType):
        raise StepwellError(f"the type is {type_}, must be a tensor type")
    encoding: Attribute = type_.encoding
    if isinstance(encoding, ShapeAttr):
        return encoding.data
    return tuple(UNKNOWN if d == DYNAMIC_INDEX else d for d in type_.get_shape())


def symbols_of(types: Iterable[Attribute]) -> frozenset[str]:
    """Return the symbols in the sizes of those types that are tensor types."""
    sizes = (size for type_ in types if isinstance(type_, TensorType) for size in dims(type_))
    return frozenset(name for size in sizes if isinstance(size, Size) for name in size.symbols)


def element(type_: Attribute) -> Attribute:
    """Return the element type of a tensor type."""
    if not isinstance(type_, TensorType):
        raise StepwellError(f"the type is {type_}, must be a tensor type")
    return type_.element_type  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def has_floats(type_: Attribute) -> bool:
    """Whether a type is that of a tensor of floats."""
    return isinstance(type_, TensorType) and is_float(element(type_))


@once_each
def element_name(type_: Attribute) -> str:
    """Return the text of the element type of a tensor type, such as `f32`."""
    return str(element(type_))


@once_each
def is_static(type_: Attribute) -> bool:
    """Whether every dimension is a number."""
    return all(isinstance(d, int) for d in dims(type_))


def are_same_within(one: Attribute, other: Attribute, ranges: Ranges) -> bool:
    """Whether two tensor types are equal for all values of the symbols within their ranges."""
    if one == other:
        return True
    if not isinstance(one, TensorType) or not isinstance(other, TensorType):
        return False
    ours, theirs = dims(one), dims(other)
    if len(ours) != len(theirs) or element(one) != element(other):
        return False
    return all(
        a == b or (UNKNOWN not in (a, b) and holds("==", Size.of(a) - b, ranges))
        for a, b in zip(ours, theirs, strict=True)
    )


@once_each
def is_known(type_: Attribute) -> bool:
    """Whether every dimension is a number or an expression, none a bare `?`."""
    return not any(d == UNKNOWN for d in dims(type_) if not isinstance(d, int))


def with_element(type_: Attribute, new_element: Attribute) -> AnyTensor:
    """Return the type of the same shape with another element type."""
    return tensor(dims(type_), new_element)


def check_encoding(type_: AnyTensor) -> str | None:
    """Return why a tensor type's encoding contradicts its shape, or None."""
    encoding: Attribute = type_.encoding
    shape = type_.get_shape()
    if isinstance(encoding, ShapeAttr):
        agrees = len(encoding.data) == len(shape) and all(
            (d == DYNAMIC_INDEX) if isinstance(e, Size) else d == e
            for d, e in zip(shape, encoding.data, strict=True)
        )
        return None if agrees else f"{type_}: the encoding does not match the shape"
    return None
