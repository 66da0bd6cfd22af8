"""Compute sums, products and digests modulo a prime, elementwise on tensors.

Two expressions that are equal as rational functions are equal modulo the prime for every choice of
their variables. Two that differ are equal for few choices (Schwartz and Zippel: degree / prime). A
value that is not a rational function is represented by a digest of its operands, which is as good
as random.

Sources: Wu et al., Mirage: A Multi-Level Superoptimizer for Tensor Programs, OSDI 2025, section 5.
"""

import hashlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from math import frexp
from random import Random
from typing import Any

import torch
from torch import Tensor

PRIME = 1686629999
"""A prime below 2³¹, so that a product of two numbers below it fits into an int64.

No power of two is near a multiple of it (2³¹ is 1 modulo 2³¹ − 1). It is 23 modulo 24, so that 2
and 3 have square roots, and roots are powers.
"""
_CHOSEN: ContextVar[tuple[int, int]] = ContextVar("the prime and the key", default=(PRIME, 0))


def prime() -> int:
    """Return the prime modulo which expressions are compared."""
    return _CHOSEN.get()[0]


@contextmanager
def chosen_by(seed: int) -> Generator[None]:
    """Choose the prime and the key of digests from a seed, for the duration of the context.

    For a known prime, an attacker could write a statement with constants that differ by a multiple
    of it, or with names whose digests collide.
    """
    source = Random(seed)
    found = 0
    while not _is_prime(found):
        found = source.randrange((1 << 30) + 7, 1 << 31, 24)
    token = _CHOSEN.set((found, source.getrandbits(62)))
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def _is_prime(number: int) -> bool:
    """Whether a number below 2³¹, 3 modulo 4, is prime (Miller and Rabin; these bases decide)."""
    odd = number - 1 >> 1
    return number > 7 and all(pow(base, odd, number) in (1, number - 1) for base in (2, 3, 5, 7))


_HALF = 1 << 16
_GAMMA, _MIX, _LAST = -7046029254386353131, -4658895280553007687, -7723592293110705685
"""The constants of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), as signed integers."""


def mixed(x: Tensor) -> Tensor:
    """Hash each element of a tensor of numbers to an element of the prime field."""
    x = (x ^ _CHOSEN.get()[1]) + _GAMMA
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _MIX
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * _LAST
    return ((x ^ ((x >> 31) & 0x1FFFFFFFF)) & 0x7FFFFFFFFFFFFFFF) % prime()


def word(text: str) -> int:
    """Hash a name to an element of the prime field."""
    return _word(text, *_CHOSEN.get())


@lru_cache(1 << 16)
def _word(text: str, modulus: int, key: int) -> int:
    digest_ = hashlib.blake2b(text.encode(), key=key.to_bytes(8, "big"), digest_size=8)
    return int.from_bytes(digest_.digest(), "big") % modulus


def digest(name: str, *operands: Tensor) -> Tensor:
    """Return the digest of an uninterpreted function's name and operands."""
    found = torch.full((), word(name), dtype=torch.int64)
    for each in operands:
        found = mixed(found * 3 + each)
    return found


def unordered(name: str, one: Tensor, other: Tensor) -> Tensor:
    """Return a digest of a commutative function; the order of operands does not matter."""
    return digest(name, torch.minimum(one, other), torch.maximum(one, other))


def times(one: Tensor, other: Tensor) -> Tensor:
    """Multiply two tensors element by element, modulo the prime."""
    return one * other % prime()


def power(x: Tensor, exponent: int) -> Tensor:
    """Return x to a non-negative integer power."""
    found = torch.ones_like(x)
    while exponent:
        if exponent & 1:
            found = times(found, x)
        x = times(x, x)
        exponent >>= 1
    return found


def inverse(x: Tensor) -> Tensor:
    """Return 1 / x, by Fermat; 0 for 0."""
    return power(x, prime() - 2)


