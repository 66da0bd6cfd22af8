"""Edits of an op's arguments, and replacement of the op by another one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from xdsl.dialects.builtin import (
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    TensorType,
)
from xdsl.ir import Attribute, Operation
from xdsl.irdl import IRDLOperation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.schema import Argument
from stepwell.ir import dtypes
from stepwell.ir.types import dims
from stepwell.validation.contracts.draft import Draft, Ref, Step, refs_in
from stepwell.validation.contracts.edit import (
    ELEMENTS,
    INTEGERS,
    LARGE,
    REALS,
    WORDS,
    Edit,
    numbers_of,
)


def argument_edits(draft: Draft) -> Iterator[Edit]:
    """Yield edits that vary each argument of each op, omit it, or set it to None."""
    for at, step in enumerate(draft.steps):
        if step.regions is not None:
            continue
        if issubclass(step.cls, SchemaOp):
            yield from _schema_arguments(draft, at, step)
        elif issubclass(step.cls, IRDLOperation):
            yield from _properties(at, step)


def _schema_arguments(draft: Draft, at: int, step: Step) -> Iterator[Edit]:
    op = cast(type[SchemaOp], step.cls)
    for argument in op.SCHEMA.arguments:
        name, given = argument.name, argument.name in step.arguments
        if argument.type.is_tensor:
            if argument.type.nullable and given and step.arguments[name] is not None:
                label = f"{op.name}: no {name}"
                yield Edit("arguments", label, partial(_set_argument, at, name, None))
            continue
        value = step.arguments.get(name, argument.default[0] if argument.default else None)
        if refs_in(value):
            continue
        if given and argument.default:
            label = f"{op.name}: {name} left out"
            yield Edit("arguments", label, partial(_drop_argument, at, name))
        rank = _rank(draft, step)
        for new in _values(argument, value, rank):
            if not _same(new, value):
                label = f"{op.name}: {name}={new}"
                yield Edit("arguments", label, partial(_set_argument, at, name, new))


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


def _rank(draft: Draft, step: Step) -> int:
    for value in step.arguments.values():
        for ref in refs_in(value):
            for source in draft.sources:
                if source.value == ref.number and isinstance(source.type, TensorType):
                    return len(dims(source.type))
            for other in draft.steps:
                if ref.number in other.results:
                    type_ = other.types[other.results.index(ref.number)]
                    return len(dims(type_)) if isinstance(type_, TensorType) else 0
    return 0


def _set_argument(at: int, name: str, value: Any, draft: Draft) -> None:
    draft.steps[at].arguments[name] = value


def _drop_argument(at: int, name: str, draft: Draft) -> None:
    draft.steps[at].arguments.pop(name, None)


def _values(argument: Argument, value: Any, rank: int) -> Iterator[Any]:
    """Yield values to try for an argument's kind."""
    base = argument.type.base
    if argument.type.nullable:
        yield None
    if argument.type.is_list:
        yield from _lists(argument, value, rank)
    elif base == "bool":
        yield from (True, False)
    elif base in ("int", "SymInt"):
        yield from _whole(value, rank)
    elif base == "float":
        yield from REALS
    elif base == "Scalar":
        yield from (*REALS, *INTEGERS, 127, 128, 255, -129, (1 << 31), (1 << 53) + 1, True)
    elif base == "ScalarType":
        yield from ELEMENTS
    elif base == "str":
        yield from WORDS.get(argument.name, ())
    elif base == "MemoryFormat":
        yield from ("contiguous_format", "preserve_format", "channels_last")


def _whole(value: Any, rank: int) -> Iterator[int]:
    yield from INTEGERS
    yield from LARGE
    if isinstance(value, int):
        yield from (value + 1, value - 1, -value, value - rank, 2 * value)


def _lists(argument: Argument, value: Any, rank: int) -> Iterator[Any]:
    items: list[Any] = list(cast(Sequence[Any], value)) if isinstance(value, list) else []
    if not isinstance(value, list) and value is not None:
        items = [value]
    yield []
    numbers: tuple[Any, ...] = REALS if argument.type.base == "float" else (0, 1, -1, 2, 3, -2)
    if argument.type.base == "bool":
        numbers = (True, False)
    for index, item in enumerate(items):
        more = (item + 1, item - rank) if isinstance(item, int) and item is not True else ()
        for new in (*numbers, *more):
            yield [*items[:index], new, *items[index + 1 :]]
    yield [*items, 1]
    yield [1, *items]
    yield items[:-1]
    yield items[1:]
    yield items[::-1]
    yield [item - rank for item in items if isinstance(item, int)]
    for number in numbers:
        yield [number] * max(len(items), 1)


