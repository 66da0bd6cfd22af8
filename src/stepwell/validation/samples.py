"""Create samples for checks: random inputs, and inputs that reveal wrong rewrites.

They are seeded, so a finding is reproducible. A sample is *plain* if its numbers are finite and of
moderate size. A bounded (not exact) pass guarantees its bound on plain samples only.

A rewrite that is correct only for even sizes, or only for 1, may be correct at the size of the
example by chance. For symbolic dimensions the check therefore tries the smallest size, its
neighbor, odd, prime, near a power of two, and the largest, within each range. Sizes that depend on
one another (`2*s77 + 1`) follow their symbols.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from stepwell.backends.executorch.bounds import upper_bound
from stepwell.ir.calls.calling import declared_ranges
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.signature import Port, get_signature
from stepwell.ir.sizes.size import UNKNOWN, Computed, Dim, Size
from stepwell.ir.types import BoolType, FloatType, IntType, dims, element
from stepwell.validation.fills import Fill, tensor_of


@dataclass(frozen=True)
class Sample:
    """A set of runtime inputs of a method, in order, and its state before the call.

    Attributes:
        label: the description in reports.
        inputs: the input values.
        plain: whether its numbers are finite and of moderate size.
        state: the values of mutable buffers before the call, by key; by default their initial
            values.
        followed: whether the method is run completely only before the first and after the last
            pass; in between only replaced values are computed, so that many such samples are cheap.
        guessed: whether the program may be undefined on it; a failure is then no finding.
    """

    label: str
    inputs: tuple[Any, ...]
    plain: bool
    state: Mapping[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    followed: bool = False
    guessed: bool = False


SMALL_INTEGERS = (torch.int8, torch.uint8, torch.int16)
INTEGERS = (*SMALL_INTEGERS, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64)

FILLS: tuple[tuple[str, Fill, bool], ...] = (
    ("random", "random", True),
    ("mixed with zeros of both signs", "mixed", True),
    ("zeros", "zeros", True),
    ("denormals", "denormal", False),
    ("infinities and NaNs", "infinities", False),
    ("extremes", "extremes", False),
)
"""(label, filling of floats, whether plain), the most revealing first."""


def make_samples(func: FuncOp, example: Sequence[Any] | None = None, seed: int = 0) -> list[Sample]:
    """Return samples of a method, the most revealing first.

    Args:
        func: the method; its signature defines dtypes, dim orders and ranges of symbols.
        example: runtime inputs known to be valid. Integer inputs (token ids, masks, positions) keep
            their values if given; otherwise they are small and non-negative.
        seed: the seed of the random numbers.
    """
    random = torch.Generator().manual_seed(seed)
    types = func.function_type.inputs.data
    ports = get_signature(func).runtime_inputs
    usual = usual_sizes(func, example)
    samples: list[Sample] = []
    if example is not None:
        samples.append(Sample("example", tuple(example), True))
    for label, fill, plain in FILLS:
        samples.append(_sample(label, types, ports, example, usual, fill, plain, random))
    samples += _integer_samples(types, ports, example, usual, random)
    for label, point in revealing_sizes(func, example):
        ends = label.endswith("shapes")
        sample = _sample(f"random, {label}", types, ports, None, point, "random", True, random)
        samples.append(sample if ends else replace(sample, followed=True))
    held = declared_ranges(func)
    given = len(samples) if not any(held) else int(example is not None)
    others = (replace(s, inputs=tuple(map(within, s.inputs, held))) for s in samples[given:])
    return [*samples[:given], *others]


def within(value: Any, held: tuple[float, float] | None) -> Any:
    """Return a tensor clamped to its declared range, where NaN becomes the minimum; a number as it
    is.
    """
    if held is None or not isinstance(value, torch.Tensor):
        return value
    value = value.nan_to_num(held[0]) if value.is_floating_point() else value
    return value.clamp(*held)


def _integer_samples(
    types: Sequence[Attribute],
    ports: Sequence[Port],
    example: Sequence[Any] | None,
    symbols: Mapping[str, int],
    random: torch.Generator,
) -> list[Sample]:
    """Return samples with other integers, and with both extremes of each small type, if a method
    has integer inputs.
    """

    def other(type_: Attribute, given: Any) -> torch.Tensor:
        is_given = isinstance(given, torch.Tensor) and given.numel()
        low, high = (int(given.min()), int(given.max())) if is_given else (-3, 8)
        return torch.randint(low, high + 1, shape_at(type_, symbols), generator=random)

    def extremes(type_: Attribute, given: Any) -> torch.Tensor:
        info = torch.iinfo(dtype_of(type_))
        table = torch.tensor([info.min, info.max, 0])
        return table[torch.randint(0, 3, shape_at(type_, symbols), generator=random)]

    samples: list[Sample] = []
    for label, dtypes, made in (("other integers", INTEGERS, other),
                                ("integer extremes", SMALL_INTEGERS, extremes)):  # fmt: skip
        whole = [isinstance(t, TensorType) and dtype_of(t) in dtypes for t in types]
        if not any(whole):
            continue
        inputs = list(_sample(label, types, ports, example, symbols, "random", True, random).inputs)
        for index, type_ in enumerate(types):
            if whole[index]:
                value = made(type_, None if example is None else example[index])
                inputs[index] = _in_order(value.to(dtype_of(type_)), ports[index])
        is_guessed = made is other
        samples.append(Sample(label, tuple(inputs), True, followed=is_guessed, guessed=is_guessed))
    return samples


def dtype_of(type_: Attribute) -> torch.dtype:
    """Return the dtype of a tensor type's elements."""
    return torch_dtype(element(type_))


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
    tensor: Any,
    symbols: Mapping[str, int],
    fill: Fill,
    random: torch.Generator,
) -> torch.Tensor:
    dtype, shape = dtype_of(type_), shape_at(type_, symbols)
    if dtype not in INTEGERS:
        return _in_order(tensor_of(shape, dtype, fill, random), port)
    if isinstance(tensor, torch.Tensor):
        return tensor
    return _in_order(torch.randint(0, 2, shape, generator=random).to(dtype), port)