def bilinear(product: Callable[[Tensor, Tensor], Tensor], one: Tensor, other: Tensor) -> Tensor:
    """Return a sum of products of two tensors exactly, by a float64 kernel.

    Args:
        product: the matrix product or convolution kernel; it sums fewer than 2²⁰ products.
    """
    low, high = (
        ((t % _HALF).double() for t in (one, other)),
        ((t // _HALF).double() for t in (one, other)),
    )
    (a, b), (c, d) = low, high
    bottom = product(a, b).long() % prime()
    middle = (product(a, d).long() + product(c, b).long()) % prime()
    top = product(c, d).long() % prime()
    return (bottom + middle * _HALF + top * (_HALF * _HALF % prime()) % prime()) % prime()


def random(name: str, shape: Any, seed: int) -> Tensor:
    """Return the random numbers modulo the prime that represent a variable; equal names give equal
    numbers.
    """
    count = 1
    for size in shape:
        count *= int(size)
    start = word(f"{seed}:{name}")
    return mixed(torch.arange(count, dtype=torch.int64) * 5 + start * 8191).reshape(list(shape))


# -- constants -----------------------------------------------------------------------------------

_MOST = 4096
"""The limit of distinct elements of a constant that are converted one by one."""


def of_number(value: float, bits: int = 53) -> int:
    """Return the simplest number that a float approximates: 0.1 becomes 1/10 in every float type.

    The number is a fraction, or its square root or fourth root (32^-½), within one unit in the last
    place of the float.
    """
    return _of_number(value, bits, _CHOSEN.get())


@lru_cache(1 << 16)
def _of_number(value: float, bits: int, chosen: tuple[int, int]) -> int:
    if value != value or value in (float("inf"), float("-inf")):
        return word("inf") if value > 0 else prime() - word("inf") if value < 0 else word("nan")
    exact = Fraction(value)
    slack = Fraction(15, 16) * Fraction(2) ** (frexp(value)[1] - bits)
    found = exact if exact.denominator == 1 else _simplest(exact, slack)
    if exact.denominator == 1 or _is_short(found, bits):
        return _of_fraction(found)
    for order in (2, 4):
        power_ = _simplest(abs(exact) ** order, order * slack * abs(exact) ** (order - 1))
        root = _of_fraction(power_)
        if _is_short(power_, bits) and pow(root, (prime() - 1) // 2, prime()) == 1:
            for _ in range(order.bit_length() - 1):
                # This is the root that is a square itself.
                root = pow(root, (prime() + 1) // 4, prime())
            return root if exact > 0 else prime() - root
    return _of_fraction(found)


def _of_fraction(value: Fraction) -> int:
    return value.numerator * pow(value.denominator, prime() - 2, prime()) % prime()


def _is_short(value: Fraction, bits: int) -> bool:
    """Whether numerator and denominator are so small that the match cannot be a coincidence."""
    return abs(value.numerator) * value.denominator < 1 << (bits * 3 // 5)


def _simplest(value: Fraction, slack: Fraction) -> Fraction:
    """Return the fraction with the smallest denominator within `slack` of a number."""
    found = _between(abs(value) - slack, abs(value) + slack)
    return found if value > 0 else -found


def _between(low: Fraction, high: Fraction) -> Fraction:
    """Return the simplest fraction in an interval (Stern and Brocot)."""
    whole = low.numerator // low.denominator
    if whole + 1 <= high or low.denominator == 1:
        return Fraction(whole if low.denominator == 1 else whole + 1)
    return whole + 1 / _between(1 / (high - whole), 1 / (low - whole))


_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


def of_tensor(value: Tensor) -> Tensor:
    """Return the elements of a constant tensor as numbers modulo the prime."""
    if value.dtype == torch.bool or not value.is_floating_point():
        return value.long() % prime()
    if value.dtype not in _BITS:
        return digest(str(value.dtype), value.view(torch.uint8).long())
    bits = _BITS[value.dtype]
    kinds, places = value.double().reshape(-1).unique(return_inverse=True)
    if len(kinds) > _MOST:
        return _exactly(value.double())
    made = torch.tensor([of_number(each, bits) for each in kinds.tolist()], dtype=torch.int64)
    return made[places].reshape(value.shape)


def _exactly(value: Tensor) -> Tensor:
    """Return each float as an exact fraction modulo the prime: an integer times a power of two."""
    fraction, exponent = torch.frexp(value)
    whole = (fraction * (1 << 53)).long() % prime()
    powers = torch.tensor([pow(2, (k - 53) % (prime() - 1), prime()) for k in range(-1100, 1100)])
    return times(whole, powers[exponent.long() + 1100])


def of_bits(value: Tensor) -> Tensor:
    """Return a number for the bits of each element: 0 and −0 differ, −x is the negative of x."""
    if value.dtype == torch.bool or not value.is_floating_point():
        return value.long() % prime()
    if value.dtype not in _BITS:
        return digest(str(value.dtype), value.view(torch.uint8).long())
    wide = value.double().abs().nan_to_num(nan=-1.0)
    made = mixed(wide.contiguous().view(torch.int64))
    return torch.where(value.signbit(), (prime() - made) % prime(), made)
