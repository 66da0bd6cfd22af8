"""The textual form of a `SchemaOp`: the call in the PyTorch program.

    %y = aten.conv2d.default(%x, %w, %b, [2, 2], [3, 3], groups=4) : (…) -> tensor<…>

Arguments are in schema order. Omitted arguments are missing. The form is `name=value` after a gap,
from the first argument that was passed by name on, and for keyword-only arguments. The types are
those of the operands in the op's order: tensors first, then dynamic numbers, which are inline like
any other value. Information that the call cannot express follows it: `<{properties}>`, then
`{attributes}`. An op that does not follow its schema is printed in the generic form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import cast

from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    ComplexType,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    NoneType,
    StringAttr,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute, SSAValue, TypeAttribute
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.aten.attributes import ComplexArg, Dynamic, NoneArg, count_dynamic
from stepwell.dialects.aten.call import (
    EXPLICIT_NONE,
    KEYWORDS_FROM,
    SEGMENTS,
    CallOp,
    Manner,
    call_layout,
    call_style,
)
from stepwell.dialects.aten.schema import Argument
from stepwell.ir.syntax.printer import TextPrinter, float_text

_NAN = FloatAttr(math.nan, f64)


class _NoPrettyForm(Exception):
    """Raised for an op that does not follow its schema: only the generic form can express it."""


class _NotCanonical(Exception):
    """Raised for a property that is not the attribute to which its argument's value converts."""


def spell(op: CallOp, printer: TextPrinter) -> str | None:
    """Format the call, or return None if the op does not follow its schema."""
    if op.regions or op.successors:
        return None
    try:
        values, nones, leftover = _values(op, printer)
    except (_NoPrettyForm, VerifyException):
        return None
    arguments = op.SCHEMA.arguments
    marker = op.attributes.get(KEYWORDS_FROM)
    layout = call_layout(arguments, values, marker.data if isinstance(marker, StringAttr) else None)
    call = ", ".join(
        values[name]
        if how == "position"
        else "none"
        if how == "filler"
        else f"{name}={values[name]}"
        for name, how in layout.items()
    )
    parts = [f"{op.name}({call})"]
    if leftover:
        parts.append(f" <{{{_dictionary(leftover, printer)}}}>")
    if op.attributes:
        written: dict[str, Manner] = {
            name: "name" if how == "name" else "position" for name, how in layout.items()
        }
        fillers = [name for name, how in layout.items() if how == "filler"]
        style = call_style(arguments, written, [*fillers, *nones])
        if any(name not in op.attributes for name in style):
            return None
        held = {name: a for name, a in op.attributes.items() if style.get(name) != a}
        if held:
            parts.append(f" {{{_dictionary(held, printer)}}}")
    spelled = printer.spelled
    operands = ", ".join([spelled(value.type) for value in op.operands])
    results = [spelled(result.type) for result in op.results]
    result = results[0] if len(results) == 1 else f"({', '.join(results)})"
    parts.append(f" : ({operands}) -> {result}")
    return "".join(parts)


def _dictionary(attributes: dict[str, Attribute], printer: TextPrinter) -> str:
    return ", ".join(
        f"{printer.spelled(StringAttr(name))} = {printer.spelled(a)}"
        for name, a in attributes.items()
    )


def _values(
    op: CallOp, printer: TextPrinter
) -> tuple[dict[str, str], list[str], dict[str, Attribute]]:
    """Return (text of each passed argument, tensors passed as None, properties that a call cannot
    express).
    """
    sizes = op.group_sizes()
    operands = op.operands
    if sum(sizes) != len(operands) or any(size < 0 for size in sizes):
        raise _NoPrettyForm
    schema = op.SCHEMA
    if len(sizes) != len(schema.tensor_arguments) + schema.takes_runtime_scalars:
        raise _NoPrettyForm
    first_dynamic = len(operands) - (sizes[-1] if schema.takes_runtime_scalars else 0)
    dynamic = iter(operands[first_dynamic:])
    explicit = _explicit_none(op)
    values: dict[str, str] = {}
    nones: list[str] = []
    properties = dict(op.properties)
    properties.pop(SEGMENTS, None)
    offset = group = 0
    for argument in schema.arguments:
        name = argument.name
        if argument.type.is_tensor:
            names = [printer.value_name(v) for v in operands[offset : offset + sizes[group]]]
            offset, group = offset + sizes[group], group + 1
            if argument.type.is_list:
                values[name] = _tensor_list(names, f"{name}_present", properties)
            elif len(names) > 1 or not (names or argument.type.nullable):
                raise _NoPrettyForm
            elif names:
                values[name] = names[0]
            elif name in explicit:
                values[name] = "none"
                nones.append(name)
        elif (attr := properties.get(name)) is not None:
            try:
                values[name] = _argument_text(attr, argument, printer, dynamic)
            except _NotCanonical:
                if count_dynamic(attr):
                    raise _NoPrettyForm from None
                continue
            del properties[name]
    if next(dynamic, None) is not None:
        raise _NoPrettyForm
    return values, nones, properties