def _in_order(value: torch.Tensor, port: Port) -> torch.Tensor:
    """Return a sample's tensors in the memory layouts that the method's signature requires."""
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
    if isinstance(type_, BoolType | FloatType):
        return True if isinstance(type_, BoolType) else 0.5
    raise StepwellError(
        f"no sample can be created for type {type_}", help="give inputs: check(..., inputs=...)"
    )


UNBOUNDED_EXTRA = 12
"""The distance from the lower bound at which a dimension without an upper bound is tried."""
MOST_ELEMENTS = 1 << 24
"""The limit of elements up to which inputs are created at an upper bound."""

Point = Mapping[str, int]
"""A value for each symbol."""


def usual_sizes(func: FuncOp, example: Sequence[Any] | None) -> dict[str, int]:
    """Return the values of symbols in the model's example inputs, or default values."""
    return {
        symbol: min(low + 1, top) if given is None else given
        for symbol, (low, top, given) in _symbols(func, example).items()
    }


def revealing_sizes(func: FuncOp, example: Sequence[Any] | None) -> list[tuple[str, Point]]:
    """Return sizes that reveal wrong rewrites, with labels, the ends of all ranges first."""
    symbols = _symbols(func, example)
    if not symbols:
        return []
    types = func.function_type.inputs.data
    usual = usual_sizes(func, example)
    found: list[tuple[str, Point]] = [
        ("smallest shapes", {name: low for name, (low, _, _) in symbols.items()}),
        ("largest shapes", {name: top for name, (_, top, _) in symbols.items()}),
    ]
    each = {name: _revealing(low, top, usual[name]) for name, (low, top, _) in symbols.items()}
    for at in range(max(map(len, each.values()))):
        point = {
            name: sizes[(at + shift) % len(sizes)] if sizes else usual[name]
            for shift, (name, sizes) in enumerate(each.items())
        }
        spelt = ", ".join(f"{name}={size}" for name, size in point.items())
        found.append((f"sizes {spelt}", point))
    seen: list[Point] = [usual]
    kept: list[tuple[str, Point]] = []
    for label, point in found:
        if point not in seen and elements(types, point) <= MOST_ELEMENTS:
            seen.append(point)
            kept.append((label, point))
    return kept


def _revealing(low: int, top: int, usual: int) -> list[int]:
    """Return a few sizes of a range that are likely to reveal wrong rewrites, some of them near
    `usual`, the most revealing first.
    """
    power = 4
    while power < usual and power * 2 + 1 < top:
        power *= 2
    odd = next((n for n in range(max(usual, low) + 1, top) if n % 2), low | 1)
    prime = next((n for n in range(odd + 1, top) if all(n % by for by in range(2, n))), 3)
    wanted = (low + 1, odd, prime, power - 1, power, power + 1, top - 1)
    return list(dict.fromkeys(n for n in wanted if low < n < top and n != usual))


def _symbols(func: FuncOp, example: Sequence[Any] | None) -> dict[str, tuple[int, int, int | None]]:
    """Return, for each input symbol, the smallest and largest value to try and the example's."""
    ranges = dict(get_signature(func).ranges)
    symbols: dict[str, tuple[int, int, int | None]] = {}
    for index, type_ in enumerate(func.function_type.inputs.data):
        sizes: list[tuple[Dim, int | None]] = []
        given = example[index] if example is not None else None
        if isinstance(type_, TensorType):
            shape = list(given.shape) if isinstance(given, torch.Tensor) else None
            sizes = [(dim, shape[axis] if shape else None) for axis, dim in enumerate(dims(type_))]
        elif isinstance(type_, IntType):
            sizes = [(type_.size, given if isinstance(given, int) else None)]
        for expression, size in sizes:
            if isinstance(expression, int) or expression == UNKNOWN:
                continue
            for symbol in sorted(expression.symbols):
                low, high = ranges.get(symbol, (2, None))
                low = max(low, 1)
                top = low + UNBOUNDED_EXTRA if high is None else max(high, low)
                usual = None if size is None else _solved(expression, symbol, size)
                before = symbols.get(symbol, (low, top, None))[2]
                symbols[symbol] = (low, top, before if usual is None else usual)
    return symbols


def _solved(expression: Size, symbol: str, size: int) -> int | None:
    """Return the value of a symbol for which its expression (`2*s77 + 1`) is `size`; None if
    unknown.
    """
    if len(expression.symbols) > 1 or any(isinstance(a, Computed) for a in expression.atoms):
        return None
    at_zero, at_one = (expression.evaluate({symbol: value}) for value in (0, 1))
    if at_zero == at_one:
        return None
    value = (size - at_zero) // (at_one - at_zero)
    return value if expression.evaluate({symbol: value}) == size else None


def shape_at(type_: Attribute, point: Point) -> tuple[int, ...]:
    """Return the shape of a tensor type for values of its symbols."""
    ranges = {name: (value, value) for name, value in point.items()}
    return tuple(d if isinstance(d, int) else upper_bound(str(d), ranges) for d in dims(type_))


def elements(types: Sequence[Attribute], point: Point) -> int:
    """Return the total number of elements of the tensors among some types."""
    return sum(prod(shape_at(type_, point)) for type_ in types if isinstance(type_, TensorType))
