"""Edits that vary the ops of a program: arguments, users, order, op classes, and constants in place
of operands.
"""

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
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.aten.schema import Argument
from stepwell.ir import dtypes
from stepwell.ir.types import dims
from stepwell.validation.contracts.draft import Draft, Ref, Step, mapped, refs_in
from stepwell.validation.contracts.type_edits import (
    ELEMENTS,
    Edits,
    name_of,
    numbers_of,
    set_source,
    tensors_of,
)

INTEGERS = (0, 1, -1, 2, -2, 3, 7, 100)
LARGE = (1 << 31, -(1 << 31), (1 << 63) - 1)
REALS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.5, 1e-45, 1e-40, 1e38, 3.5e38, 70000.0,
    math.inf, -math.inf, math.nan,
)  # fmt: skip
WORDS: dict[str, tuple[str, ...]] = {
    "approximate": ("none", "tanh"),
    "padding": ("same", "valid"),
    "mode": ("constant", "reflect", "replicate", "circular"),
    "rounding_mode": ("floor", "trunc"),
    "reduce": ("sum", "prod", "mean", "amax", "amin"),
}
"""The choices of a string argument, by its name."""


def argument_edits(draft: Draft) -> Edits:
    """Yield edits that vary each argument of each op, omit it, or set it to None."""
    for at, step in enumerate(draft.steps):
        if step.regions is not None:
            continue
        if issubclass(step.cls, SchemaOp):
            yield from _schema_arguments(draft, at, step)
        elif issubclass(step.cls, IRDLOperation):
            yield from _properties(at, step)


def _schema_arguments(draft: Draft, at: int, step: Step) -> Edits:
    op = cast(type[SchemaOp], step.cls)
    for argument in op.SCHEMA.arguments:
        name, given = argument.name, argument.name in step.arguments
        if argument.type.is_tensor:
            if argument.type.nullable and given and step.arguments[name] is not None:
                label = f"{op.name}: no {name}"
                yield label, partial(_set, at, "arguments", name, None)
            continue
        value = step.arguments.get(name, argument.default[0] if argument.default else None)
        if refs_in(value):
            continue
        if given and argument.default:
            label = f"{op.name}: {name} left out"
            yield label, partial(_drop_argument, at, name)
        rank = _rank(draft, step)
        for new in _values(argument, value, rank):
            if not _same(new, value):
                label = f"{op.name}: {name}={new}"
                yield label, partial(_set, at, "arguments", name, new)


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


def _set(at: int, fields: str, name: str, value: Any, draft: Draft) -> None:
    getattr(draft.steps[at], fields)[name] = value


def _drop_argument(at: int, name: str, draft: Draft) -> None:
    draft.steps[at].arguments.pop(name, None)


def _values(argument: Argument, value: Any, rank: int) -> Iterator[Any]:
    """Yield values that an op's argument of a certain kind is changed to."""
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


def _properties(at: int, step: Step) -> Edits:
    """Yield edits of the fields of an op at a target's level."""
    for name, attr in step.properties.items():
        for new in _attributes(attr):
            if new != attr:
                label = f"{step.cls.name}: {name}={new}"
                yield label, partial(_set, at, "properties", name, new)
    definition = cast(type[IRDLOperation], step.cls).get_irdl_definition()
    for name in definition.properties:
        if name in ("output_min", "output_max") and name not in step.properties:
            for number in (0.0, -1.0, 6.0, math.inf):
                attr = FloatAttr(number, dtypes.f32)
                label = f"{step.cls.name}: {name}={number}"
                yield label, partial(_set, at, "properties", name, attr)


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


def operator_edits(draft: Draft, anchors: Sequence[type[Operation]]) -> Edits:
    """Yield edits that replace an op of the draft by another op class that the rewrite also
    matches.
    """
    for at, step in enumerate(draft.steps):
        if not issubclass(step.cls, tuple(anchors)):
            continue
        for other in anchors:
            if other is not step.cls and _takes_as_much(step, other):
                label = f"{step.cls.name} is {other.name}"
                yield label, partial(_become, at, other)


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
    """Return arguments for another op: tensors in order, the rest by name or default."""
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


