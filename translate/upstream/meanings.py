"""Semantics of ops of MLIR's `arith`, `math` and `tensor`, as functions of PyTorch tensors.

Numbers in the text are computed as Python numbers; ops on tensors compute elementwise.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    TensorType,
)
from xdsl.ir import Attribute, Operation

from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.types import dims, element

Rule = Callable[[Any, Sequence[Any]], Any]


class CannotImport(Exception):
    """Raised if an op cannot be imported; the message states why."""


@dataclass(frozen=True)
class Undefined:
    """The result of `tensor.empty`: a shape without elements."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def elements_of(value: DenseIntOrFPElementsAttr) -> torch.Tensor:
    """Return the tensor of `dense<…>`."""
    dtype = torch_dtype(value.type.element_type)
    wide = torch.float64 if dtype.is_floating_point else None
    shape = [int(size) for size in value.get_shape()]
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    found = torch.tensor(list(value.get_values()), dtype=wide).to(dtype)
    return (
        found.expand(math.prod(shape)).reshape(shape)
        if found.numel() == 1
        else found.reshape(shape)
    )


def number_of(value: Attribute) -> Any:
    """Return the Python number of an attribute."""
    if isinstance(value, FloatAttr):
        return value.value.data
    assert isinstance(value, IntegerAttr)
    is_flag = str(value.type) == "i1"
    return bool(value.value.data) if is_flag else value.value.data


def dtype_of(type_: Attribute) -> torch.dtype:
    """Return PyTorch's dtype of a number, or of a tensor's elements."""
    return torch_dtype(element(type_) if isinstance(type_, TensorType) else type_)


def shape_of(type_: Attribute) -> list[int]:
    """Return the sizes of a tensor, which must be constants.

    Raises:
        Refused: a size is dynamic.
    """
    sizes = [size for size in dims(type_) if isinstance(size, int)]
    if len(sizes) < len(dims(type_)):
        raise CannotImport(f"{type_}: sizes are dynamic")
    return sizes


def _constant(op: arith.ConstantOp, args: Sequence[Any]) -> Any:
    if isinstance(op.value, DenseIntOrFPElementsAttr):
        return elements_of(op.value)
    if isinstance(op.value, DenseResourceAttr):
        raise CannotImport("its elements are in a resource")
    return number_of(op.value)


def _cast(op: Operation, args: Sequence[Any]) -> Any:
    (value,) = args
    if op.name in _WITHOUT_SIGN:
        value = _without_sign(op, value)
    dtype = torch.int64 if str(op.results[0].type) == "index" else dtype_of(op.results[0].type)
    if isinstance(value, torch.Tensor):
        return value.to(dtype)
    return float(value) if dtype.is_floating_point else _wrapped(int(value), dtype)


def _wrapped(value: int, dtype: torch.dtype) -> int:
    """Return the lowest bits of an integer, interpreted as an element type."""
    if dtype == torch.bool:
        return value & 1
    half = 1 << (torch.iinfo(dtype).bits - 1)
    return (value + half) % (2 * half) - half


_WITHOUT_SIGN = ("arith.extui", "arith.uitofp", "arith.index_castui")


def _without_sign(op: Operation, value: Any) -> Any:
    """Return an unsigned integer, represented in a wider signed type."""
    operand_type = op.operands[0].type
    held = element(operand_type) if isinstance(operand_type, TensorType) else operand_type
    width = held.width.data if isinstance(held, IntegerType) else 64
    if width == 1:
        return value
    if width > 32:
        raise CannotImport("torch has no integer that wide without a sign")
    if isinstance(value, torch.Tensor):
        return torch.bitwise_and(value.to(torch.int64), (1 << width) - 1)
    return value & ((1 << width) - 1)


_INTEGERS = ("eq", "ne", "slt", "sle", "sgt", "sge")
_FLOATS = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord",
           "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")  # fmt: skip


def _cmpi(op: arith.CmpiOp, args: Sequence[Any]) -> Any:
    number = op.predicate.value.data
    if number >= len(_INTEGERS):
        raise CannotImport("torch's integers are compared with their sign")
    return _compared(_INTEGERS[number].removeprefix("s"), args)


def _cmpf(op: arith.CmpfOp, args: Sequence[Any]) -> Any:
    word = _FLOATS[op.predicate.value.data]
    if word in ("oeq", "ogt", "oge", "olt", "ole", "une"):
        return _compared(word[1:], args)
    if not any(isinstance(value, torch.Tensor) for value in args):
        raise CannotImport(f"{word} of numbers")
    one, other = args
    unordered = torch.isnan(torch.as_tensor(one)) | torch.isnan(torch.as_tensor(other))
    if word in ("uno", "ord"):
        return unordered if word == "uno" else ~unordered
    if word == "one":
        return torch.ne(one, other) & ~unordered
    if word in ("ueq", "ugt", "uge", "ult", "ule"):
        return getattr(torch, word[1:])(one, other) | unordered
    raise CannotImport(f"the predicate {word}")


