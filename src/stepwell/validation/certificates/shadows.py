"""Tensors of expressions, on which PyTorch operators are followed symbolically.

A `Shadow` has a shape, an element type, and for each element the value of its expression modulo a
prime (`field`). The interpreter's own rules and the recipes of weights run on shadows as they run
on tensors, so no second semantics of an op is written. Nothing reads a shadow's elements: an
operation that requires elements or writes in place is not followed.

A `Reading` defines the transfer function of a PyTorch operator on such numbers:

- `bits`: each rounding is a function that is only known by its name, its type and its operands, so
  that equal numbers have equal bits; `a + b` is `b + a`, and a sum is that of its terms;
- `reals`: floats are numbers of a field, integers too, constants the simplest fractions that round
  to them; equal numbers are the same function of real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from stepwell.ir.compat.torch.torch_private import decomposition_table, schema_of, without_elements
from stepwell.validation.certificates.field import digest, of_bits, of_tensor, prime, random

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}
"""Operator → a function of (reading, func, arguments, named arguments) that returns shadows."""
STEPS: dict[str, Handler] = {}
"""Operator → a PyTorch function that computes it step by step."""
EXACT_STEPS: set[str] = set()
"""Operators that are followed step by step even if roundings count."""
LOOKUPS: list[Handler] = []
"""Handlers of elements at unknown indices."""
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
        held: their numbers, int64, of the same shape.
        reading: the transfer functions of operators.
        is_whole: whether they are floats that are known to be integers.
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
        """Apply an operator to shadows."""
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
    """Whether a value's elements are unknown."""
    return isinstance(value, Shadow)


def flat(values: Any) -> list[Any]:
    """Return the items of nested lists."""
    if isinstance(values, list | tuple):
        return [each for value in values for each in flat(value)]
    return [values]


def mapped(function: Callable[[Any], Any], values: Any) -> Any:
    """Apply a function to the items of nested lists."""
    if isinstance(values, list | tuple):
        return [mapped(function, value) for value in values]
    return function(values)


