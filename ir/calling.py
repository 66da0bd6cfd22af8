"""From a caller's arguments to a method's run-time inputs: flatten, check, bind symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, IntegerType, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from stepwell.ir.diagnostics import InputMismatch, Problem, StepwellError
from stepwell.ir.dtypes import dtype_name, element_type, has_torch_dtype
from stepwell.ir.on_demand import pytree, torch
from stepwell.ir.signature import Port, Signature, get_signature
from stepwell.ir.types import dims, element

NARROWED = "tosa.input_narrowed_from"
"""A method's attribute: which 64-bit inputs of the model its program takes in 32 bits."""
RANGES = "stepwell.input_ranges"
"""A method's attribute: of each run-time input "least..largest" as the caller declared, or ""."""


def bind_inputs(
    func: FuncOp, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> list[Any]:
    """The run-time inputs of a call, checked against the signature and laid out as it declares.

    How a tensor lies in memory is no part of its value: what torch's own exported program takes, in
    whatever strides, is taken here too.

    Args:
        func: the method.
        args, kwargs: nested as the model takes them, or already flat.

    Raises:
        InputMismatch: naming every input whose count, dtype, shape or frozen value differs from
            the signature, every symbol out of its range, and 64-bit integers beyond the 32 bits
            in which the program takes them.
    """
    signature = get_signature(func)
    method = f"method @{func.sym_name.data}"
    leaves = _flatten(signature, args, dict(kwargs or {}), method)
    types = iter(zip(func.function_type.inputs.data, _narrowed(func), _declared(func), strict=True))
    problems: list[Problem] = []
    bound: list[Any] = []
    symbols: dict[str, int] = {}
    for port, leaf in zip(signature.inputs, leaves, strict=True):
        where = f"{method}, input {port.name}"
        if port.constant is not None:
            if (problem := _not_frozen(port, leaf, method)) is not None:
                problems.append(problem)
            continue
        type_, narrowed, declared = next(types)
        if (problem := _outside(declared, leaf, where)) is not None:
            problems.append(problem)
            continue
        if narrowed and isinstance(leaf, torch.Tensor) and leaf.dtype == torch.int64:
            short = leaf.to(torch.int32)
            if not torch.equal(short, leaf):
                problems.append(Problem("a value does not fit the 32 bits it is taken in", where))
                continue
            leaf = short
        found = _check(type_, leaf, symbols, where)
        bound.append(leaf if found else laid_out(leaf, port.dim_order))
        problems.extend(found)
    for symbol, value in symbols.items():
        low, high = signature.ranges.get(symbol, (0, None))
        if value < low or (high is not None and value > high):
            shown = "unbounded" if high is None else str(high)
            problems.append(
                Problem(f"dimension {symbol} is {value}, outside [{low}, {shown}]", method)
            )
    if problems:
        raise InputMismatch(problems)
    return bound


def _narrowed(func: FuncOp) -> list[bool]:
    """Of each run-time input, whether the model takes it in 64 bits and the program in 32."""
    said = func.attributes.get(NARROWED)
    if not isinstance(said, ArrayAttr):
        return [False] * len(func.function_type.inputs.data)
    return [bool(isinstance(text, StringAttr) and text.data) for text in said]


def _declared(func: FuncOp) -> list[tuple[int, int] | None]:
    """Of each run-time input, the least and the largest integer that it was declared to hold."""
    said = func.attributes.get(RANGES)
    if not isinstance(said, ArrayAttr):
        return [None] * len(func.function_type.inputs.data)
    texts = [text.data if isinstance(text, StringAttr) else "" for text in said]
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
    return _flatten(get_signature(func), args, dict(kwargs or {}), f"method @{func.sym_name.data}")


def without_frozen(func: FuncOp, inputs: Sequence[Any], kind: type = object) -> list[Any]:
    """The flat inputs of a call without those whose value the program was exported with.

    Only values of `kind` are left out. ExecuTorch programs take frozen numbers, and no strings.

    Raises:
        InputMismatch: a frozen input has another value.
    """
    signature, problems = get_signature(func), list[Problem]()
    kept: list[Any] = []
    for port, leaf in zip(signature.inputs, inputs, strict=True):
        if port.constant is None or not isinstance(port.constant[0], kind):
            kept.append(leaf)
        elif (problem := _not_frozen(port, leaf, f"method @{func.sym_name.data}")) is not None:
            problems.append(problem)
    if problems:
        raise InputMismatch(problems)
    return kept


def with_frozen(func: FuncOp, outputs: Sequence[Any]) -> tuple[Any, ...]:
    """What a method returns: the outputs that were computed, and those the program states."""
    computed = iter(outputs)
    ports = get_signature(func).outputs
    stated = [next(computed) if p.constant is None else p.constant[0] for p in ports]
    return (*stated, *computed)


def _not_frozen(port: Port, leaf: Any, method: str) -> Problem | None:
    assert port.constant is not None
    frozen = port.constant[0]
    if type(leaf) is type(frozen) and leaf == frozen:
        return None
    return Problem(
        f"the program was exported with {frozen!r} here, not {leaf!r}",
        f"{method}, input {port.name}",
        "export again with the other value",
    )


def _flatten(
    signature: Signature, args: Sequence[Any], kwargs: dict[str, Any], method: str
) -> list[Any]:
    expected = len(signature.inputs)
    if signature.in_spec is not None:
        spec = pytree.treespec_loads(signature.in_spec)
        leaves, given = pytree.tree_flatten((tuple(args), kwargs))
        if given == spec:
            return leaves
        if kwargs and len(args) + len(kwargs) == expected:
            order = {port.name: index for index, port in enumerate(signature.inputs)}
            if set(kwargs) <= set(order):
                return [*args, *(kwargs[p.name] for p in signature.inputs[len(args) :])]
    if kwargs:
        raise InputMismatch(
            f"keyword arguments {', '.join(kwargs)} do not match the signature",
            method,
            "inputs are " + ", ".join(port.name for port in signature.inputs),
        )
    leaves = pytree.tree_leaves(tuple(args), is_leaf=lambda leaf: leaf is None)
    if len(leaves) == expected:
        return leaves
    given_runtime = iter(leaves)
    if len(leaves) == len(signature.runtime_inputs):
        return [p.constant[0] if p.constant else next(given_runtime) for p in signature.inputs]
    raise InputMismatch(
        f"{len(leaves)} inputs given, {expected} needed",
        method,
        "inputs are " + ", ".join(port.name for port in signature.inputs),
    )


def _check(type_: Attribute, leaf: Any, symbols: dict[str, int], where: str) -> list[Problem]:
    if not isinstance(type_, TensorType):
        if isinstance(leaf, torch.Tensor):
            return [Problem("a number is needed, not a tensor", where)]
        return []
    if not isinstance(leaf, torch.Tensor):
        return [Problem(f"a tensor is needed, not {type(leaf).__name__}", where)]
    problems: list[Problem] = []
    wanted, given = element(type_), element_type(leaf.dtype)
    if has_torch_dtype(wanted) and given != wanted:
        fact = f"dtype is {dtype_name(given)}, the program takes {dtype_name(wanted)}"
        problems.append(Problem(fact, where))
    shape = dims(type_)
    if len(shape) != leaf.dim():
        problems.append(Problem(f"rank is {leaf.dim()}, the program takes {len(shape)}", where))
        return problems
    for axis, (dim, size) in enumerate(zip(shape, leaf.shape, strict=True)):
        if isinstance(dim, int):
            if dim != size:
                problems.append(Problem(f"dimension {axis} is {size}, must be {dim}", where))
        elif (name := str(dim)).isidentifier() and symbols.setdefault(name, size) != size:
            elsewhere = f"but {name} is {symbols[name]} elsewhere"
            problems.append(Problem(f"dimension {axis} is {size}, {elsewhere}", where))
    return problems


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
