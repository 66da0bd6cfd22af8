"""Conversion of a caller's tensors to a program's inputs, and back.

The program accepts what eager accepts: any strides, a lazy negation or conjugate, parameters, plain
subclasses. Tensors without elements in the CPU's memory, and those that contradict the signature,
are rejected with an error that names the argument. A program that writes to an input writes to the
caller's tensor, in any layout, as eager does, and to no other tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from stepwell.ir.compat.torch import torch_private
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import MutateInputOp
from stepwell.ir.diagnostics import Problem, StepwellError
from stepwell.ir.dtypes import dtype_name, element_type, has_torch_dtype
from stepwell.ir.sizes.size import UNKNOWN, Size
from stepwell.ir.types import BoolType, FloatType, IntType, dims, element

Ranges = Mapping[str, tuple[int, int | None]]


def written_inputs(func: FuncOp) -> frozenset[int]:
    """Return the indices of the dynamic inputs that a method writes to."""
    return frozenset(op.index.value.data for op in func.walk() if isinstance(op, MutateInputOp))


def why_no_numbers(tensor: torch.Tensor) -> tuple[str, str] | None:
    """Return why a tensor has no elements in the CPU's memory, and the remedy; None if it has
    elements.
    """
    if tensor.is_nested or tensor.layout != torch.strided:
        layout = str(tensor.layout).removeprefix("torch.").removeprefix("_")
        return f"has layout {layout}", "pass x.to_dense(), or a padded tensor"
    if tensor.is_quantized:
        return f"has dtype {tensor.dtype}", "pass x.int_repr(), or x.dequantize()"
    kind = type(tensor).__name__
    if torch_private.is_traceable_wrapper_subclass(tensor) or kind in (
        "FakeTensor",
        "FunctionalTensor",
    ):
        return f"has type {kind}, which wraps other tensors", "pass the tensor that it wraps"
    if torch_private.is_functorch_wrapped_tensor(tensor):
        return "is a row of a vmap or has a gradient of torch.func", "call it outside of torch.func"
    if tensor.device.type != "cpu":
        return f"is on {tensor.device}", "pass x.cpu()" if tensor.device.type != "meta" else ""
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    if tensor.numel():
        needed = (tensor.storage_offset() + reach + 1) * tensor.element_size()
        if tensor.untyped_storage().nbytes() < needed:
            return "has lost its memory", "pass a tensor whose storage has not been freed"
    return None


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a detached plain tensor of the same elements, with conjugation and
    negation applied.
    """
    found = tensor.detach()
    if type(found) is not torch.Tensor:
        found = found.as_subclass(torch.Tensor)
    return found.resolve_conj().resolve_neg()


@dataclass
class Arguments:
    """The tensors and numbers that a caller passes to one call of a method."""

    values: list[Any]
    """The inputs as the program takes them: plain, in the declared layout."""
    given: list[Any]
    """The inputs as the caller passed them."""
    written: frozenset[int]
    """The indices of those that the method writes to."""

    def copies(self) -> list[Any]:
        """Return the inputs, with copies of those that the method writes to in place."""
        return [
            value.clone() if at in self.written else value for at, value in enumerate(self.values)
        ]

    def give_back(self, after: Mapping[int, torch.Tensor]) -> None:
        """Copy values that a method wrote to its inputs into the caller's tensors."""
        with torch.no_grad():
            for at, value in after.items():
                self.given[at].copy_(value)


def why_not_written(at: int, given: Sequence[Any]) -> tuple[str, str] | None:
    """Return why a method may not write to a caller's tensor, and the remedy; None if it may."""
    tensor = given[at]
    if tensor.requires_grad:
        return "is written and requires gradients", "pass x.detach()"
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        return "is written and was made in inference mode", "pass x.clone()"
    return why_it_shares(at, given)


def why_it_shares(at: int, given: Sequence[Any]) -> tuple[str, str] | None:
    """Return (reason, remedy) if a written tensor shares memory, also among its own elements."""
    tensor = given[at]
    if overlaps_itself(tensor.shape, tensor.stride()):
        return "is written and has elements that share memory", "pass x.clone()"
    for other, one in enumerate(given):
        if other != at and isinstance(one, torch.Tensor) and _share(tensor, one):
            return f"is written and shares memory with argument {other}", "pass x.clone()"
    return None


