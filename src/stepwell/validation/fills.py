"""Create test tensors, whose elements and memory layout are selected by name (a *fill*)."""

import math
import zlib
from collections.abc import Sequence
from typing import Any, Literal

import torch
from xdsl.ir import Attribute

from stepwell.dialects.quant.types import quantization, storage_dtype
from stepwell.ir.dtypes import is_float, torch_dtype
from stepwell.ir.types import BoolType, FloatType, TensorType, dims, element

Fill = Literal[
    "random", "ones", "zeros", "negative zeros", "positive", "negative", "causal", "rolled",
    "distinct", "rows", "integers", "extremes", "huge", "denormal", "special", "mixed",
    "infinities", "every class", "sizes mixed",
]  # fmt: skip
NAMED: tuple[Fill, ...] = ("ones", "zeros", "positive", "causal", "rolled")
"""Fills that a key may select, as in `g#positive`."""
SPECIAL = (0.0, -0.0, 1.0, -1.0, torch.nan, torch.inf, -torch.inf, 1e-40, -3e38, 3e38, 6.0, -3.0)
"""Values that exact rewrites preserve bit for bit."""
_TABLES: dict[str, tuple[float, ...]] = {
    "special": SPECIAL,
    # Half-integers, integers and zeros of both signs produce ties.
    "integers": (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -2.5, 3.0, 6.0),
}
_AMONG: dict[str, tuple[float, tuple[float, ...]]] = {
    "mixed": (0.4, (0.0, -0.0, 1.0, -1.0, 0.5)),
    "infinities": (0.2, (torch.nan, torch.inf, -torch.inf, 0.0, -0.0)),
    "every class": (0.5, (torch.inf, -torch.inf, torch.nan, -0.0)),
}
"""Ordinary numbers with some of these among them: their share, and the numbers. `mixed` also has
the smallest normal number of the type, `every class` denormals and the greatest numbers.
"""
DECADES = 30
"""The powers of ten on either side of 1 in `sizes mixed`."""
SYMBOL = 3
"""The value of a symbolic size, where its range allows it."""
UNRULY: frozenset[Fill] = frozenset({"extremes", "huge", "special"})
"""Fills with which sums overflow or are NaN: a bounded rewrite guarantees nothing for them."""


def fill_of(key: str) -> Fill:
    """Return the fill (the kind of test numbers) that a key selects."""
    for name in NAMED:
        if f"#{name}" in key:
            return name
    return "random"


def tensor_of(
    shape: Sequence[int], dtype: torch.dtype, fill: Fill, random: torch.Generator | None = None
) -> torch.Tensor:
    """Return a test tensor with the numbers of a fill (a kind of test numbers), rounded to the
    tensor's dtype.
    """
    if fill in ("ones", "zeros"):
        return torch.full(shape, fill == "ones", dtype=dtype)
    if fill == "rolled":
        places = torch.arange(shape[0] if shape else 1).roll(1).to(dtype)
        return places.reshape([-1, *[1] * (len(shape) - 1)][: len(shape)]).expand(shape).clone()
    if fill == "causal":
        if len(shape) < 2:
            return torch.zeros(shape, dtype=dtype)
        allowed = torch.ones(shape, dtype=torch.bool).tril()
        if not dtype.is_floating_point:
            return allowed.to(dtype)
        return torch.zeros(shape, dtype=dtype).masked_fill(~allowed, -torch.inf)
    if fill == "distinct":
        places = torch.randperm(math.prod(shape), generator=random) - math.prod(shape) // 2
        return places.reshape(shape).to(dtype)
    if dtype == torch.bool:
        return torch.rand(shape, generator=random) > 0.5
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype, generator=random)
    if not dtype.is_floating_point:
        return _integers(shape, dtype, fill, random)
    return _floats(shape, dtype, fill, random)


