"""Run PyTorch operators on tensors whose elements are expressions, numbers modulo a prime.

Equal rational functions are equal modulo the prime for every choice of their variables, others for
few choices (Schwartz and Zippel). Other functions are digests (Wu et al., Mirage, OSDI 2025).
- bits: each rounding is a function that is only known by its name, its type and its operands, and
  so is a kernel that rounds several times; `a + b` is `b + a`, and a sum is that of its terms;
- reals: floats are numbers of a field, integers too, constants the simplest fractions that round
  to them; equal numbers are the same function of real numbers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from random import Random
from typing import Any

import torch
from torch import Tensor

import stepwell.dialects.scalar_semantics  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects.aten.kernel_steps import FOLLOWED
from stepwell.dialects.quant.ops import dequantize, quantize
from stepwell.dialects.quant.types import Quantization
from stepwell.ir.compat.torch import torch_private as private
from stepwell.ir.declared import scalar_semantics as scalars
from stepwell.ir.declared.families import ops_of
from stepwell.ir.dtypes import f32, torch_dtype

PRIME = 1686629999  # Below 2³¹, so that products fit; 23 modulo 24, so that 2 and 3 have roots.
_CHOSEN: ContextVar[tuple[int, int]] = ContextVar("the prime and the key", default=(PRIME, 0))
_GAMMA, _MIX, _LAST = -7046029254386353131, -4658895280553007687, -7723592293110705685
_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


@contextmanager
def chosen_by(seed: int) -> Generator[None]:
    """Choose the prime and the key of digests: whoever knows both can write false constants."""
    source, found = Random(seed), 4
    # Miller and Rabin: these bases decide for numbers below 2³¹ that are 3 modulo 4.
    while not all(pow(base, found // 2, found) in (1, found - 1) for base in (2, 3, 5, 7)):
        found = source.randrange((1 << 30) + 7, 1 << 31, 24)
    token = _CHOSEN.set((found, source.getrandbits(62)))
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def prime() -> int:  # noqa: D103
    return _CHOSEN.get()[0]


def mixed(x: Tensor) -> Tensor:
    """Hash each number (splitmix64: Steele, Lea and Flood, OOPSLA 2014)."""
    x = (x ^ _CHOSEN.get()[1]) + _GAMMA
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _MIX
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * _LAST
    return ((x ^ ((x >> 31) & 0x1FFFFFFFF)) & 0x7FFFFFFFFFFFFFFF) % prime()


@lru_cache(1 << 16)
def _word(text: str, modulus: int, key: int) -> int:
    found = hashlib.blake2b(text.encode(), key=key.to_bytes(8, "big"), digest_size=8).digest()
    return int.from_bytes(found, "big") % modulus


def digest(name: str, *operands: Tensor) -> Tensor:
    """Return the digest of an uninterpreted function's name and operands."""
    found = torch.tensor(_word(name, *_CHOSEN.get()))
    for each in operands:
        found = mixed(found ^ each)
    return found


def unordered(name: str, one: Tensor, other: Tensor) -> Tensor:
    """Return a digest of a commutative function."""
    return digest(name, torch.minimum(one, other), torch.maximum(one, other))


def variable(name: str, shape: Sequence[int], seed: int) -> Tensor:
    """Return random numbers that represent arbitrary ones; equal names give equal numbers."""
    return digest(f"{seed}:{name}", torch.arange(math.prod(shape)).reshape(list(shape)))


def inverse(x: Tensor) -> Tensor:
    """Return 1 / x, by Fermat."""
    if bool((x == 0).any()):
        raise ZeroDivisionError
    found = torch.ones_like(x)
    for bit in f"{prime() - 2:b}":
        found = found * found % prime() * (x if bit == "1" else 1) % prime()
    return found


