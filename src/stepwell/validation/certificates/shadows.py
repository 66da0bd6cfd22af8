"""Represent tensors whose elements are expressions, on which PyTorch operators run.

A `Shadow` has a shape, an element type, and for each element the value of its expression modulo a
prime (`field`). The interpreter and the recipes of weights run on shadows as they run on tensors,
so that ops need no second semantics. A shadow has no elements to read: an operation that requires
elements or writes in place is not followed.

A `Reading` defines the transfer function of a PyTorch operator on such numbers:

- `bits`: each rounding is a function that is only known by its name, its type and its operands, so
  that equal numbers have equal bits; `a + b` is `b + a`, and a sum is that of its terms;
- `reals`: floats are numbers of a field, integers too, constants the simplest fractions that round
  to them; equal numbers are the same function of real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from stepwell.ir.compat.torch.torch_private import decomposition_table, schema_of, without_elements
from stepwell.validation.certificates.field import digest, of_bits, of_tensor, prime, random
from stepwell.validation.error_rules import flat

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}
"""Operator → a function of a `Call` that returns shadows, or NotImplemented."""
STEPS: dict[str, Handler] = {}
"""Operator → a PyTorch function that computes it step by step."""
EXACT_STEPS: set[str] = set()
"""Operators that are followed step by step even if roundings count."""
_WHOLE = frozenset(
    """add sub rsub mul neg abs mm bmm addmm baddbmm mv sum maximum minimum clamp relu view reshape
    _unsafe_view permute transpose t expand slice select unsqueeze squeeze clone cat stack
    constant_pad_nd unfold convolution as_strided index""".split()
)
"""Operators whose results are integers if their operands are."""
_FACTORIES = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
_ASKS = frozenset(("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "item"))
_INDICES = frozenset(("index", "indices"))


class NotFollowed(Exception):
    """An operation that requires elements, modifies them in place, or is random."""


class Shadow(torch.Tensor):
    """A tensor whose elements are expressions.

    Attributes:
        held: the expression number of each element, int64, of the same shape.
        reading: the transfer functions of operators.
        is_whole: whether the elements are floats that are known to be integers.
    """

    held: Tensor
    reading: Reading
    is_whole: bool = False

    @staticmethod
    def __new__(cls: type[Shadow], held: Tensor, dtype: torch.dtype, reading: Reading) -> Shadow:
        """Create a shadow with the shape of its numbers."""
        made = without_elements(cls, held.shape, dtype)
        made.held, made.reading = held, reading
        return made

    def __init__(self, held: Tensor, dtype: torch.dtype, reading: Reading) -> None:
        pass

    def __repr__(self, **_: Any) -> str:
        return f"Shadow({list(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Apply a PyTorch operator to shadows, by the transfer function of their arithmetic."""
        reading = next(a.reading for a in flat([*args, *(kwargs or {}).values()]) if is_shadow(a))
        return reading.run(func, tuple(args), dict(kwargs or {}))


def is_whole(value: Any) -> bool:
    """Whether the floats of a tensor, or a number, are known to be integers; True for other
    values.
    """
    if isinstance(value, list | tuple):
        return all(map(is_whole, cast("list[Any]", value)))
    if isinstance(value, Shadow):
        return value.is_whole or not value.dtype.is_floating_point
    if isinstance(value, Tensor):
        return not value.is_floating_point() or bool((value == value.trunc()).all())
    return not isinstance(value, float) or value.is_integer()


def is_shadow(value: Any) -> bool:
    """Whether a value is symbolic: its elements are expressions, not numbers."""
    return isinstance(value, Shadow)


def mapped(function: Callable[[Any], Any], values: Any) -> Any:
    """Apply a function to the items of nested lists."""
    if isinstance(values, list | tuple):
        return [mapped(function, value) for value in values]
    return function(values)


@dataclass
class Call:
    """A call of a PyTorch operator with a shadow (a tensor of expressions) among its arguments."""

    reading: Reading
    func: Any
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @cached_property
    def bare(self) -> Any:
        """Return a tensor without elements of the result's shape and type."""
        return self.func(*mapped(bare, self.args), **mapped_values(bare, self.kwargs))

    def option(self, name: str, at: int, default: Any = None) -> Any:
        """Return an argument that is passed by name or by position."""
        return self.kwargs.get(name, self.args[at] if len(self.args) > at else default)

    def numbers(self, value: Any) -> Tensor:
        """Return the expression numbers of a value in the element type of the result."""
        return self.reading.numbers(value, self.bare.dtype)

    def made(self, held: Tensor) -> Shadow:
        """Create the result of an operator call, a shadow, from expression numbers."""
        return self.reading.made(held.expand(self.bare.shape), self.bare.dtype)