def _integers(
    shape: Sequence[int], dtype: torch.dtype, fill: Fill, random: torch.Generator | None
) -> torch.Tensor:
    info = torch.iinfo(dtype)
    if fill == "extremes":
        table = torch.tensor([info.min, info.max, 0, 1, max(info.min, -1)], dtype=dtype)
        return table[torch.randint(0, len(table), shape, generator=random)]
    ends = {
        "integers": (-9, 10),
        "negative": (-9, 0),
        "rows": (-2, 2),
        "huge": (info.max // 2, info.max),
        "sizes mixed": (info.min // 2, info.max // 2),
    }
    low, high = ends.get(fill, (0, 3))
    low, high = max(low, info.min), min(high, info.max)
    return torch.randint(low, max(high, low + 1), shape, generator=random).to(dtype)


def _floats(
    shape: Sequence[int], dtype: torch.dtype, fill: Fill, random: torch.Generator | None
) -> torch.Tensor:
    if dtype.itemsize == 1:  # MX payloads and scales may have any code.
        ends = (0x70, 0x80) if dtype == torch.float8_e8m0fnu else (0, 0x78)
        return torch.randint(*ends, shape, generator=random).to(torch.uint8).view(dtype)
    limits = torch.finfo(dtype)
    real = torch.randn(shape, generator=random, dtype=torch.float64)
    if fill in _TABLES or fill == "extremes":
        numbers = _TABLES.get(fill, (-limits.max, limits.max, 1.0, -1.0))
        table = torch.tensor(numbers, dtype=torch.float64)
        return table[torch.randint(0, len(table), shape, generator=random)].to(dtype)
    if fill in _AMONG:
        share, numbers = _AMONG[fill]
        tiny = limits.smallest_normal
        more = {"mixed": (tiny,), "every class": (tiny / 4, -tiny / 4, limits.max, -limits.max)}
        table = torch.tensor((*numbers, *more.get(fill, ())), dtype=torch.float64)
        chosen = torch.rand(shape, generator=random) < share
        picked = table[torch.randint(0, len(table), shape, generator=random)]
        return torch.where(chosen, picked, real).to(dtype)
    if fill == "sizes mixed":
        most = 4 if dtype == torch.float16 else DECADES
        powers = 2 * torch.rand(shape, generator=random, dtype=torch.float64) - 1
        return (real * 10.0 ** (most * powers)).to(dtype)
    if fill == "positive":
        real = torch.rand(shape, generator=random, dtype=torch.float64) + 0.5
    made = {
        "negative": -real.abs(),
        "negative zeros": torch.full(shape, -0.0),
        "denormal": real * limits.smallest_normal / 4,
        "huge": real.sign() * limits.max / 2,
    }
    return made.get(fill, real).to(dtype)


def value_of(type_: Any, fill: Fill, shape: Sequence[int], random: torch.Generator) -> torch.Tensor:
    """Return a value of a tensor type; for a quantized type, its stored integers."""
    stored = quantization(type_)
    if stored is None:
        return tensor_of(shape, torch_dtype(element(type_)), fill, random)
    ends = (stored.low, stored.high + 1)
    if fill == "zeros":
        zero = min(max(stored.zero_points[0], stored.low), stored.high)
        ends = (zero, zero + 1)
    made = torch.randint(*ends, shape, generator=random).to(storage_dtype(stored))
    if fill in ("extremes", "special"):
        at = torch.rand(shape, generator=random) > 0.5
        low, high = (torch.full_like(made, end) for end in (stored.low, stored.high))
        made = torch.where(at, low, high)
    return made


def is_real(type_: Any) -> bool:
    """Whether a type is a float, or a tensor of floats."""
    if not isinstance(type_, TensorType):
        return isinstance(type_, FloatType)
    return quantization(type_) is None and is_float(element(type_))


def inputs_of(
    types: Sequence[Attribute], real: Fill, whole: Fill, random: torch.Generator
) -> list[Any]:
    """Return a value of each type.

    Args:
        types: the types of a method's inputs.
        real: the fill of float and quantized inputs.
        whole: the fill of integer inputs.
        random: the random number generator.
    """
    made: list[Any] = []
    for type_ in types:
        if isinstance(type_, TensorType):
            shape = [d if isinstance(d, int) else SYMBOL for d in dims(type_)]
            fill = real if is_real(type_) or quantization(type_) is not None else whole
            made.append(value_of(type_, fill, shape, random))
        else:
            numbers: dict[type[Attribute], Any] = {BoolType: True, FloatType: 0.5}
            made.append(numbers.get(type(type_), SYMBOL))
    return made


def weight_tensor(type_: Attribute, fill: Fill, lying: str) -> torch.Tensor:
    """Return a weight of a type. Its elements depend on the type only, so that findings are
    reproducible.
    """
    random = torch.Generator().manual_seed(zlib.crc32(f"{type_} {fill}".encode()))
    shape = [d for d in dims(type_) if isinstance(d, int)]
    value = value_of(type_, fill, shape, random)
    if lying == "transposed" and value.dim() > 1:
        back = value.transpose(0, -1).contiguous()
        return back.transpose(0, -1)
    if lying == "expanded" and value.dim():
        return value[:1].expand(shape)
    if lying == "sliced":
        wide = torch.empty([2 * size for size in shape], dtype=value.dtype)
        view = wide[tuple(slice(None, None, 2) for _ in shape)]
        view.copy_(value)
        return view
    return value