def overlaps_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements of a tensor share memory, or possibly do."""
    reach = 0
    for step, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if step <= reach:
                return True
            reach += step * (size - 1)
    return False


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not one.numel() or not other.numel():
        return False
    first, second = one.untyped_storage().data_ptr(), other.untyped_storage().data_ptr()
    return (
        first == second
        and _extent(one)[0] < _extent(other)[1]
        and (_extent(other)[0] < _extent(one)[1])
    )


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the range of bytes that a tensor spans in its storage."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    start = int(tensor.storage_offset())
    end = start + sum((size - 1) * step for size, step in pairs) + 1
    return start * tensor.element_size(), end * tensor.element_size()


def faults(type_: Attribute, leaf: Any) -> Iterator[tuple[str, str]]:
    """Yield why a value cannot be an input of a type, and the remedies; sizes are not checked."""
    if not isinstance(type_, TensorType):
        yield from _number_faults(type_, leaf)
        return
    if not isinstance(leaf, torch.Tensor):
        yield f"a tensor is needed, not {type(leaf).__name__}", ""
        return
    reason = why_no_numbers(leaf)
    if reason is not None:
        yield reason
        return
    wanted = element(type_)
    try:
        given = element_type(leaf.dtype)
    except StepwellError:
        yield f"dtype is {leaf.dtype}, which no program accepts", ""
        return
    if has_torch_dtype(wanted) and given != wanted:
        yield f"dtype is {dtype_name(given)}, the program takes {dtype_name(wanted)}", ""
    rank = len(dims(type_))
    if rank != leaf.dim():
        yield f"rank is {leaf.dim()}, the program takes {rank}", ""


_NUMBERS: dict[type, tuple[tuple[type, ...], str]] = {
    IntType: ((int,), "an integer"),
    FloatType: ((float, int), "a number"),
    BoolType: ((bool,), "a truth value"),
}


def _number_faults(type_: Attribute, leaf: Any) -> Iterator[tuple[str, str]]:
    kinds, name = _NUMBERS.get(type(type_), ((object,), "a value"))
    if isinstance(leaf, torch.Tensor):
        yield f"{name} is needed, not a tensor", "pass x.item()"
    elif not isinstance(leaf, kinds) or (isinstance(leaf, bool) and bool not in kinds):
        yield f"{name} is needed, not {type(leaf).__name__}", ""


class CallSizes:
    """The symbols of one call: bound by the arguments and checked against their ranges."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.bound: dict[str, int] = {}
        self.by: dict[str, str] = {}
        self._later: list[tuple[Size, int, str, str]] = []
        self.problems: list[Problem] = []

    def number(self, type_: Attribute, value: Any, where: str) -> None:
        """Bind the symbol of an integer argument, which may also be a tensor's size."""
        if isinstance(type_, IntType) and str(type_.data).isidentifier():
            self._bind(type_.data, value, where, "the number")

    def tensor(self, type_: TensorType[Any], shape: Sequence[int], where: str) -> None:
        """Check and bind the sizes of a tensor of the call; its rank must be correct."""
        for axis, (dim, size) in enumerate(zip(dims(type_), shape, strict=True)):
            what = f"dimension {axis}"
            if isinstance(dim, int):
                if dim != size:
                    self.problems.append(Problem(f"{what} is {size}, must be {dim}", where))
            elif str(dim).isidentifier():
                self._bind(str(dim), size, where, what)
            elif dim is not UNKNOWN:
                self._later.append((dim, size, where, what))

    def _bind(self, symbol: str, value: int, where: str, what: str) -> None:
        held = self.bound.setdefault(symbol, value)
        if held != value:
            fact = f"{what} is {value}, but {symbol} is {held} elsewhere"
            self.problems.append(Problem(fact, where))
            return
        if symbol in self.by:
            return
        self.by[symbol] = where
        low, high = self.ranges.get(symbol, (0, None))
        if value < low or (high is not None and value > high):
            within = f"[{low}, {'unbounded' if high is None else high}]"
            self.problems.append(Problem(f"{what} is {value}, outside {within}", where))

    def settle(self) -> list[Problem]:
        """Check sizes that are expressions (`2*s77`) and return all problems."""
        for wanted, size, where, what in self._later:
            for symbol in wanted.symbols - set(self.bound):
                solved = _solved(wanted, symbol, self.bound, size)
                if solved is not None:
                    self._bind(symbol, solved, where, f"{what}, {wanted}, is {size}: {symbol}")
            if _value(wanted, self.bound) not in (None, size):
                text = ", ".join(f"{s} = {self.bound[s]}" for s in sorted(wanted.symbols))
                fact = f"{what} is {size}, must be {wanted} with {text}"
                self.problems.append(Problem(fact, where))
        return self.problems


def _value(wanted: Size, bound: Mapping[str, int]) -> int | None:
    """Return the value of a size; None if a symbol is unbound or only torch can evaluate it."""
    try:
        return wanted.evaluate(bound)
    except (KeyError, ZeroDivisionError, StepwellError):
        return None


def _solved(wanted: Size, unknown: str, bound: Mapping[str, int], size: int) -> int | None:
    """Solve a size that is linear in a symbol; rounded down if there is no integer solution."""
    places = (0, 1, 2, 3, 10)
    at = [_value(wanted, {**bound, unknown: n}) for n in places]
    first, second = at[0], at[1]
    if first is None or second is None or first == second:
        return None
    step = second - first
    if at != [first + step * n for n in places]:
        return None
    return (size - first) // step
