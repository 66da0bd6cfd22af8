"""Inputs to check with: random ones, and those on which wrong rewrites show.

Seeded, so that a finding can be made again. A sample is *plain* if its numbers are finite and of
moderate size: only on those does a bounded (not exact) step promise anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from stepwell.backends.executorch.bounds import upper_bound
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.signature import Port, get_signature
from stepwell.ir.size import UNKNOWN, Computed, Dim, Size
from stepwell.ir.types import BoolType, FloatType, IntType, dims, element

UNBOUNDED_EXTRA = 3
"""How far above its lower bound a dimension without an upper one is tried."""
MOST_ELEMENTS = 1 << 24
"""Inputs larger than this are not made for the sake of an upper bound."""


@dataclass(frozen=True)
class Sample:
    """One set of run-time inputs of a method, in order."""

    label: str
    inputs: tuple[Any, ...]
    plain: bool


Fill = Callable[[Sequence[int], torch.dtype, torch.Generator], torch.Tensor]


def _normal(shape: Sequence[int], dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=random).to(dtype)


def _zeros(shape: Sequence[int], dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def _denormal(shape: Sequence[int], dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    tiny = torch.finfo(dtype).smallest_normal
    return (torch.randn(shape, generator=random, dtype=torch.float64) * tiny / 4).to(dtype)


def _extreme(shape: Sequence[int], dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    limit = torch.finfo(dtype).max
    choices = torch.tensor([-limit, limit, 1.0, -1.0], dtype=torch.float64)
    return choices[torch.randint(0, 4, tuple(shape), generator=random)].to(dtype)


def _special(shape: Sequence[int], dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    values = _normal(shape, dtype, random)
    return _sprinkle(values, [torch.inf, -torch.inf, torch.nan], 0.1, random)


def _mixed(shape: Sequence[int], dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    tiny = float(torch.finfo(dtype).smallest_normal)
    return _sprinkle(_normal(shape, dtype, random), [0.0, -0.0, 1.0, -1.0, 0.5, tiny], 0.4, random)


def _sprinkle(
    values: torch.Tensor, special: Sequence[float], share: float, random: torch.Generator
) -> torch.Tensor:
    chosen = torch.rand(values.shape, generator=random) < share
    which = torch.randint(0, len(special), tuple(values.shape), generator=random)
    table = torch.tensor(special, dtype=torch.float64).to(values.dtype)
    return torch.where(chosen, table[which], values)


FILLS: tuple[tuple[str, Fill, bool], ...] = (
    ("random", _normal, True),
    ("mixed with zeros of both signs", _mixed, True),
    ("zeros", _zeros, True),
    ("denormals", _denormal, False),
    ("infinities and NaNs", _special, False),
    ("extremes", _extreme, False),
)
"""(label, how floats are filled, plain), the most telling first."""


def make_samples(func: FuncOp, example: Sequence[Any] | None = None, seed: int = 0) -> list[Sample]:
    """Samples of a method, the most telling first.

    Args:
        func: the method; its signature gives dtypes, dim orders and ranges of symbols.
        example: run-time inputs known to be valid. Integer inputs (token ids, masks, positions)
            keep their values where there are any; otherwise they are small and non-negative.
        seed: of the random numbers.
    """
    random = torch.Generator().manual_seed(seed)
    types = func.function_type.inputs.data
    ports = get_signature(func).runtime_inputs
    usual = _symbols(func, example, "usual")
    made: list[Sample] = []
    if example is not None:
        made.append(Sample("example", tuple(example), True))
    for label, fill, plain in FILLS:
        made.append(_sample(label, types, ports, example, usual, fill, plain, random))
    made += _integer_samples(types, ports, example, usual, random)
    for which in ("smallest", "largest"):
        symbols = _symbols(func, example, which)
        if symbols != usual and _elements(types, symbols) <= MOST_ELEMENTS:
            label = f"random, {which} shapes"
            made.append(_sample(label, types, ports, None, symbols, _normal, True, random))
    return made


def _integer_samples(
    types: Sequence[Attribute],
    ports: Sequence[Port],
    example: Sequence[Any] | None,
    symbols: Mapping[str, int],
    random: torch.Generator,
) -> list[Sample]:
    """Both extremes of each small integer type, where the program has such inputs."""
    small = [t for t in types if isinstance(t, TensorType) and _is_small_integer(t)]
    if not small:
        return []

    def extremes(type_: Attribute) -> torch.Tensor | None:
        if not isinstance(type_, TensorType) or not _is_small_integer(type_):
            return None
        info = torch.iinfo(torch_dtype(element(type_)))
        table = torch.tensor([info.min, info.max, 0], dtype=dtype_of(type_))
        return table[torch.randint(0, 3, _shape(type_, symbols), generator=random)]

    base = _sample("", types, ports, example, symbols, _normal, True, random).inputs
    mixed = [
        base[i] if (value := extremes(t)) is None else _in_order(value, ports[i])
        for i, t in enumerate(types)
    ]
    return [Sample("integer extremes", tuple(mixed), True)]


def dtype_of(type_: Attribute) -> torch.dtype:
    """The dtype of a tensor type's elements."""
    return torch_dtype(element(type_))