class Reading:
    """An arithmetic (bitwise or real): the transfer functions of PyTorch operators on the
    expression numbers of shadows. `seed` selects the numbers of variables.
    """

    def __init__(
        self, kind: str, seed: int = 0, unknown: Mapping[float, str] | None = None
    ) -> None:
        """Create an arithmetic of expression numbers. `unknown` has numbers that represent
        arbitrary ones, with their names.
        """
        self.kind, self.seed, self.unknown_numbers = kind, seed, unknown or {}

    @property
    def is_exact(self) -> bool:
        """Whether roundings are part of the expressions (bitwise equality)."""
        return self.kind == "bits"

    # -- values ------------------------------------------------------------------------------

    def variable(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Shadow:
        """Return a symbolic tensor with arbitrary elements."""
        return Shadow(random(name, shape, self.seed), dtype, self)

    def made(self, held: Tensor, dtype: torch.dtype) -> Shadow:
        """Create a shadow from the expression numbers of its elements."""
        return Shadow((held % prime()).contiguous(), dtype, self)

    def numbers(self, value: Any, dtype: torch.dtype | None = None) -> Tensor:
        """Return the expression numbers of a tensor or number, converted to a stated element
        type.
        """
        if isinstance(value, Shadow):
            return value.held if dtype is None else self.cast(value.held, value.dtype, dtype)
        if isinstance(value, Tensor):
            wanted = value if dtype is None else value.to(dtype)
            return of_bits(wanted) if self.is_exact else of_tensor(wanted)
        wide = torch.float64 if isinstance(value, float) else torch.int64
        if not isinstance(value, bool) and value in self.unknown_numbers:
            held = random(f"number {self.unknown_numbers[value]}", [], self.seed)
            return held if dtype is None else self.cast(held, wide, dtype)
        if not self.is_exact:
            return of_tensor(torch.tensor(value, dtype=wide))
        return of_bits(torch.tensor(value, dtype=dtype or wide))

    def cast(self, held: Tensor, given: torch.dtype, wanted: torch.dtype) -> Tensor:
        """Convert expression numbers to another element type."""
        if given == wanted:
            return held
        if wanted == torch.bool:
            return digest("nonzero", held)
        of_integers = not given.is_floating_point
        if wanted.is_floating_point and given.itemsize > 0 and wanted.itemsize > 1:
            fits = given.itemsize > 1 or of_integers
            return held if fits and not self.is_exact else digest(f"{given}→{wanted}", held)
        keeps_sign = wanted.is_signed or not given.is_signed
        widens = given == torch.bool or wanted.itemsize > given.itemsize
        widens &= of_integers and keeps_sign
        widens |= (
            of_integers and wanted.itemsize >= 4 and not self.is_exact
        )  # It does not overflow.
        if widens and (given.itemsize < 4 or not self.is_exact):
            return held  # Narrow types are not computed in their own type.
        return digest(f"→{wanted}", held)

    # -- operators ---------------------------------------------------------------------------

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Apply a PyTorch operator to arguments of which at least one is a shadow."""
        made = self._ran(func, args, kwargs)
        if isinstance(made, Shadow) and schema_of(func).name.partition("::")[2] in _WHOLE:
            made.is_whole = is_whole([*args, *kwargs.values()])
        return made

    def _ran(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        schema = schema_of(func)
        call = Call(self, func, schema.name.partition("::")[2], args, kwargs)
        name = call.name
        if name in _FACTORIES:
            plain = [torch.empty(a.shape, dtype=a.dtype) if is_shadow(a) else a for a in args]
            return func(*plain, **kwargs)
        is_random = torch.Tag.nondeterministic_seeded in func.tags and name not in STEPS
        is_empty = name.startswith(("empty", "new_empty"))
        if schema.is_mutable or name in _ASKS or is_random or is_empty:
            raise NotFollowed(f"aten.{name}")
        if (handler := HANDLERS.get(name)) is not None:
            made = handler(call)
            if made is not NotImplemented:
                return made
        steps = STEPS.get(name)
        if steps is not None and (not self.is_exact or name in EXACT_STEPS):
            return _shaped(steps(*args, **kwargs), call.bare)
        if torch.Tag.pointwise in func.tags:
            return self.pointwise(call)
        if (parts := decomposition_table.get(func)) is not None:
            made = parts(*args, **kwargs)
            if made is not NotImplemented:
                return made
        made = func.decompose(*args, **kwargs)
        return self.opaque(call) if made is NotImplemented else made

    def pointwise(self, call: Call) -> Shadow:
        """Apply an uninterpreted function to each element of shadows."""
        tensors: list[Tensor] = []
        said: list[str] = []
        for each in [*call.args, *call.kwargs.values()]:
            if isinstance(each, Tensor | float) or type(each) is int:
                tensors.append(self.numbers(each).expand(call.bare.shape))
            else:
                said.append(str(each))
        rounds = f":{call.bare.dtype}" if self.is_exact else ""
        return call.made(digest(f"{call.name}{rounds}({said})", *tensors))

    def opaque(self, call: Call) -> Any:
        """Apply an uninterpreted function of whole tensors."""
        named = [(n, str(v)) for n, v in mapped_values(self.name_of, call.kwargs).items()]
        text = f"{call.func}({mapped(self.name_of, call.args)}{sorted(named)})"
        results = [self.unknown(f"{text}#{n}", b) for n, b in enumerate(flat([call.bare]))]
        return results[0] if isinstance(call.bare, Tensor) else tuple(results)

    def unknown(self, said: str, like: Any) -> Any:
        """Return a shadow of unknown elements: equal names give equal tensors."""
        if not isinstance(like, Tensor):
            raise NotFollowed(said)
        return Shadow(random(said, like.shape, 0), like.dtype, self)

    def name_of(self, value: Any) -> str:
        """Return a name that two values share only if they are equal."""
        if not isinstance(value, Tensor):
            return repr(value)
        held = self.numbers(value).reshape(-1)
        places = torch.arange(1, held.numel() + 1)
        sums = [int(digest(salt, held, places).sum()) for salt in ("name", "again")]
        return f"{list(value.shape)}:{value.dtype}:{sums}"


def mapped_values(function: Callable[[Any], Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a function to the items of a mapping's values."""
    return {name: mapped(function, value) for name, value in values.items()}


def bare(value: Any) -> Any:
    """Replace a tensor by a tensor of the same type without elements; return other values
    unchanged.
    """
    if not isinstance(value, Tensor):
        return value
    return torch.empty(value.shape, dtype=value.dtype, device="meta")


def _shaped(made: Any, bare: Any) -> Any:
    """Return results with the types that the operator infers; some may be missing."""
    if isinstance(bare, Tensor):
        found = made[0] if isinstance(made, tuple) else made
        return found if found.dtype == bare.dtype else found.to(bare.dtype)
    given = list(made) if isinstance(made, list | tuple) else [made]
    return (*given, *([None] * (len(bare) - len(given))))


# -- movements -----------------------------------------------------------------------------------


def moved(call: Call) -> Any:
    """Apply an operator that moves elements to their expression numbers."""
    reading, func, name = call.reading, call.func, call.name
    names = [argument.name for argument in schema_of(func).arguments]
    given = dict(zip(names, call.args, strict=False)) | call.kwargs
    if any(is_shadow(each) for n in _INDICES for each in flat([given.get(n)])):
        made = _looked_up(reading, name, given)
        return reading.opaque(call) if made is None else made
    first = next(v for v in flat(list(given.values())) if is_shadow(v))
    data = [v for n, v in given.items() if n not in _INDICES for v in flat([v])]
    of = first.dtype
    for value in data:
        of = torch.promote_types(of, value.dtype) if isinstance(value, Tensor) else of

    def lowered(value: Any) -> Any:
        return reading.numbers(value, of) if isinstance(value, Tensor) else value

    if name == "constant_pad_nd":
        filled = reading.numbers(float(given.get("value", 0.0)), of)
        return reading.made(func(lowered(given["self"]), given["pad"], int(filled)), of)
    moved_ = {n: v if n in _INDICES else mapped(lowered, v) for n, v in given.items()}
    try:
        found = func(**moved_)
    except (RuntimeError, TypeError, NotImplementedError):
        doubled = {n: v if n in _INDICES else mapped(_double, v) for n, v in moved_.items()}
        found = func(**doubled)
    if isinstance(found, list | tuple):
        return [reading.made(each.long(), of) for each in found]
    return reading.made(found.long(), of)


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) else value


