"""Marshalling of a caller's arguments to a method's dynamic inputs: flatten, check, lay out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, IntegerType, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from stepwell.ir.calls.argument_marshalling import (
    Arguments,
    CallSizes,
    faults,
    plain,
    why_no_numbers,
    why_not_written,
    written_inputs,
)
from stepwell.ir.calls.nested_inputs import flat_arguments
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import InputMismatch, Problem, StepwellError
from stepwell.ir.dtypes import is_float
from stepwell.ir.signature import Port, get_signature
from stepwell.ir.types import FloatType, element

NARROWED = "tosa.input_narrowed_from"
"""A method's attribute: which 64-bit inputs of the model its program takes in 32 bits."""
Ends = tuple[float, float]
"""The least and the largest number of an input; integers of integers."""
RANGES = "stepwell.input_ranges"
"""A method's attribute: "least..largest" for each dynamic input as the caller declared, or ""."""


def bind_inputs(
    func: FuncOp, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> list[Any]:
    """Check a call's arguments and return the program's inputs; mutated inputs are ignored."""
    return bind(func, args, kwargs).values


def bind(func: FuncOp, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Arguments:
    """Check the arguments of a call against the signature and lay them out as it declares.

    The memory layout of a tensor is not part of its value: all strides are accepted, as by torch's
    exported program.

    Args:
        func: the method.
        args, kwargs: nested as the model takes them, or already flat.

    Raises:
        InputMismatch: names every input whose count, dtype, shape or specialized value differs from
            the signature, every size out of its range, 64-bit integers beyond the 32 bits of the
            program, tensors without elements in memory, and tensors that the program writes to but
            must not.
    """
    signature = get_signature(func)
    method = f"method @{func.sym_name.data}"
    leaves = flat_arguments(signature, args, dict(kwargs or {}), method)
    held = declared_ranges(func)
    types = iter(zip(func.function_type.inputs.data, _narrowed(func), held, strict=True))
    problems: list[Problem] = []
    bound, given = list[Any](), list[Any]()
    names: list[str] = []
    sizes = CallSizes(signature.ranges)
    for port, leaf in zip(signature.inputs, leaves, strict=True):
        where = f"{method}, input {port.name}"
        if port.constant is not None:
            if (problem := _not_frozen(port, leaf, method)) is not None:
                problems.append(problem)
            continue
        type_, narrowed, declared = next(types)
        value, found = _taken(type_, leaf, narrowed, declared, where)
        problems += found
        given.append(leaf)
        names.append(where)
        bound.append(value if found else laid_out(value, port.dim_order))
        if not found and isinstance(type_, TensorType):
            sizes.tensor(type_, leaf.shape, where)
        elif not found:
            sizes.number(type_, leaf, where)
    problems += sizes.settle()
    written = written_inputs(func)
    if not problems:
        for at in sorted(written):
            if (reason := why_not_written(at, given)) is not None:
                problems.append(Problem(reason[0], names[at], reason[1]))
    if problems:
        raise InputMismatch(problems)
    return Arguments(bound, given, written)


def _taken(
    type_: Attribute, leaf: Any, narrowed: bool, declared: Ends | None, where: str
) -> tuple[Any, list[Problem]]:
    """Convert a value to the program's input, and return the problems that prevent it."""
    is_plain = isinstance(leaf, torch.Tensor) and why_no_numbers(leaf) is None
    if narrowed and is_plain and leaf.dtype == torch.int64:
        short = leaf.to(torch.int32)
        if not torch.equal(short, leaf):
            return leaf, [
                Problem(
                    "a value does not fit in the 32 bits of the program's input",
                    where,
                    "pass int32 values",
                )
            ]
        leaf = short
    problems = [Problem(fact, where, help or None) for fact, help in faults(type_, leaf)]
    if not problems and (problem := _outside(declared, leaf, where)) is not None:
        problems = [problem]
    if problems:
        return leaf, problems
    if isinstance(type_, FloatType):
        return float(leaf), []
    return plain(leaf) if isinstance(leaf, torch.Tensor) else leaf, []


def _narrowed(func: FuncOp) -> list[bool]:
    """Return for each dynamic input whether the model takes it in 64 bits and the program in 32."""
    attribute = func.attributes.get(NARROWED)
    if not isinstance(attribute, ArrayAttr):
        return [False] * len(func.function_type.inputs.data)
    return [bool(isinstance(text, StringAttr) and text.data) for text in attribute]


def declared_ranges(func: FuncOp) -> list[Ends | None]:
    """Return the declared smallest and largest value of each dynamic input."""
    attribute = func.attributes.get(RANGES)
    if not isinstance(attribute, ArrayAttr):
        return [None] * len(func.function_type.inputs.data)
    texts = [text.data if isinstance(text, StringAttr) else "" for text in attribute]
    return [_ends(text) if text else None for text in texts]


def _ends(text: str) -> Ends:
    """Format the ends of a range as `declare_ranges` does: floats have a point or an exponent."""
    is_whole = not re.search(r"\d\.\d|e", text)
    low, high = (int(end) if is_whole else float(end) for end in text.split(".."))
    return low, high


def declare_ranges(funcs: Sequence[FuncOp], ranges: Mapping[str | int, Ends]) -> None:
    """Declare the ranges of methods' inputs; later calls with other values are refused.

    Args:
        funcs: the methods.
        ranges: (least, largest) by the name of an input, or by its position; both numbers
            are integers for an integer input. Methods without such an input are unchanged.

    Raises:
        StepwellError: no method has the input, or the range of an integer input is not integers.
    """
    unknown, names = set(ranges), list[str]()
    for func in funcs if ranges else ():
        args = list(zip(get_signature(func).runtime_inputs, func.body.block.args, strict=True))
        names += [port.name for port, arg in args if _kind(arg.type) is not None]
        texts: list[str] = []
        for at, (port, arg) in enumerate(args):
            key = port.name if port.name in ranges else at
            kind = _kind(arg.type) if key in ranges else None
            if kind is not None:
                unknown.discard(key)
                if kind is int and not all(float(end).is_integer() for end in ranges[key]):
                    raise StepwellError(
                        f"ranges: input {key!r} has integers, its range is {ranges[key]}",
                        f"method @{func.sym_name.data}",
                        "pass a range of two integers",
                    )
            texts.append("" if kind is None else "{}..{}".format(*map(kind, ranges[key])))
        if any(texts):
            func.attributes[RANGES] = ArrayAttr([StringAttr(text) for text in texts])
    for key in ranges:
        if key in unknown:
            raise StepwellError(
                f"ranges: {key!r} is not a tensor input of integers or floats",
                help="such inputs are " + ", ".join(dict.fromkeys(names)),
            )


def _kind(type_: Attribute) -> type[int] | type[float] | None:
    """Return the element type of an input, if its elements are ordered."""
    if not isinstance(type_, TensorType):
        return None
    if isinstance(element(type_), IntegerType):
        return int
    return float if is_float(element(type_)) else None


def _outside(declared: Ends | None, leaf: Any, where: str) -> Problem | None:
    """Return why an input violates its declared range, or None; limits have the input's dtype."""
    if declared is None or not isinstance(leaf, torch.Tensor) or not leaf.numel():
        return None
    least, largest = leaf.min().item(), leaf.max().item()  # Of a NaN, NaN.
    low, high = declared
    if leaf.is_floating_point():
        low, high = (torch.tensor(end, dtype=leaf.dtype).item() for end in declared)
    if low <= least and largest <= high:
        return None
    held = f"holds {least} to {largest}"
    return Problem(f"{held}, outside the declared range {declared[0]} to {declared[1]}", where)


def flatten_inputs(
    func: FuncOp, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> list[Any]:
    """Flatten a call's arguments in the order of the signature, without checking them.

    Inputs that the export specialized to a constant are included.

    Raises:
        InputMismatch: the arguments do not nest as the model takes them.
    """
    where = f"method @{func.sym_name.data}"
    return flat_arguments(get_signature(func), args, dict(kwargs or {}), where)


def with_frozen(func: FuncOp, outputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return a method's results: the computed outputs, and constant ones from its signature."""
    computed = iter(outputs)
    ports = get_signature(func).outputs
    stated = [next(computed) if p.constant is None else p.constant[0] for p in ports]
    return (*stated, *computed)


def _not_frozen(port: Port, leaf: Any, method: str) -> Problem | None:
    assert port.constant is not None
    frozen = port.constant[0]
    if type(leaf) is type(frozen) and repr(leaf) == repr(frozen):  # -0.0 is not 0.0, NaN is NaN.
        return None
    return Problem(
        f"the program was exported with {frozen!r} here, not {leaf!r}",
        f"{method}, input {port.name}",
        "export again with the other value",
    )


def laid_out(given: Any, order: Sequence[int] | None) -> Any:
    """Return a tensor that is dense in a dim order (row-major if None): itself, or a copy.

    Other values are returned unchanged.
    """
    if not isinstance(given, torch.Tensor) or follows_dim_order(given, order):
        return given
    order = order or range(given.dim())
    back = [order.index(axis) for axis in range(given.dim())]
    return given.permute(*order).clone(memory_format=torch.contiguous_format).permute(back)


def follows_dim_order(tensor: torch.Tensor, order: Sequence[int] | None) -> bool:
    """Whether a tensor is dense in this dim order (row-major if None).

    Axes of size 1 may have any stride. Axes of size 0 count as size 1, as in the strides that torch
    allocates: ExecuTorch's runtime aborts on an empty tensor with other strides.
    """
    expected = 1
    for axis in reversed(order or range(tensor.dim())):
        size = tensor.shape[axis]
        if size != 1 and tensor.stride(axis) != expected:
            return False
        expected *= max(size, 1)
    return True