def reader_edits(draft: Draft) -> Edits:
    """Yield edits that add users and outputs, reorder ops, and share or exchange operands."""
    made = [(at, number) for at, step in enumerate(draft.steps) for number in step.results]
    for at, number in made:
        step = draft.steps[at]
        type_ = step.types[step.results.index(number)]
        if not isinstance(type_, TensorType) or step.cls.name.endswith("const_shape"):
            continue
        name = f"result {number} of {step.cls.name}"
        negate, multiply = ("aten.neg.default", ("self",)), ("aten.mul.Tensor", ("self", "other"))
        for where, place in (("before", at + 1), ("after", None)):
            label = f"{name} has one more user, {where} the others"
            yield label, partial(_read, *negate, place, number, type_)
        yield f"{name} is returned too", partial(_return, number)
        if step.cls.name in ("quant.qcast", "quant.dcast", "quant.scast"):
            continue
        label = f"{name} is both operands of a product"
        yield label, partial(_read, *multiply, None, number, type_)
    for index, number in enumerate(draft.returned):
        if len(draft.returned) > 1:
            label = f"output {index} is not returned"
            yield label, partial(_return_less, index)
        yield f"output {index} is returned twice", partial(_return, number)
    for one, first in tensors_of(draft):
        for two, second in tensors_of(draft):
            if one != two and first.type == second.type:
                label = f"{name_of(draft, second)} is {name_of(draft, first)}"
                yield label, partial(_share, first.value, second.value)
    for at, step in enumerate(draft.steps):
        found = [(name, ref) for name, v in step.arguments.items() for ref in refs_in(v)]
        for name, ref in found:
            for _, other in found:
                if other != ref:
                    label = f"{step.cls.name}: {name} is another operand too"
                    yield label, partial(_same_operand, at, name, ref, other)
        if len(found) > 1 and not issubclass(step.cls, SchemaOp):
            continue
        if len(found) == 2 and found[0][0] != found[1][0]:
            label = f"{step.cls.name}: operands exchanged"
            yield label, partial(_swap, at, found[0][0], found[1][0])
    for at in range(1, len(draft.steps)):
        yield f"step {at} is one earlier", partial(_earlier, at)


def _read(
    op: str, names: tuple[str, ...], at: int | None, number: int, type_: Attribute, draft: Draft
) -> None:
    """Insert an op of which each operand is the same value, and add its result to the outputs of
    the draft.
    """
    arguments, made = dict.fromkeys(names, Ref(number)), draft.fresh()
    reader = Step(op_class(op), arguments, {}, {}, [type_], [made], None)
    draft.steps.insert(len(draft.steps) if at is None else at, reader)
    draft.returned.append(made)


def _return(number: int, draft: Draft) -> None:
    draft.returned.append(number)


def _return_less(index: int, draft: Draft) -> None:
    del draft.returned[index]


def _share(first: int, second: int, draft: Draft) -> None:
    for at, step in enumerate(draft.steps):
        for name in step.arguments:
            _same_operand(at, name, Ref(second), Ref(first), draft)


def _same_operand(at: int, name: str, ref: Ref, other: Ref, draft: Draft) -> None:
    def change(held: Ref) -> Ref:
        return other if held == ref else held

    arguments = draft.steps[at].arguments
    arguments[name] = mapped(arguments[name], change)


def _swap(at: int, one: str, two: str, draft: Draft) -> None:
    arguments = draft.steps[at].arguments
    arguments[one], arguments[two] = arguments[two], arguments[one]


def _earlier(at: int, draft: Draft) -> None:
    draft.steps[at - 1], draft.steps[at] = draft.steps[at], draft.steps[at - 1]


FILLS = (
    "zeros", "negative zeros", "ones", "negative", "positive", "integers", "denormal", "huge",
    "special", "extremes", "random",
)  # fmt: skip


def constant_edits(draft: Draft) -> Edits:
    """Yield edits that replace inputs by constants, constants by inputs, or constants' numbers."""
    for index, source in tensors_of(draft):
        name = name_of(draft, source)
        if source.key is None:
            yield (
                f"{name} is a weight",
                partial(set_source, index, key=f"constant_{index}", order=None),
            )
            continue
        yield f"{name} is an input", partial(set_source, index, key=None, lying="dense")
        for fill in FILLS:
            yield f"{name} holds {fill}", partial(set_source, index, fill=fill)
    if any(source.key is None for source in draft.sources):
        yield "every input is a weight", _all_weights
    if any(source.key is not None for source in draft.sources):
        yield "every weight is an input", _all_inputs


def _all_weights(draft: Draft) -> None:
    for index, source in tensors_of(draft):
        if source.key is None:
            set_source(index, draft, key=f"constant_{index}", order=None)


def _all_inputs(draft: Draft) -> None:
    for source in draft.sources:
        source.key = None


def blind_edits(draft: Draft) -> Edits:
    """Yield edits that remove the data of weights, as in a text without its `.safetensors`."""
    if any(source.key is not None for source in draft.sources):
        yield "weights have no data", _blind


def _blind(draft: Draft) -> None:
    draft.is_blind = True