_TURNED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def _compared(word: str, args: Sequence[Any]) -> Any:
    """Return a comparison, whose first operand PyTorch requires to be a tensor."""
    one, other = args
    if isinstance(other, torch.Tensor) and not isinstance(one, torch.Tensor):
        return getattr(torch, _TURNED[word])(other, one)
    return getattr(_module(args), word)(one, other)


def _module(args: Sequence[Any]) -> Any:
    return torch if any(isinstance(value, torch.Tensor) for value in args) else operator


def _select(op: Operation, args: Sequence[Any]) -> Any:
    condition, one, other = args
    if isinstance(condition, torch.Tensor):
        return torch.where(condition, one, other)
    return one if condition else other


def _two(of_tensors: Callable[..., Any], of_numbers: Callable[..., Any] | None) -> Rule:
    def rule(op: Operation, args: Sequence[Any]) -> Any:
        if any(isinstance(value, torch.Tensor) for value in args):
            tensors = of_tensors(*args)
            wanted = op.results[0].type
            held = element(wanted) if isinstance(wanted, TensorType) else wanted
            if str(held) != "index" and tensors.dtype != torch_dtype(held):
                raise CannotImport(f"{tensors.dtype} is no {held}".replace("torch.", ""))
            return tensors
        if of_numbers is None:
            raise CannotImport("its operands are numbers")
        return of_numbers(*args)

    return rule


def _whole(one: Any, other: Any) -> Any:
    return torch.div(one, other, rounding_mode="trunc")