class Reading:
    """The transfer functions of operators on expression numbers; `seed` selects the variables."""

    def __init__(
        self, kind: str, seed: int = 0, unknown: Mapping[float, str] | None = None
    ) -> None:
        """Create a reading; `unknown`: plain numbers that represent arbitrary ones, with their
        names.
        """
        self.kind, self.seed, self.unknown_numbers = kind, seed, unknown or {}

    @property
    def is_exact(self) -> bool:
        """Whether each rounding counts."""
        return self.kind == "bits"

    # -- values ------------------------------------------------------------------------------

    def variable(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Shadow:
        """Return an arbitrary tensor."""
        return Shadow(random(name, shape, self.seed), dtype, self)

    def made(self, held: Tensor, dtype: torch.dtype) -> Shadow:
        """Return a shadow of some numbers."""
        return Shadow((held % prime()).contiguous(), dtype, self)

    def numbers(self, value: Any, dtype: torch.dtype | None = None) -> Tensor:
        """Return the expression numbers of a tensor or a number, in an element type if one is
        given.
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
        """Convert numbers to another element type."""
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
        """Apply an operator with at least one shadow argument."""
        made = self._ran(func, args, kwargs)
        if isinstance(made, Shadow) and schema_of(func).name.partition("::")[2] in _WHOLE:
            made.is_whole = is_whole([*args, *kwargs.values()])
        return made

    def _ran(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        schema = schema_of(func)
        name = schema.name.partition("::")[2]
        if name in _FACTORIES or name.startswith(("empty", "new_empty")):
            return _factory(name, func, args, kwargs)
        is_random = torch.Tag.nondeterministic_seeded in func.tags and name not in STEPS
        if schema.is_mutable or name in _ASKS or is_random:
            raise NotFollowed(f"aten.{name}")
        if (handler := HANDLERS.get(name)) is not None:
            made = handler(self, func, args, kwargs)
            if made is not NotImplemented:
                return made
        is_pointwise = torch.Tag.pointwise in func.tags
        steps = STEPS.get(name)
        if steps is not None and (not self.is_exact or name in EXACT_STEPS):
            return _shaped(steps(*args, **kwargs), self.type_of(func, args, kwargs))
        if is_pointwise:
            return self.pointwise(func, name, args, kwargs)
        if (parts := decomposition_table.get(func)) is not None:
            made = parts(*args, **kwargs)
            if made is not NotImplemented:
                return made
        made = func.decompose(*args, **kwargs)
        return self.opaque(func, name, args, kwargs) if made is NotImplemented else made

    def type_of(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Return the result of an operator without elements."""
        named = {name: mapped(_bare, value) for name, value in kwargs.items()}
        return func(*mapped(_bare, args), **named)

    def pointwise(self, func: Any, name: str, args: Any, kwargs: Mapping[str, Any]) -> Shadow:
        """Return an uninterpreted elementwise function."""
        bare = self.type_of(func, args, kwargs)
        tensors: list[Tensor] = []
        said: list[str] = []
        for each in [*args, *kwargs.values()]:
            if isinstance(each, Tensor | float) or type(each) is int:
                tensors.append(self.numbers(each))
            else:
                said.append(str(each))
        rounds = f":{bare.dtype}" if self.is_exact else ""
        tensors = [each.expand(bare.shape) for each in tensors]
        return self.made(digest(f"{name}{rounds}({said})", *tensors), bare.dtype)

    def opaque(self, func: Any, name: str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Return an uninterpreted function of whole tensors."""
        bare = self.type_of(func, args, kwargs)
        text = f"{func}({mapped(self._said, args)}{sorted(mapped_values(self._said, kwargs))})"
        results = [self.unknown(f"{text}#{n}", b) for n, b in enumerate(flat([bare]))]
        return results[0] if isinstance(bare, Tensor) else tuple(results)

    def unknown(self, said: str, like: Any) -> Any:
        """Return a tensor that is a function of its name."""
        if not isinstance(like, Tensor):
            raise NotFollowed(said)
        return Shadow(random(said, like.shape, 0), like.dtype, self)

    def _said(self, value: Any) -> str:
        return self.name_of(value)

    def name_of(self, value: Any) -> str:
        """Return a name that two values share only if they are equal."""
        if not isinstance(value, Tensor):
            return repr(value)
        held = self.numbers(value).reshape(-1)
        places = torch.arange(1, held.numel() + 1)
        sums = [int(digest(salt, held, places).sum()) for salt in ("name", "again")]
        return f"{list(value.shape)}:{value.dtype}:{sums}"


def mapped_values(function: Callable[[Any], Any], values: Mapping[str, Any]) -> list[Any]:
    """Apply a function to the items of a mapping's values."""
    return [(name, str(mapped(function, value))) for name, value in values.items()]


def _bare(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return torch.empty(value.shape, dtype=value.dtype, device="meta")


def _factory(name: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if "empty" in name:
        raise NotFollowed(f"aten.{name}")
    plain = [torch.empty(a.shape, dtype=a.dtype) if is_shadow(a) else a for a in args]
    return func(*plain, **kwargs)


def _shaped(made: Any, bare: Any) -> Any:
    """Return the results of steps, some of which may be missing, with the types of the operator's
    own.
    """
    if isinstance(bare, Tensor):
        found = made[0] if isinstance(made, tuple) else made
        return found if found.dtype == bare.dtype else found.to(bare.dtype)
    given = list(made) if isinstance(made, list | tuple) else [made]
    return (*given, *([None] * (len(bare) - len(given))))


# -- movements -----------------------------------------------------------------------------------


def moved(reading: Reading, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the numbers, moved like the elements."""
    schema = schema_of(func)
    name = schema.name.partition("::")[2]
    names = [argument.name for argument in schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    if any(is_shadow(each) for n in _INDICES for each in flat([given.get(n)])):
        made = next((m for look in LOOKUPS if (m := look(reading, name, given)) is not None), None)
        is_made = made is not None and made is not NotImplemented
        return made if is_made else reading.opaque(func, name, args, kwargs)
    first = next(v for v in flat(list(given.values())) if is_shadow(v))
    data = [v for n, v in given.items() if n not in _INDICES for v in flat([v])]
    kinds = {v.dtype for v in data if isinstance(v, Tensor)}
    of = first.dtype
    for kind in kinds:
        of = torch.promote_types(of, kind)

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


def kept(value: Tensor, mask: Tensor, reading: Reading) -> Shadow:
    """Return elements where a known mask is true, else 0."""
    zero = reading.numbers(torch.zeros((), dtype=value.dtype))
    return reading.made(torch.where(mask, reading.numbers(value), zero), value.dtype)