def _is_small_integer(type_: Attribute) -> bool:
    return dtype_of(type_) in (torch.int8, torch.uint8, torch.int16)


def _sample(
    label: str,
    types: Sequence[Attribute],
    ports: Sequence[Port],
    example: Sequence[Any] | None,
    symbols: Mapping[str, int],
    fill: Fill,
    plain: bool,
    random: torch.Generator,
) -> Sample:
    inputs: list[Any] = []
    for index, type_ in enumerate(types):
        given = example[index] if example is not None else None
        if isinstance(type_, TensorType):
            inputs.append(_tensor(type_, ports[index], given, symbols, fill, random))
        else:
            inputs.append(_number(type_, given, symbols))
    return Sample(label, tuple(inputs), plain)


def _tensor(
    type_: Attribute,
    port: Port,
    given: Any,
    symbols: Mapping[str, int],
    fill: Fill,
    random: torch.Generator,
) -> torch.Tensor:
    dtype, shape = dtype_of(type_), _shape(type_, symbols)
    if dtype.is_complex:
        value = torch.randn(shape, generator=random, dtype=dtype)
    elif dtype.is_floating_point:
        value = fill(shape, dtype, random)
    elif dtype == torch.bool:
        value = torch.randint(0, 2, shape, generator=random).bool()
    elif isinstance(given, torch.Tensor):
        return given
    else:
        value = torch.randint(0, 2, shape, generator=random).to(dtype)
    return _in_order(value, port)


def _in_order(value: torch.Tensor, port: Port) -> torch.Tensor:
    """The same values, lying in memory as the signature asks."""
    if port.dim_order is None:
        return value.contiguous()
    order = port.dim_order
    back = [order.index(axis) for axis in range(len(order))]
    return value.permute(order).contiguous().permute(back)


def _number(type_: Attribute, given: Any, symbols: Mapping[str, int]) -> Any:
    if given is not None:
        return given
    if isinstance(type_, IntType):
        return upper_bound(type_.data, {name: (v, v) for name, v in symbols.items()})
    if isinstance(type_, BoolType):
        return True
    if isinstance(type_, FloatType):
        return 0.5
    raise StepwellError(
        f"no sample can be made of type {type_}", help="give inputs: check(..., inputs=...)"
    )


def _shape(type_: Attribute, symbols: Mapping[str, int]) -> tuple[int, ...]:
    point = {name: (value, value) for name, value in symbols.items()}
    return tuple(d if isinstance(d, int) else upper_bound(str(d), point) for d in dims(type_))


def _elements(types: Sequence[Attribute], symbols: Mapping[str, int]) -> int:
    total = 0
    for type_ in types:
        if isinstance(type_, TensorType):
            count = 1
            for size in _shape(type_, symbols):
                count *= size
            total += count
    return total


def _symbols(func: FuncOp, example: Sequence[Any] | None, which: str) -> dict[str, int]:
    """A value for each symbol: the example's, or the smallest or largest its range allows."""
    ranges = dict(get_signature(func).ranges)
    found: dict[str, int] = {}
    for index, type_ in enumerate(func.function_type.inputs.data):
        sizes: list[tuple[Dim, int | None]] = []
        if isinstance(type_, TensorType):
            given = example[index] if example is not None else None
            shape = list(given.shape) if isinstance(given, torch.Tensor) else None
            sizes = [(dim, shape[axis] if shape else None) for axis, dim in enumerate(dims(type_))]
        elif isinstance(type_, IntType):
            sizes = [(type_.size, None)]
        for expression, size in sizes:
            if isinstance(expression, int) or expression == UNKNOWN:
                continue
            for symbol in sorted(expression.symbols):
                low, high = ranges.get(symbol, (2, None))
                top = low + UNBOUNDED_EXTRA if high is None else high
                usual = None if size is None else _solved(expression, symbol, size)
                middle = min(low + 1, top) if usual is None else usual
                found[symbol] = {"usual": middle, "smallest": max(low, 1), "largest": top}[which]
    return found


def _solved(expression: Size, symbol: str, size: int) -> int | None:
    """What a symbol is where its expression (`2*s77 + 1`) is `size`; None if that is open."""
    if len(expression.symbols) > 1 or any(isinstance(a, Computed) for a in expression.atoms):
        return None
    at_zero, at_one = (expression.evaluate({symbol: value}) for value in (0, 1))
    if at_zero == at_one:
        return None
    value = (size - at_zero) // (at_one - at_zero)
    return value if expression.evaluate({symbol: value}) == size else None