def _tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that its arguments are converted to tensors."""

    def taking(*args: Any) -> Any:
        like = next(value for value in args if isinstance(value, torch.Tensor))
        return function(
            *(v if isinstance(v, torch.Tensor) else torch.full_like(like, v) for v in args)
        )

    return taking


BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    "arith.addf": (torch.add, operator.add),
    "arith.addi": (torch.add, operator.add),
    "arith.subf": (torch.sub, operator.sub),
    "arith.subi": (torch.sub, operator.sub),
    "arith.mulf": (torch.mul, operator.mul),
    "arith.muli": (torch.mul, operator.mul),
    "arith.divf": (torch.div, None),
    "arith.divsi": (_whole, None),
    "arith.remsi": (torch.fmod, None),
    "arith.floordivsi": (torch.floor_divide, None),
    "arith.maximumf": (_tensors(torch.maximum), None),
    "arith.minimumf": (_tensors(torch.minimum), None),
    "arith.maxnumf": (_tensors(torch.fmax), None),
    "arith.minnumf": (_tensors(torch.fmin), None),
    "arith.maxsi": (_tensors(torch.maximum), max),
    "arith.minsi": (_tensors(torch.minimum), min),
    "arith.andi": (_tensors(torch.bitwise_and), operator.and_),
    "arith.ori": (_tensors(torch.bitwise_or), operator.or_),
    "arith.xori": (_tensors(torch.bitwise_xor), operator.xor),
    "arith.remf": (torch.fmod, None),
    "arith.shli": (_tensors(torch.bitwise_left_shift), operator.lshift),
    "arith.shrsi": (_tensors(torch.bitwise_right_shift), operator.rshift),
    "math.powf": (torch.pow, None),
    "math.fpowi": (torch.pow, None),
    "math.atan2": (_tensors(torch.atan2), None),
    "math.copysign": (_tensors(torch.copysign), None),
}
UNARY: dict[str, Callable[..., Any]] = {
    "arith.negf": torch.neg,
    "math.absf": torch.abs,
    "math.absi": torch.abs,
    "math.roundeven": torch.round,
    **{
        f"math.{name}": getattr(torch, name)
        for name in (
            "acos acosh asin asinh atan atanh ceil cos cosh erf exp exp2 expm1 floor log log10 "
            "log1p log2 rsqrt sin sinh sqrt tan tanh trunc"
        ).split()
    },
}
CASTS = """extf truncf sitofp fptosi extsi extui trunci index_cast index_castui uitofp""".split()


def _reshaped(op: Operation, args: Sequence[Any]) -> Any:
    shape = shape_of(op.results[0].type)
    value = args[0]
    return (
        Undefined(tuple(shape), value.dtype)
        if isinstance(value, Undefined)
        else value.reshape(shape)
    )


def _extract_slice(op: tensor.ExtractSliceOp, args: Sequence[Any]) -> Any:
    offsets, sizes, strides = _places(op, args)
    value = defined(args[0])
    for axis, (at, size, step) in enumerate(zip(offsets, sizes, strides, strict=True)):
        value = torch.ops.aten.slice.Tensor(value, axis, at, at + (size - 1) * step + 1, step)
    return value.reshape(shape_of(op.result.type))


def _insert_slice(op: tensor.InsertSliceOp, args: Sequence[Any]) -> Any:
    offsets, sizes, strides = _places(op, args)
    source, into = defined(args[0]).reshape(sizes), defined(args[1])
    if any(step != 1 for step in strides):
        raise CannotImport("its strides are not 1")
    cut = [i for i, size in enumerate(sizes) if size != into.shape[i]]
    if len(cut) > 1:
        raise CannotImport("it inserts a slice along several axes")
    for axis in cut:
        return torch.slice_scatter(into, source, axis, offsets[axis], offsets[axis] + sizes[axis])
    return source


def _places(op: Any, args: Sequence[Any]) -> tuple[list[int], list[int], list[int]]:
    found: list[list[int]] = []
    rest = iter(args[len(args) - len(op.offsets) - len(op.sizes) - len(op.strides) :])
    for static in (op.static_offsets, op.static_sizes, op.static_strides):
        values = [int(v) for v in static.get_values()]
        known = [next(rest) if value == -(1 << 63) else value for value in values]
        if any(not isinstance(value, int) for value in known):
            raise CannotImport("a place is known only at run time")
        found.append(known)
    return found[0], found[1], found[2]


def _extract(op: tensor.ExtractOp, args: Sequence[Any]) -> Any:
    value, *places = args
    value = defined(value)
    for axis in reversed(range(len(places))):
        if not isinstance(places[axis], torch.Tensor):
            value = value.select(axis, places.pop(axis))
    return torch.ops.aten.index.Tensor(value, [p.long() for p in places]) if places else value


def _insert(op: tensor.InsertOp, args: Sequence[Any]) -> Any:
    scalar, into, *places = args
    into = defined(into)
    if any(isinstance(place, torch.Tensor) for place in places):
        raise CannotImport("its index is known only at run time")
    if not isinstance(scalar, torch.Tensor):
        scalar = torch.full((), scalar, dtype=into.dtype)
    return _scattered(into, scalar, places)


def _scattered(into: torch.Tensor, part: torch.Tensor, places: Sequence[int]) -> torch.Tensor:
    if not places:
        return part
    inner = _scattered(into.select(0, places[0]), part, places[1:])
    return torch.select_scatter(into, inner, 0, places[0])


def _from_elements(op: Operation, args: Sequence[Any]) -> Any:
    type_ = op.results[0].type
    dtype, shape = dtype_of(type_), shape_of(type_)
    if not any(isinstance(value, torch.Tensor) for value in args):
        return torch.tensor(list(args), dtype=dtype).reshape(shape)
    parts = [
        value if isinstance(value, torch.Tensor) else torch.full((), value, dtype=dtype)
        for value in args
    ]
    return torch.stack(parts).reshape(shape)


def _splat(op: Operation, args: Sequence[Any]) -> Any:
    type_, value = op.results[0].type, args[0]
    if isinstance(value, torch.Tensor):
        return value.expand(shape_of(type_))
    return torch.full(shape_of(type_), value, dtype=dtype_of(type_))


def _pad(op: tensor.PadOp, args: Sequence[Any]) -> Any:
    (last,) = [inner for inner in op.region.block.ops if inner.name == "tensor.yield"]
    maker = last.operands[0].owner
    number = args[-1] if not isinstance(maker, arith.ConstantOp) else number_of(maker.value)
    if isinstance(maker, Operation) and not isinstance(maker, arith.ConstantOp):
        raise CannotImport("its padding value is no constant in its region")
    low, high = (list(map(int, given.get_values())) for given in (op.static_low, op.static_high))
    if min([*low, *high], default=0) < 0 or isinstance(number, torch.Tensor):
        raise CannotImport("its widths are known only at run time")
    widths = [width for pair in reversed(list(zip(low, high, strict=True))) for width in pair]
    return torch.nn.functional.pad(defined(args[0]), widths, value=number)


def _dim(op: Operation, args: Sequence[Any]) -> Any:
    return int(args[0].shape[args[1]])


def defined(value: Any) -> torch.Tensor:
    """Return the value if its elements are defined.

    Raises:
        CannotImport: the value is a `tensor.empty`, whose elements are undefined.
    """
    if isinstance(value, Undefined):
        raise CannotImport("it reads elements of an empty tensor, which are undefined")
    return value


def _multiply_add(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def _empty(op: Operation, args: Sequence[Any]) -> Undefined:
    return Undefined(tuple(shape_of(op.results[0].type)), dtype_of(op.results[0].type))


MEANINGS: dict[str, Rule] = {
    "arith.constant": _constant,
    "arith.cmpi": _cmpi,
    "arith.cmpf": _cmpf,
    "arith.select": _select,
    **{f"arith.{name}": _cast for name in CASTS},
    **{name: _two(*functions) for name, functions in BINARY.items()},
    **{name: _two(function, None) for name, function in UNARY.items()},
    "math.fma": _two(_multiply_add, None),
    "tensor.empty": _empty,
    "bufferization.alloc_tensor": _empty,
    "tensor.cast": _reshaped,
    "tensor.reshape": _reshaped,
    "tensor.collapse_shape": _reshaped,
    "tensor.expand_shape": _reshaped,
    "tensor.extract_slice": _extract_slice,
    "tensor.insert_slice": _insert_slice,
    "tensor.pad": _pad,
    "tensor.dim": _dim,
    "tensor.concat": lambda op, args: torch.cat(list(map(defined, args)), int(op.dim.value.data)),
    "tensor.splat": _splat,
    "tensor.extract": _extract,
    "tensor.insert": _insert,
    "tensor.from_elements": _from_elements,
}
"""Name of an op → function of it and its operands: tensors, numbers, `Undefined`."""