def rows(tensor: Tensor, axis: int) -> Tensor:
    """Return expression numbers that depend on all elements of a line along an axis and on the
    index in it.
    """
    shape = [1] * tensor.dim()
    shape[axis] = tensor.shape[axis]
    places = torch.arange(tensor.shape[axis]).reshape(shape)
    return digest("row", tensor, places).sum(axis) % prime()


def _looked_up(reading: Reading, name: str, given: dict[str, Any]) -> Shadow | None:
    """Return the result of a lookup whose indices are not constants; None for other forms.

    A lookup is an uninterpreted function of the index and of all elements that it may select. Equal
    lookups by `embedding`, `gather`, `index_select` and `index` therefore have equal results.
    """
    table = given["weight"] if name == "embedding" else given["self"]
    numbers = reading.numbers(table)
    if name == "embedding":
        index, line = reading.numbers(given["indices"]).unsqueeze(-1), rows(numbers, 0)
    elif name in ("gather", "index_select"):
        index, axis = reading.numbers(given["index"]), given["dim"] % numbers.dim()
        line = rows(numbers, axis).unsqueeze(axis)
        if name == "index_select":
            index = index.reshape([-1 if at == axis else 1 for at in range(numbers.dim())])
        for at, size in enumerate(index.shape if name == "gather" else ()):
            line = line if at == axis else line.narrow(at, 0, size)
    elif name == "index":
        *known, last = given["indices"]
        if not is_shadow(last) or any(k is None or is_shadow(k) for k in known):
            return None  # Only the last index may be unknown, and no axis is skipped.
        index, line = reading.numbers(last), rows(numbers, len(known))
        rest = line.dim() - len(known)
        if known:
            line = line[tuple(k.expand(index.shape) for k in known)]
        index = index.reshape(*index.shape, *[1] * rest)
    else:
        return None
    return reading.made(digest("lookup", index, line), table.dtype)