def _properties(at: int, step: Step) -> Iterator[Edit]:
    """Yield edits of the fields of an op at a target's level."""
    for name, attr in step.properties.items():
        for new in _attributes(attr):
            if new != attr:
                label = f"{step.cls.name}: {name}={new}"
                yield Edit("arguments", label, partial(_set_property, at, name, new))
    definition = cast(type[IRDLOperation], step.cls).get_irdl_definition()
    for name in definition.properties:
        if name in ("output_min", "output_max") and name not in step.properties:
            for number in (0.0, -1.0, 6.0, math.inf):
                attr = FloatAttr(number, dtypes.f32)
                label = f"{step.cls.name}: {name}={number}"
                yield Edit("arguments", label, partial(_set_property, at, name, attr))


def _attributes(attr: Attribute) -> Iterator[Attribute]:
    if isinstance(attr, IntegerAttr):
        integer_attr = cast("IntegerAttr[Any]", attr)
        type_, value = integer_attr.type, integer_attr.value.data
        if isinstance(type_, IntegerType) and type_.width.data == 1:
            yield IntegerAttr(int(not value), type_)
            return
        for new in (0, 1, -1, 2, 5, 127, -128, value + 1, value - 1, (1 << 31) - 1):
            yield IntegerAttr(new, type_)
    elif isinstance(attr, FloatAttr):
        integer_attr = cast("FloatAttr[Any]", attr)
        for number in REALS:
            with suppress(OverflowError):  # No attribute of this type holds 3.5e38.
                yield FloatAttr(number, integer_attr.type)
    elif isinstance(attr, DenseArrayBase):
        numbers, kind = numbers_of(attr), cast(Any, attr.elt_type)
        for index, number in enumerate(numbers):
            for new in (0, 1, 2, -1, number + 1):
                made = [*numbers[:index], new, *numbers[index + 1 :]]
                yield DenseArrayBase.from_list(kind, made)
        yield DenseArrayBase.from_list(kind, numbers[::-1])
        yield DenseArrayBase.from_list(kind, sorted(numbers))
        yield DenseArrayBase.from_list(kind, numbers[:-1])
        yield DenseArrayBase.from_list(kind, [*numbers, len(numbers)])


def _set_property(at: int, name: str, attr: Attribute, draft: Draft) -> None:
    draft.steps[at].properties[name] = attr


def operator_edits(draft: Draft, anchors: Sequence[type[Operation]]) -> Iterator[Edit]:
    """Yield edits that replace an op by another op that the rewrite matches."""
    for at, step in enumerate(draft.steps):
        if not issubclass(step.cls, tuple(anchors)):
            continue
        for other in anchors:
            if other is not step.cls and _takes_as_much(step, other):
                label = f"{step.cls.name} is {other.name}"
                yield Edit("operators", label, partial(_become, at, other))


def _takes_as_much(step: Step, other: type[Operation]) -> bool:
    if issubclass(other, SchemaOp) and issubclass(step.cls, SchemaOp):
        return hasattr(other, "SCHEMA") and bool(other.SCHEMA.tensor_arguments)
    return not issubclass(other, SchemaOp) and not issubclass(step.cls, SchemaOp)


def _become(at: int, other: type[Operation], draft: Draft) -> None:
    step = draft.steps[at]
    if issubclass(other, SchemaOp):
        step.arguments = _translated(step, other, draft)
    step.cls = other


_NUMBERS: dict[str, Any] = {
    "int": 1, "SymInt": 1, "float": 0.5, "Scalar": 2, "bool": False, "ScalarType": dtypes.f32,
}  # fmt: skip


def _translated(step: Step, other: type[SchemaOp], draft: Draft) -> dict[str, Any]:
    """Return the arguments of an op for another one: tensors in order, the rest by name or
    default.
    """
    tensors = [ref for value in step.arguments.values() for ref in refs_in(value)]
    made: dict[str, Any] = {}
    last = tensors[-1] if tensors else Ref(draft.sources[0].value)
    queue = list(tensors)
    for argument in other.SCHEMA.arguments:
        if argument.type.is_tensor:
            if argument.type.is_list:
                made[argument.name] = queue or [last]
                queue = []
            elif queue or not argument.type.nullable:
                made[argument.name] = queue.pop(0) if queue else last
        elif argument.name in step.arguments:
            made[argument.name] = step.arguments[argument.name]
        elif not argument.default:
            number = _NUMBERS.get(argument.type.base, "none")
            made[argument.name] = (
                [number] * (argument.type.size or 1) if argument.type.is_list else number
            )
    return made