def bilinear(kernel: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Return a sum of fewer than 2²⁰ products exactly, by a float64 kernel."""
    (a, b), (c, d) = ([(t % 65536).double(), (t // 65536).double()] for t in (x, y))
    middle = (kernel(a, d).long() + kernel(b, c).long()) % prime()
    top = (kernel(b, d).long() % prime() * 65536 + middle) % prime()
    return (kernel(a, c).long() + top * 65536) % prime()


def constants(value: Tensor, is_exact: bool) -> Tensor:
    """Return a constant's elements as numbers: floats by their bits, or the simplest near them."""
    if not value.is_floating_point():
        return value.long() % prime()
    if value.dtype not in _BITS:
        return digest(str(value.dtype), value.view(torch.uint8).long())
    if is_exact:  # −x is the negative of x, and 0 is not −0.
        made = mixed(value.double().abs().nan_to_num(-1, math.inf).contiguous().view(torch.int64))
        return torch.where(value.signbit(), prime() - made, made) % prime()
    kinds, places = value.double().unique(return_inverse=True)
    numbers = [of_number(each, _BITS[value.dtype], _CHOSEN.get()) for each in kinds.tolist()]
    return torch.tensor(numbers, dtype=torch.int64)[places]


@lru_cache(1 << 16)
def of_number(value: float, bits: int, chosen: tuple[int, int]) -> int:
    """Return the simplest fraction, or root of one, within a unit in the last place of a float."""
    modulus, sign = chosen[0], -1 if value < 0 else 1
    if not math.isfinite(value):
        return sign * _word(str(abs(value)), *chosen) % modulus
    exact, roots = abs(Fraction(value)), list[int]()
    unit = Fraction(15, 16) * Fraction(2) ** (math.frexp(value)[1] - bits)
    for order in (1, 2, 4):
        near = order * unit * exact ** (order - 1) if exact.denominator > 1 else 0
        found = _between(exact**order - near, exact**order + near)
        roots.append(found.numerator * pow(found.denominator, -1, modulus) % modulus)
        # Numerator and denominator are so small that the match is no coincidence.
        is_short = found.numerator * found.denominator < 1 << (bits * 3 // 5)
        if exact.denominator == 1 or (is_short and order == 1):
            break
        if is_short and pow(roots[-1], modulus // 2, modulus) == 1:
            exponent = ((modulus + 1) // 4) ** (order // 2)  # Of the root that is a square.
            return sign * pow(roots[-1], exponent, modulus) % modulus
    return sign * roots[0] % modulus


def _between(low: Fraction, high: Fraction) -> Fraction:
    """Return the simplest fraction in an interval."""
    whole = low.numerator // low.denominator
    if whole + 1 <= high or low.denominator == 1:
        return Fraction(whole if low.denominator == 1 else whole + 1)
    return whole + 1 / _between(1 / (high - whole), 1 / (low - whole))


MOVEMENTS = {name.split(".")[1] for family in ("movement", "lookup", "padding")
             for name in ops_of(family, "aten") if "dropout" not in name}  # fmt: skip
MOVEMENTS.update("as_strided unfold slice_scatter select_scatter".split())
# Operators whose results are integers if their operands are:
_WHOLE = {*MOVEMENTS, *"add sub mul neg mm bmm sum convolution _to_copy clamp".split()}
_REALS: dict[str, Callable[[Any], Any]] = {
    "reciprocal": lambda x: 1.0 / x, "rsqrt": lambda x: 1.0 / scalars.sqrt(x),
    "expm1": lambda x: scalars.exp(x) - 1.0, "log1p": lambda x: scalars.log(1.0 + x),
}  # fmt: skip
_POWERS: dict[Any, Any] = {0.5: scalars.sqrt, -0.5: scalars.rsqrt, -1: scalars.reciprocal}
_STEPS = {*"floor ceil round trunc is_nan sign quotient modulo less less_equal equal".split()}


class Expressions(torch.Tensor):
    """A tensor with the numbers of its elements' expressions, and how operators act on them."""

    held: Tensor
    arithmetic: Arithmetic
    is_whole = False  # Whether the elements are doubles that are known to be integers.

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = private.pytree.tree_leaves((args, kwargs))
        arithmetic = next(each.arithmetic for each in leaves if isinstance(each, Expressions))
        return Call(arithmetic, func, [*args], kwargs or {}).result()


class Arithmetic:
    """How operators act on numbers of expressions; `is_exact` if roundings are part of them."""

    def __init__(self, is_exact: bool, seed: int = 0) -> None:
        self.is_exact, self.seed, self.narrows = is_exact, seed, False  # `NARROWED`.
        self.steps, self.stepped = list[str](), list[Tensor]()
        self.exact: list[Tensor] = []  # What `stepped` is bit for bit, to be taken instead.

    def step(self, name: str, held: Tensor) -> Tensor:
        """Note a number that may jump if the operands of its function are rounded."""
        self.steps.append(name)
        self.stepped.append(self.exact[len(self.stepped)] if self.exact else held)
        return self.stepped[-1]

    def made(self, held: Tensor, dtype: torch.dtype) -> Expressions:
        found: Any = private.without_elements(Expressions, held.shape, dtype)
        found.held, found.arithmetic = (held % prime()).contiguous(), self
        return found

    def numbers(self, value: Any, dtype: torch.dtype | None = None) -> Tensor:
        """Return the numbers of a tensor or a number, converted to a type."""
        if isinstance(value, Expressions):
            return self.cast(value.held, value.dtype, dtype or value.dtype)
        if not isinstance(value, Tensor):
            value = torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
            dtype = dtype if self.is_exact else None  # A real number is not rounded.
        return constants(value if dtype is None else value.to(dtype), self.is_exact)

    def cast(self, held: Tensor, given: torch.dtype, wanted: torch.dtype) -> Tensor:
        if given == wanted:
            return held
        if wanted == torch.bool:
            return self.step("nonzero", digest("nonzero", held))
        fits = torch.promote_types(given, wanted) == wanted
        keeps = fits and not wanted.is_floating_point and given.itemsize < 4
        to_wide = wanted.itemsize >= 4 and not given.is_floating_point
        is_near = keeps or to_wide or wanted.is_floating_point  # The same real number.
        self.narrows |= to_wide and not fits and not self.is_exact
        made = digest(f"{given}→{wanted}", held) if not keeps else held
        return (made if self.is_exact else held) if is_near else self.step("cast", made)

    def name_of(self, value: Any) -> str:
        """Return a name that two values share only if they are equal."""
        if not isinstance(value, Tensor):
            return repr(value)
        held = self.numbers(value).reshape(-1)
        sums = [int(digest(n, held, torch.arange(len(held))).sum()) for n in ("name", "again")]
        return f"{list(value.shape)}:{value.dtype}:{sums}"

    def elementwise(self, name: str, term: Any, out: torch.dtype, tensors: list[Any]) -> Tensor:
        """Return the numbers of a result; a kernel that rounds twice is known by its name alone."""
        if term is None:
            typed = f"{name}:{out}" if self.is_exact or not out.is_floating_point else name
            return self.step(name, digest(typed, *map(self.numbers, tensors)))
        ends = map(_bare, (tensors[0], tensors[-1]))
        of = torch.result_type(*ends) if out == torch.bool else out
        of = torch.float32 if of in (torch.float16, torch.bfloat16) else of  # Rounded once more.
        held = self.of_term(term, of)  # Its steps count, also of a kernel that rounds twice.
        if self.is_exact and scalars.roundings(term) > 1:
            return digest(f"{name}:{out}", *map(self.numbers, tensors))
        return self.cast(held, torch.bool if out == torch.bool else of, out)

    def of_term(self, term: Any, of: torch.dtype) -> Tensor:
        """Return the numbers of a scalar expression that is computed in one type."""
        if not isinstance(term, scalars.Term) or term.function == "element":
            return self.numbers(getattr(term, "value", term), of)
        name, parts, to = term.function, term.operands, term.to
        if name == "where":
            test = self.of_term(parts[0], torch.bool)
            return digest("where", test, *(self.of_term(part, of) for part in parts[1:]))
        if name == "power" and parts[1] in _POWERS:
            return self.of_term(_POWERS[parts[1]](parts[0]), of)  # As PyTorch computes it.
        if name in _REALS and not self.rounds(of):
            return self.of_term(_REALS[name](*parts), of)
        into = torch.bool if name in ("not_", "and_", "or_", "xor") else of
        held = [self.of_term(part, into) for part in parts]
        made = self.cast(held[0], of, torch_dtype(to)) if to else self.apply(name, of, *held)
        return self.step(name, made % prime()) if name in _STEPS else made % prime()

    def rounds(self, of: torch.dtype) -> bool:
        """Whether results in a type are rounded or wrap, other than modulo 2³² or 2⁶⁴."""
        return self.is_exact if of.is_floating_point else of.itemsize < 4

    def apply(self, name: str, of: torch.dtype, *given: Tensor) -> Tensor:
        x, y, rounds, one = given[0], given[-1], self.rounds(of), self.numbers(1, of)
        typed = f"{name}:{of}" if self.is_exact or not of.is_floating_point else name
        match name:
            case "add" if not rounds:
                found = x + y
                for end in (math.inf, -math.inf) if of.is_floating_point else ():
                    infinite = self.numbers(end, of)  # The other summand is finite.
                    found = torch.where((x == infinite) | (y == infinite), infinite, found)
                return found
            case "negate" if of.is_floating_point or not rounds:  # −(−128) is −128.
                return prime() - x
            case "subtract":
                return self.apply("add", of, x, (prime() - y) % prime())
            case "multiply":
                made = unordered(typed, x, y) if rounds else x * y
                return torch.where(y == one, x, torch.where(x == one, y, made))
            case "divide":
                return torch.where(y == one, x, digest(typed, x, y) if rounds else x * inverse(y))
            case "maximum" | "minimum":
                least = self.numbers(-math.inf if name == "maximum" else math.inf, of)
                made = torch.where(y == least, x, unordered(typed, x, y))
                return torch.where(x == least, y, made)
            case "equal":
                is_zero = y == self.numbers(0, of)
                return torch.where(is_zero, 1 - digest("nonzero", x), unordered(typed, x, y))
            case "not_":
                return 1 - x
            case "add" | "and_" | "or_" | "xor":
                return unordered(typed, x, y)
            case _:
                return digest(typed, *given)

    def terms(self, x: Tensor, of: torch.dtype) -> Tensor:
        """Return the summands of a sum; bit for bit, each is its product with 1."""
        return mixed(x) * mixed(self.numbers(1, of)) % prime() if self.rounds(of) else x

    def summed(self, total: Tensor, of: torch.dtype) -> Tensor:
        return digest(f"sum:{of}", total % prime()) if self.rounds(of) else total % prime()


def _bare(value: Any) -> Any:
    is_tensor = isinstance(value, Tensor)
    return torch.empty(value.shape, dtype=value.dtype, device="meta") if is_tensor else value


def _is_whole(value: Any) -> bool:
    if isinstance(value, Tensor) and not isinstance(value, Expressions):
        return not value.is_floating_point() or bool((value == value.trunc()).all())
    is_whole: bool = getattr(value, "is_whole", not isinstance(value, float) or value.is_integer())
    return is_whole or (isinstance(value, Tensor) and not value.is_floating_point())


class Call:
    """A call of a PyTorch operator; `bare` is the result, or are the results, without elements."""

    def __init__(self, arithmetic: Arithmetic, func: Any, args: list[Any], kwargs: Any) -> None:
        schema = private.schema_of(func)
        self.arithmetic, self.func, self.args = arithmetic, func, args
        self.kwargs = {name: value for name, value in kwargs.items() if name != "device"}
        self.name, self.overload = schema.name.partition("::")[2], schema.overload_name or "default"
        self.given = {a.name: a.default_value for a in schema.arguments}
        self.given |= dict(zip(self.given, args, strict=False)) | self.kwargs
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        is_random &= self.given.get("dropout_p") != 0.0
        if schema.is_mutable or is_random or self.name.startswith(("empty", "new_empty")):
            raise RuntimeError(f"{func} writes in place, or is random")
        bare = private.pytree.tree_map(_bare, (args, self.kwargs))
        self.bare = func(*bare[0], **bare[1])
        self.of = private.pytree.tree_leaves(self.bare)[0].dtype

    def result(self) -> Any:
        """Apply the operator: by a handler, by its scalar expression, or by its decomposition."""
        ways = _HANDLERS.get(self.name, _pointwise), _pointwise, _decomposed
        found = next((made for way in ways if (made := way(self)) is not NotImplemented), None)
        if found is None:
            raise RuntimeError(f"{self.func} is not followed")
        if isinstance(found, Tensor) and not isinstance(found, Expressions):
            found = self.arithmetic.made(found.expand(self.bare.shape), self.of)
        if isinstance(found, Expressions) and self.name in _WHOLE:
            leaves = private.pytree.tree_leaves((self.args, self.kwargs))
            found.is_whole = self.of == torch.float64 and all(map(_is_whole, leaves))
        return found


def _pointwise(call: Call) -> Any:
    if torch.Tag.pointwise not in call.func.tags:
        return NotImplemented
    try:
        term = scalars.expression_on(f"aten.{call.name}.{call.overload}", call.given, Tensor)
    except Exception:  # It is not said of these arguments.
        term = None
    values = [torch.tensor(v) if type(v) in (int, float) else v for v in call.given.values()]
    name = f"{call.name}{[isinstance(value, Tensor) or str(value) for value in values]}"
    tensors = [value for value in values if isinstance(value, Tensor)]
    return call.arithmetic.elementwise(name, term, call.of, tensors)


def _decomposed(call: Call) -> Any:
    """Apply the steps of a kernel; bit for bit, it is an unknown function of their result."""
    steps = FOLLOWED.get(call.name, private.decomposition_table.get(call.func))
    if steps is None or (found := steps(*call.args, **call.kwargs)) is NotImplemented:
        found = call.func.decompose(*call.args, **call.kwargs)
    if isinstance(found, Tensor) and not isinstance(found, Expressions):
        return call.arithmetic.numbers(found)
    # A sum adds its terms, of which a bias is one, in any order.
    if steps is None or not call.arithmetic.is_exact or call.name in ("addmm", "baddbmm", "addmv"):
        return found
    return private.pytree.tree_map_only(
        Expressions, lambda v: v.arithmetic.made(digest(call.name, v.held), v.dtype), found
    )


def _converted(call: Call) -> Any:
    value: Any = call.given.get("src", call.args[0])
    made = call.arithmetic.numbers(value, call.of)
    is_wide = call.of.itemsize >= 4 and not call.arithmetic.is_exact  # It does not overflow.
    return value.held if is_wide and value.dtype == torch.float64 and _is_whole(value) else made


def _wrapped(call: Call) -> Any:
    x, mask = call.args
    if call.arithmetic.is_exact or type(mask) is not int or mask != 0xFFFFFFFF:
        return NotImplemented
    return call.arithmetic.cast(x.held, torch.int64, torch.int32)


def _quantized(call: Call) -> Any:
    """Quantize or dequantize as the dialect `quant` does, with a scale that is known."""
    x, scale, zero, *axis, low, high, of = call.args
    scales, zeros = (torch.as_tensor(v, dtype=torch.float64).reshape(-1) for v in (scale, zero))
    blocks, grid = tuple((at, 1) for at in axis), (len(scales),) * len(axis)
    ends = torch.iinfo(of).bits, of.is_signed, low, high
    stored = Quantization(*ends, f32, scales.tolist(), zeros.long().tolist(), blocks, grid)
    return (dequantize if call.name.startswith("de") else quantize)(x, stored)


def _moved(call: Call) -> Any:
    """Move numbers as their elements are moved, or look them up."""
    a, given, of = call.arithmetic, call.given, call.of
    indices = private.pytree.tree_leaves(given.get("indices", given.get("index")))
    if any(isinstance(index, Expressions) for index in indices):
        return _looked_up(call, indices)
    if call.overload == "dtype":
        return NotImplemented  # It reinterprets the bits as another type.
    data = {n: v for n, v in given.items() if n not in ("index", "indices")}
    moved = given | private.pytree.tree_map_only(Tensor, lambda v: a.numbers(v, of).double(), data)
    if call.name == "constant_pad_nd":
        moved["value"] = int(a.numbers(float(given["value"]), of))
    found = call.func(**moved)
    lists = [a.made(each.long(), of) for each in private.pytree.tree_leaves(found)]
    return lists[0] if isinstance(found, Tensor) else lists


def _looked_up(call: Call, indices: list[Any]) -> Any:
    """Return sums of all elements that an index may select, each times an unknown number."""
    table, (index,) = call.arithmetic.numbers(call.args[0]), map(call.arithmetic.numbers, indices)
    table = table.movedim(axis := call.given.get("dim", 0), 0)
    if call.name not in ("embedding", "index", "index_select") or len(table) >= 1 << 20:
        return NotImplemented
    chosen = digest("chosen", index.reshape(-1, 1), torch.arange(len(table)))
    found = bilinear(torch.mm, chosen, table.reshape(len(table), -1))
    found = found.reshape(*index.shape, *table.shape[1:])
    return found.movedim(0, axis) if call.name == "index_select" else found


def _reduced(call: Call) -> Any:
    """Return sums of terms, or unknown functions of all elements in any order, or by place."""
    a, x, name, given, of = call.arithmetic, call.args[0], call.name, call.given.get("dim"), call.of
    axes = [given] if isinstance(given, int) else (given or range(x.dim()))
    axes, keep = [axis % x.dim() for axis in axes], bool(call.given.get("keepdim"))
    if "other" in call.given or (name.startswith("arg") and len(axes) != 1):
        return NotImplemented
    if not isinstance(call.bare, Tensor):
        return tuple(getattr(torch, f"{to}{name}")(x, given, keep) for to in ("a", "arg"))
    held, is_one = a.numbers(x), math.prod(x.shape[axis] for axis in axes) == 1
    if name == "sum":  # Also of one number: 0 + −0 is 0.
        return a.summed(a.terms(a.numbers(x, of), of).sum(axes, keep), of)
    if name.startswith("arg"):
        places = torch.arange(x.shape[axes[0]]).reshape([-1] + [1] * (x.dim() - axes[0] - 1))
        rows = digest("row", held, places).sum(axes[0]) % prime()
        return a.step(name, digest(name, rows)).reshape(call.bare.shape)
    name = name if name.startswith("a") else f"a{name}"
    held = a.cast(held, x.dtype, of) if name in ("any", "all") else held
    return held.sum(axes, keep) if is_one else digest(name, mixed(held).sum(axes, keep) % prime())


def _product(call: Call) -> Any:
    """Return sums of products: of matrices, or of a convolution's windows and filters."""
    a, of, more = call.arithmetic, call.of, call.args[2:]
    x, w = call.args[:2]
    is_filter = call.name == "convolution"  # It may be transposed.
    if (w.numel() // min(w.shape[:2]) if is_filter else x.shape[-1]) >= 1 << 20:
        return NotImplemented  # Sums of so many products are not exact.

    def kernel(x: Tensor, w: Tensor) -> Tensor:
        return getattr(torch, call.name)(x, w, *([None, *more[1:]] if more else ()))

    held = (a.numbers(value, of) for value in (x, w))
    found = a.summed(bilinear(kernel, *(map(mixed, held) if a.rounds(of) else held)), of)
    if not more or more[0] is None:
        return found
    bias = a.numbers(more[0], of).reshape([-1] + [1] * (found.dim() - 2))
    return a.apply("add", of, found, bias)


_HANDLERS: dict[str, Callable[[Call], Any]] = dict.fromkeys(MOVEMENTS, _moved) | {
    "_to_copy": _converted, "copy": _converted, "bitwise_and": _wrapped,
    **{f"{to}quantize_per_{of}": _quantized for to in ("", "de") for of in ("tensor", "channel")},
    **dict.fromkeys("sum amax amin any all max min argmax argmin".split(), _reduced),
    **dict.fromkeys("mm bmm mv dot convolution".split(), _product),
}  # fmt: skip
