"""Numbers modulo a prime, of which a tensor holds one for each element: arithmetic and digests.

Two expressions that are equal as rational functions are equal modulo the prime for every choice of
their variables; two that differ are so for few choices (Schwartz and Zippel: degree / prime). What
is no rational function is a digest of its operands, which is as good as random.

Sources: Wu et al., Mirage: A Multi-Level Superoptimizer for Tensor Programs, OSDI 2025, section 5.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import frexp
from typing import Any

import torch
from torch import Tensor

PRIME = (1 << 31) - 1
"""A product of two numbers below it fits into an int64."""
_HALF = 1 << 16
_GAMMA, _MIX, _LAST = -7046029254386353131, -4658895280553007687, -7723592293110705685
"""Of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), as signed numbers."""


def mixed(x: Tensor) -> Tensor:
    """A digest of each number, below the prime."""
    x = x + _GAMMA
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _MIX
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * _LAST
    return ((x ^ ((x >> 31) & 0x1FFFFFFFF)) & 0x7FFFFFFFFFFFFFFF) % PRIME


@cache
def word(text: str) -> int:
    """A number for a name, below the prime."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % PRIME


def digest(name: str, *operands: Tensor) -> Tensor:
    """What a function that is only known by its name gives of some numbers."""
    found = torch.full((), word(name), dtype=torch.int64)
    for each in operands:
        found = mixed(found * 3 + each)
    return found


def unordered(name: str, one: Tensor, other: Tensor) -> Tensor:
    """`digest` of a function that commutes."""
    return digest(name, torch.minimum(one, other), torch.maximum(one, other))


def times(one: Tensor, other: Tensor) -> Tensor:
    """Products, element by element."""
    return one * other % PRIME


def power(x: Tensor, exponent: int) -> Tensor:
    """X to a whole number that is not below 0."""
    found = torch.ones_like(x)
    while exponent:
        if exponent & 1:
            found = times(found, x)
        x = times(x, x)
        exponent >>= 1
    return found


def inverse(x: Tensor) -> Tensor:
    """1 / x, by Fermat; 0 of 0."""
    return power(x, PRIME - 2)


def bilinear(product: Callable[[Tensor, Tensor], Tensor], one: Tensor, other: Tensor) -> Tensor:
    """A sum of products of two tensors, exactly, by a kernel for doubles.

    Args:
        product: what the kernel computes; it adds up fewer than 2²⁰ products.
    """
    low, high = (
        ((t % _HALF).double() for t in (one, other)),
        ((t // _HALF).double() for t in (one, other)),
    )
    (a, b), (c, d) = low, high
    bottom = product(a, b).long() % PRIME
    middle = (product(a, d).long() + product(c, b).long()) % PRIME
    top = product(c, d).long() % PRIME
    return (bottom + middle * _HALF + top * (_HALF * _HALF % PRIME) % PRIME) % PRIME


def random(name: str, shape: Any, seed: int) -> Tensor:
    """Numbers of a variable: any, the same for the same name."""
    count = 1
    for size in shape:
        count *= int(size)
    start = word(f"{seed}:{name}")
    return mixed(torch.arange(count, dtype=torch.int64) * 5 + start * 8191).reshape(list(shape))


# -- constants -----------------------------------------------------------------------------------

_MOST = 4096
"""Different numbers of a constant that are looked at one by one."""


@cache
def of_number(value: float, bits: int = 53) -> int:
    """A float as the simplest number that it is near: 0.1 is 1/10 in every type.

    Within a unit in the last place: a fraction, or a second or fourth root of one, such as 32^-½.
    """
    if value != value or value in (float("inf"), float("-inf")):
        return word("inf") if value > 0 else PRIME - word("inf") if value < 0 else word("nan")
    exact = Fraction(value)
    slack = Fraction(15, 16) * Fraction(2) ** (frexp(value)[1] - bits)
    found = exact if exact.denominator == 1 else _simplest(exact, slack)
    if exact.denominator == 1 or _is_short(found, bits):
        return _of_fraction(found)
    for order in (2, 4):
        power_ = _simplest(abs(exact) ** order, order * slack * abs(exact) ** (order - 1))
        root = _of_fraction(power_)
        if _is_short(power_, bits) and pow(root, (PRIME - 1) // 2, PRIME) == 1:
            for _ in range(order.bit_length() - 1):
                root = pow(root, (PRIME + 1) // 4, PRIME)  # The root that is a square itself.
            return root if exact > 0 else PRIME - root
    return _of_fraction(found)


def _of_fraction(value: Fraction) -> int:
    return value.numerator % PRIME * pow(value.denominator % PRIME, PRIME - 2, PRIME) % PRIME


def _is_short(value: Fraction, bits: int) -> bool:
    """Whether a fraction has so few digits that it is none by chance."""
    return abs(value.numerator) * value.denominator < 1 << (bits * 3 // 5)


def _simplest(value: Fraction, slack: Fraction) -> Fraction:
    """The fraction of the least denominator not further off than `slack`."""
    found = _between(abs(value) - slack, abs(value) + slack)
    return found if value > 0 else -found


def _between(low: Fraction, high: Fraction) -> Fraction:
    """The simplest fraction of an interval (Stern and Brocot)."""
    whole = low.numerator // low.denominator
    if whole + 1 <= high or low.denominator == 1:
        return Fraction(whole if low.denominator == 1 else whole + 1)
    return whole + 1 / _between(1 / (high - whole), 1 / (low - whole))


_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


def of_tensor(value: Tensor) -> Tensor:
    """Elements that are known, as numbers."""
    if value.dtype == torch.bool or not value.is_floating_point():
        return value.long() % PRIME
    if value.dtype not in _BITS:
        return digest(str(value.dtype), value.view(torch.uint8).long())
    bits = _BITS[value.dtype]
    kinds, places = value.double().reshape(-1).unique(return_inverse=True)
    if len(kinds) > _MOST:
        return _exactly(value.double())
    made = torch.tensor([of_number(each, bits) for each in kinds.tolist()], dtype=torch.int64)
    return made[places].reshape(value.shape)


def _exactly(value: Tensor) -> Tensor:
    """Each float as the fraction that it is: a whole number times a power of two."""
    fraction, exponent = torch.frexp(value)
    whole = (fraction * (1 << 53)).long() % PRIME
    powers = torch.tensor([pow(2, (k - 53) % (PRIME - 1), PRIME) for k in range(-1100, 1100)])
    return times(whole, powers[exponent.long() + 1100])


def of_bits(value: Tensor) -> Tensor:
    """Elements that are known, where 0 and −0 are two; −x is the opposite of x."""
    if value.dtype == torch.bool or not value.is_floating_point():
        return value.long() % PRIME
    if value.dtype not in _BITS:
        return digest(str(value.dtype), value.view(torch.uint8).long())
    wide = value.double().abs().nan_to_num(nan=-1.0)
    made = mixed(wide.contiguous().view(torch.int64))
    return torch.where(value.signbit(), (PRIME - made) % PRIME, made)
