"""From a caller's arguments to a method's run-time inputs: flatten, check, lay out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, IntegerType, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from stepwell.ir.calls.border import (
    Arguments,
    Sizes,
    faults,
    plain,
    why_no_numbers,
    why_not_written,
    written_inputs,
)
from stepwell.ir.calls.nested_inputs import flat_arguments
from stepwell.ir.diagnostics import InputMismatch, Problem, StepwellError
from stepwell.ir.outside.on_demand import torch
from stepwell.ir.signature import Port, get_signature
from stepwell.ir.types import FloatType, element

NARROWED = "tosa.input_narrowed_from"
"""A method's attribute: which 64-bit inputs of the model its program takes in 32 bits."""
RANGES = "stepwell.input_ranges"
"""A method's attribute: of each run-time input "least..largest" as the caller declared, or ""."""


def bind_inputs(
    func: FuncOp, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> list[Any]:
    """The run-time inputs of a call, as `bind` gives them, where nothing is given back."""
    return bind(func, args, kwargs).values


def bind(func: FuncOp, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Arguments:
    """The run-time inputs of a call, checked against the signature and laid out as it declares.

    How a tensor lies in memory is no part of its value: what torch's own exported program takes, in
    whatever strides, is taken here too.

    Args:
        func: the method.
        args, kwargs: nested as the model takes them, or already flat.

    Raises:
        InputMismatch: naming every input whose count, dtype, shape or frozen value differs from
            the signature, every size out of its range, 64-bit integers beyond the 32 bits in which
            the program takes them, and tensors that are no numbers in memory, or may not be written
            where the program writes.
    """
    signature = get_signature(func)
    method = f"method @{func.sym_name.data}"
    leaves = flat_arguments(signature, args, dict(kwargs or {}), method)
    types = iter(zip(func.function_type.inputs.data, _narrowed(func), _declared(func), strict=True))
    problems: list[Problem] = []
    bound, given = list[Any](), list[Any]()
    names: list[str] = []
    sizes = Sizes(signature.ranges)
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
    type_: Attribute, leaf: Any, narrowed: bool, declared: tuple[int, int] | None, where: str
) -> tuple[Any, list[Problem]]:
    """A value as a program of this input takes it, and what keeps it from that."""
    is_plain = isinstance(leaf, torch.Tensor) and why_no_numbers(leaf) is None
    if narrowed and is_plain and leaf.dtype == torch.int64:
        short = leaf.to(torch.int32)
        if not torch.equal(short, leaf):
            return leaf, [Problem("a value does not fit the 32 bits it is taken in", where)]
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
    """Of each run-time input, whether the model takes it in 64 bits and the program in 32."""
    attribute = func.attributes.get(NARROWED)
    if not isinstance(attribute, ArrayAttr):
        return [False] * len(func.function_type.inputs.data)
    return [bool(isinstance(text, StringAttr) and text.data) for text in attribute]


def _declared(func: FuncOp) -> list[tuple[int, int] | None]:
    """Of each run-time input, the least and the largest integer that it was declared to hold."""
    attribute = func.attributes.get(RANGES)
    if not isinstance(attribute, ArrayAttr):
        return [None] * len(func.function_type.inputs.data)
    texts = [text.data if isinstance(text, StringAttr) else "" for text in attribute]
    return [
        (int(low), int(high)) if dots else None
        for low, dots, high in (text.partition("..") for text in texts)
    ]


def declare_ranges(
    func: FuncOp, ranges: Mapping[str, tuple[int, int]]
) -> dict[SSAValue, tuple[int, int]]:
    """State on a method what its integer inputs hold; a later call with other values is refused.

    Args:
        func: the method.
        ranges: (least, largest) by the name of an input.

    Returns:
        The ranges by the input's value in the program.

    Raises:
        StepwellError: an input of that name is none, or holds no integers.
    """
    if not ranges:
        return {}
    ports = [port for port in get_signature(func).inputs if port.constant is None]
    args = {port.name: arg for port, arg in zip(ports, func.body.block.args, strict=True)}
    for name in ranges:
        if name not in args or not _integers(args[name].type):
            raise StepwellError(
                f"ranges: {name!r} is no input of integers",
                help="they are " + ", ".join(n for n, arg in args.items() if _integers(arg.type)),
            )
    texts = ["{}..{}".format(*ranges[n]) if n in ranges else "" for n in args]
    func.attributes[RANGES] = ArrayAttr([StringAttr(text) for text in texts])
    return {args[name]: held for name, held in ranges.items()}


def _integers(type_: Attribute) -> bool:
    return isinstance(type_, TensorType) and isinstance(element(type_), IntegerType)


def _outside(declared: tuple[int, int] | None, leaf: Any, where: str) -> Problem | None:
    """Why an integer input is not what was declared, or None."""
    if declared is None or not isinstance(leaf, torch.Tensor) or not leaf.numel():
        return None
    least, largest = int(leaf.min()), int(leaf.max())
    if declared[0] <= least and largest <= declared[1]:
        return None
    low, high = declared
    return Problem(f"holds {least} to {largest}, declared was {low} to {high}", where)


def flatten_inputs(
    func: FuncOp, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> list[Any]:
    """A call's leaves in the order of the signature, frozen ones included; nothing is checked.

    Raises:
        InputMismatch: the arguments do not nest as the model takes them.
    """
    where = f"method @{func.sym_name.data}"
    return flat_arguments(get_signature(func), args, dict(kwargs or {}), where)


def with_frozen(func: FuncOp, outputs: Sequence[Any]) -> tuple[Any, ...]:
    """What a method returns: the outputs that were computed, and those the program states."""
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
    """A tensor whose elements lie densely in a dim order (row-major if None): itself, or a copy.

    What is no tensor is given back.
    """
    if not isinstance(given, torch.Tensor) or follows_dim_order(given, order):
        return given
    order = order or range(given.dim())
    back = [order.index(axis) for axis in range(given.dim())]
    return given.permute(*order).clone(memory_format=torch.contiguous_format).permute(back)


def follows_dim_order(tensor: torch.Tensor, order: Sequence[int] | None) -> bool:
    """Whether a tensor lies densely in this dim order (row-major if None).

    Axes of size 1 are free. Those of size 0 count as 1, as in the strides that torch gives what it
    allocates: ExecuTorch's runtime ends the process over an empty tensor with others.
    """
    expected = 1
    for axis in reversed(order or range(tensor.dim())):
        size = tensor.shape[axis]
        if size != 1 and tensor.stride(axis) != expected:
            return False
        expected *= max(size, 1)
    return True