def _explicit_none(op: CallOp) -> tuple[str, ...]:
    attribute = op.attributes.get(EXPLICIT_NONE)
    if not isinstance(attribute, ArrayAttr):
        return ()
    items = cast(ArrayAttr[Attribute], attribute).data
    return tuple(item.data for item in items if isinstance(item, StringAttr))


def _tensor_list(names: list[str], mask_name: str, properties: dict[str, Attribute]) -> str:
    mask = properties.get(mask_name)
    if isinstance(mask, NoneArg):
        if names:
            raise _NoPrettyForm
        del properties[mask_name]
        return "none"
    if isinstance(mask, ArrayAttr):
        present = [_scalar_is_true(item) for item in cast(ArrayAttr[Attribute], mask).data]
        if sum(present) != len(names):
            raise _NoPrettyForm
        if not all(present):
            del properties[mask_name]
            rest = iter(names)
            names = [next(rest) if here else "none" for here in present]
    return f"[{', '.join(names)}]"


def _scalar_is_true(attr: Attribute) -> bool:
    if not isinstance(attr, IntegerAttr) or attr.type != i1:
        raise _NoPrettyForm
    return attr.value.data != 0


def _argument_text(
    attr: Attribute, argument: Argument, printer: TextPrinter, dynamic: Iterator[SSAValue]
) -> str:
    base = argument.type.base
    if isinstance(attr, DenseArrayBase | ArrayAttr) and not argument.type.is_list:
        raise _NotCanonical
    if isinstance(attr, DenseArrayBase):
        values = cast(Sequence[int | float], attr.get_values())
        if attr.elt_type == i64 and (base != "float" or not values) and (values or base != "float"):
            return f"[{', '.join(map(str, values))}]"
        if attr.elt_type == f64 and (values or base == "float"):
            return f"[{', '.join(_float_word(float(v)) for v in values)}]"
        raise _NotCanonical
    if isinstance(attr, ArrayAttr):
        items = cast(ArrayAttr[Attribute], attr).data
        if all(type(i) is IntegerAttr and i.type != i1 for i in items) or all(
            type(i) is FloatAttr for i in items
        ):
            raise _NotCanonical
        return f"[{', '.join(_scalar_text(item, printer, dynamic) for item in items)}]"
    if base == "float" and isinstance(attr, IntegerAttr) and attr.type != i1:
        raise _NotCanonical
    return _scalar_text(attr, printer, dynamic)


def _scalar_text(attr: Attribute, printer: TextPrinter, dynamic: Iterator[SSAValue]) -> str:
    if isinstance(attr, IntegerAttr):
        if attr.type == i64:
            return str(attr.value.data)
        if attr.type == i1 and attr.value.data in (0, -1):
            return "true" if attr.value.data else "false"
        raise _NotCanonical
    if isinstance(attr, FloatAttr):
        if attr.type != f64:
            raise _NotCanonical
        return _float_word(attr.value.data)
    if isinstance(attr, StringAttr):
        return printer.spelled(attr)
    if isinstance(attr, NoneArg):
        return "none"
    if isinstance(attr, Dynamic):
        value = next(dynamic, None)
        if value is None:
            raise _NoPrettyForm
        return printer.value_name(value)
    if isinstance(attr, ComplexArg):
        real, imaginary = attr.real, attr.imaginary
        if real.type != f64 or imaginary.type != f64:
            raise _NotCanonical
        return f"complex({_float_word(real.value.data)}, {_float_word(imaginary.value.data)})"
    if isinstance(attr, IntegerType | AnyFloat | ComplexType) or (
        isinstance(attr, TypeAttribute)
        and not isinstance(attr, NoneType)
        and printer.spelled(attr).startswith("!")
    ):
        return printer.spelled(attr)
    raise _NotCanonical


def _float_word(value: float) -> str:
    if math.isfinite(value):
        return float_text(value)
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if FloatAttr(value, f64) != _NAN:
        raise _NotCanonical
    return "nan"
