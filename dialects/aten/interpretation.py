"""Interpretation of schema ops by calls of the torch operators.

Each class has a plan, created on first use: the overload, and for every argument the conversion of
its attribute to a Python object of torch. Views are returned as views; the caller of a program
never receives one of its weights (`Interpreter.call` copies what could be written to).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr

from stepwell.dialects.aten.attributes import NoneArg, python_value
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import torch_overload
from stepwell.dialects.aten.schema import Argument
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.families import families_of
from stepwell.ir.declared.interpretation import interprets
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import torch_dtype

_RUNNING_STATISTICS = ("running_mean", "running_var")
WRITES_UNDECLARED: dict[str, tuple[str, ...]] = {
    "aten.batch_norm.default": _RUNNING_STATISTICS,
    "aten.cudnn_batch_norm.default": _RUNNING_STATISTICS,
    "aten.instance_norm.default": _RUNNING_STATISTICS,
    "aten.miopen_batch_norm.default": _RUNNING_STATISTICS,
    "aten.native_batch_norm.default": _RUNNING_STATISTICS,
}
"""Operators that write to arguments without an annotation in their schema; they receive copies."""


def _view(self: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    return self.reshape(tuple(size))


def _group_norm(input: torch.Tensor, *given: Any) -> Any:
    return torch.ops.aten.native_group_norm.default(input.contiguous(), *given)


def _zeroed(overload: Callable[..., Any]) -> Callable[..., Any]:
    def filled(*given: Any, **named: Any) -> torch.Tensor:
        return overload(*given, **named).zero_()

    return filled


BY_VALUE: dict[str, Callable[..., Any]] = {
    "aten.native_group_norm.default": _group_norm,
    "aten.view.default": _view,
    "aten._unsafe_view.default": _view,
}
"""Operators that torch rejects for some strides; values of the interpreter have no strides."""


def torch_object(name: str) -> Any:
    """Return the layout or memory format of a name: `strided`, `torch.channels_last`, …."""
    found = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(found, torch.layout | torch.memory_format):
        raise StepwellError(f"torch has no layout or memory format {name!r}")
    return found


def _nested(convert: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, list):
        return [_nested(convert, item) for item in cast(list[Any], value)]
    return None if value is None else convert(value)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "ScalarType": torch_dtype,
    "Layout": torch_object,
    "MemoryFormat": torch_object,
    "Device": lambda name: torch.device(name),
}


@dataclass(frozen=True)
class Plan:
    """How to call one operator: its overload, and each argument with its converter, if any."""

    overload: Callable[..., Any]
    shape: Callable[..., Any]
    """The function that infers results from meta tensors: the operator, or a registered
    function.
    """
    arguments: tuple[tuple[Argument, Callable[[Any], Any] | None], ...]
    copied: tuple[str, ...]


@dataclass(frozen=True)
class Meaning:
    """A user's implementation of an operator that torch lacks or computes differently.

    `meaning` computes the results, `shape` fake results of the same types. Both have the operator's
    parameters; an argument that the operator writes to is a copy, to which the function writes.
    """

    meaning: Callable[..., Any] | None = None
    shape: Callable[..., Any] | None = None


_PLANS: dict[type[SchemaOp], Plan] = {}
_REGISTERED: dict[str, Meaning] = {}


def register_meaning(cls: type[SchemaOp], meaning: Meaning) -> None:
    """Register the implementation of an op.

    Raises:
        StepwellError: the op has an implementation already.
    """
    if cls.name in _REGISTERED:
        raise StepwellError(f"{cls.name} has a registered implementation already")
    _REGISTERED[cls.name] = meaning
    _PLANS.pop(cls, None)


def plan_of(cls: type[SchemaOp]) -> Plan:
    """Return how to call the torch operator of an op class.

    Raises:
        StepwellError: torch does not know the operator.
    """
    plan = _PLANS.get(cls)
    if plan is None:
        arguments = tuple((a, _CONVERTERS.get(a.type.base)) for a in cls.SCHEMA.arguments)
        copied = WRITES_UNDECLARED.get(cls.name, ()) + tuple(a.name for a in cls.SCHEMA.written)
        overload = BY_VALUE.get(cls.name) or torch_overload(cls)
        if "uninitialized" in families_of(cls.name):  # Zeros are valid, and reproducible.
            overload = _zeroed(overload)
        held = _REGISTERED.get(cls.name, Meaning())
        meaning, shape = held.meaning or overload, held.shape or overload
        plan = _PLANS[cls] = Plan(meaning, shape, arguments, copied)
    return plan


def call_arguments(op: SchemaOp, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and keyword arguments of the torch call from the op's evaluated
    operands.
    """
    plan = plan_of(type(op))
    sizes = op.group_sizes()
    properties = op.properties
    scalars = op.SCHEMA.takes_runtime_scalars
    dynamic = iter(values[len(values) - sizes[-1] :]) if scalars and sizes[-1] else iter(())
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    gap = False
    offset = group = 0
    for argument, convert in plan.arguments:
        name = argument.name
        if argument.type.is_tensor:
            size = sizes[group]
            group += 1
            if argument.type.is_list:
                value = _tensors(op, name, values[offset : offset + size])
            elif size:
                value = values[offset]
            elif argument.default:
                gap = True
                continue
            else:
                value = None
            offset += size
        else:
            attr = properties.get(name)
            if attr is None:
                gap = True
                continue
            value = python_value(attr, cast(Iterator[Any], dynamic))
            if convert is not None:
                value = _nested(convert, value)
        if name in plan.copied and isinstance(value, torch.Tensor):
            value = value.clone()
        if gap or argument.keyword_only:
            keywords[name] = value
        else:
            positional.append(value)
    return positional, keywords


def _tensors(op: SchemaOp, name: str, values: Sequence[Any]) -> list[Any] | None:
    mask = op.properties.get(f"{name}_present")
    if mask is None:
        return list(values)
    if isinstance(mask, NoneArg):
        return None
    rest = iter(values)
    items = cast(ArrayAttr[Any], mask).data
    return [next(rest) if item.value.data else None for item in items]


def flat_results(returned: Any) -> tuple[Any, ...]:
    """Flatten the outputs of an operator to a list with an entry for each result."""
    if returned is None:
        return ()
    if not isinstance(returned, tuple | list):
        return (returned,)
    flat: list[Any] = []
    for item in cast(Sequence[Any], returned):
        if isinstance(item, list | tuple):
            flat.extend(cast(Sequence[Any], item))
        else:
            flat.append(item)
    return tuple(flat)


@interprets(SchemaOp)
def interpret(op: SchemaOp, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    """Call the operator. Its results are torch's: views if the operator returns views."""
    positional, keywords = call_arguments(op, args)
    try:
        returned = plan_of(type(op)).overload(*positional, **keywords)
    except AssertionError as error:  # Functions of PyTorch in Python check arguments so.
        raise ValueError(str(error)) from error
    return (*flat_results(returned), *written_values(op, positional, keywords))


def written_values(
    op: SchemaOp, positional: Sequence[Any], keywords: dict[str, Any]
) -> tuple[Any, ...]:
    """Return the arguments to which a call has written (copies), in the schema's order."""
    if not op.SCHEMA.is_mutable:
        return ()
    names = [argument.name for argument in op.SCHEMA.arguments]
    given = dict(zip(names, positional, strict=False)) | keywords
    return tuple(given[argument.name] for argument in op.SCHEMA.written)
