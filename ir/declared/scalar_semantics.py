"""Machine-readable scalar semantics of ops: `@means`, which complements `@maps`.

A meaning defines an element of the result as an expression over elements of the operands:

    @means("aten.silu.default", "xnnpack.silu")
    def silu(x: Term) -> Term:
        return x / (1.0 + exp(-x))

    @means("aten.mean.dim")
    def mean(x: Term) -> Term:
        return average(x)

Axis maps (`stepwell.ir.axes.maps`) state which elements these are. Operands broadcast against the
result; `total`, `average`, `greatest` and `least` reduce an operand over the axes that its map
reads whole. Data movement (`stepwell.ir.declared.families`) needs no function.

The function is called once for an op, with `Term`s. Positional parameters are the arguments of the
schema in order, or the operands if the op has no schema. Keyword-only parameters are arguments, or
properties, by name (`op` is the op itself). A tensor is a `Term` and a number is itself; a number
that is computed at run time is an `unknown`. The result is a tree that an engine evaluates over its
own scalars: intervals and classes of numbers (`stepwell.translate.range_analysis`), tensors (the
tests), terms of a solver, C.

The functions are those of real numbers. The evaluating engine adds rounding: floats are rounded to
the result's element type after each of `PRIMITIVES`, integers wrap.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.ir.axes.maps import All, axis_map
from stepwell.ir.declared.families import is_movement, is_of
from stepwell.ir.types import dims, element

PRIMITIVES = {
    name: int(arity)
    for arity, names in {
        "1": "negate absolute exp expm1 log log1p sqrt rsqrt reciprocal sin cos tan tanh erf atan "
        "asin acos sinh cosh floor ceil round trunc is_nan sign not_ total average "
        "greatest least some invert cast",
        "2": "add subtract multiply divide quotient minimum maximum power modulo less less_equal "
        "equal and_ or_ xor",
        "3": "where",
    }.items()
    for name in names.split()
}
"""Every primitive function with its number of operands.

`quotient` is a/b rounded down, `modulo` the remainder with b's sign; `minimum` and `maximum` are
NaN if either operand is; `power` is C's; `round` rounds ties to even; `not_` is of bools, `invert`
of bits. `some` is an unspecified element of a tensor, as for `topk`.
"""


@dataclass(frozen=True, eq=False, slots=True)
class Term:
    """A primitive applied to terms and numbers. Terms are compared by identity."""

    function: str
    operands: tuple[Scalar, ...]
    to: Attribute | None = None
    """The target element type of a `cast`."""
    value: SSAValue | None = None
    """For an `element`: the operand; the axis map says which of its elements."""

    def __neg__(self) -> Term:
        return negate(self)

    def __abs__(self) -> Term:
        return absolute(self)

    def __invert__(self) -> Term:
        return not_(self)

    def __add__(self, other: Scalar) -> Term:
        return Term("add", (self, other))

    def __radd__(self, other: Scalar) -> Term:
        return Term("add", (other, self))

    def __sub__(self, other: Scalar) -> Term:
        return Term("subtract", (self, other))

    def __rsub__(self, other: Scalar) -> Term:
        return Term("subtract", (other, self))

    def __mul__(self, other: Scalar) -> Term:
        return Term("multiply", (self, other))

    def __rmul__(self, other: Scalar) -> Term:
        return Term("multiply", (other, self))

    def __truediv__(self, other: Scalar) -> Term:
        return Term("divide", (self, other))

    def __rtruediv__(self, other: Scalar) -> Term:
        return Term("divide", (other, self))

    def __lt__(self, other: Scalar) -> Term:
        return Term("less", (self, other))

    def __le__(self, other: Scalar) -> Term:
        return Term("less_equal", (self, other))

    def __gt__(self, other: Scalar) -> Term:
        return Term("less", (other, self))

    def __ge__(self, other: Scalar) -> Term:
        return Term("less_equal", (other, self))

    def __and__(self, other: Scalar) -> Term:
        return Term("and_", (self, other))

    def __or__(self, other: Scalar) -> Term:
        return Term("or_", (self, other))


Scalar = Term | int | float


def element_of(value: SSAValue) -> Term:
    """Return a term for the element (or elements) of an operand that the op's axis map states."""
    return Term("element", (), value=value)


def unknown() -> Term:
    """Return a term for a number that is known only at run time."""
    return Term("unknown", ())


def _primitive(name: str) -> Callable[..., Term]:
    def of_one(x: Scalar) -> Term:
        return Term(name, (x,))

    def of_two(x: Scalar, y: Scalar) -> Term:
        return Term(name, (x, y))

    def of_three(x: Scalar, y: Scalar, z: Scalar) -> Term:
        return Term(name, (x, y, z))

    return (of_one, of_two, of_three)[PRIMITIVES[name] - 1]


negate, absolute, exp, expm1, log, log1p = map(
    _primitive, "negate absolute exp expm1 log log1p".split()
)
sqrt, rsqrt, reciprocal, sin, cos, tan = map(
    _primitive, "sqrt rsqrt reciprocal sin cos tan".split()
)
tanh, erf, atan, asin, acos, sinh, cosh = map(
    _primitive, "tanh erf atan asin acos sinh cosh".split()
)
floor, ceil, round_, trunc, is_nan, sign = map(
    _primitive, "floor ceil round trunc is_nan sign".split()
)
not_, invert, total, average, greatest, least, some = map(
    _primitive, "not_ invert total average greatest least some".split()
)
quotient, minimum, maximum, power, modulo = map(
    _primitive, "quotient minimum maximum power modulo".split()
)
equal, xor, where = map(_primitive, "equal xor where".split())


def cast_to(x: Scalar, to: Attribute) -> Term:
    """Convert a number to another element type: to nearest for floats, towards zero for
    integers.
    """
    return Term("cast", (x,), to)


@dataclass(frozen=True)
class Meaning:
    """The semantics of an op's results.

    Attributes:
        element: an element of each result; for data movement, one of the elements in `moved`.
        moved: the values whose elements the results of a data movement consist of, and constants.
    """

    element: Term | None = None
    moved: tuple[Scalar, ...] = ()


Expression = Callable[..., Term]
_FUNCTIONS: dict[str, Expression] = {}
_F = TypeVar("_F", bound=Expression)


def means(*names: str) -> Callable[[_F], _F]:
    """Register, for ops of these names, the expression of an element of their result."""

    def register(function: _F) -> _F:
        for name in names:
            assert name not in _FUNCTIONS, name
            _FUNCTIONS[name] = function
        return function

    return register


def meant_names(dialect: str) -> tuple[str, ...]:
    """List the ops of a dialect that have a registered meaning."""
    return tuple(name for name in _FUNCTIONS if name.startswith(f"{dialect}."))


def expression_of(name: str) -> Expression | None:
    """Return the registered expression of an op by its name."""
    return _FUNCTIONS.get(name)


EXACT = frozenset(
    "negate absolute minimum maximum less less_equal equal where floor ceil round trunc is_nan "
    "sign not_ and_ or_ xor element cast".split()
)
"""Primitives whose results are not rounded."""


def roundings(term: Any) -> int:
    """Return how many primitives of an expression round their results."""
    if not isinstance(term, Term):
        return 0
    return (term.function not in EXACT) + sum(map(roundings, term.operands))


def expression_on(name: str, given: Mapping[str, Any], is_tensor: type[Any]) -> Any:
    """Return the registered expression of an op for arguments by name; None without one.

    Args:
        name: the op's name.
        given: its arguments in order.
        is_tensor: the class of arguments that have elements; an `element` holds such an argument.
    """
    if (function := _FUNCTIONS.get(name)) is None:
        return None
    leaves = {
        key: Term("element", (), value=cast(SSAValue, value))
        if isinstance(value, is_tensor)
        else value
        for key, value in given.items()
    }
    count, named = parameters_of(function)
    return function(*list(leaves.values())[:count], **{key: leaves.get(key) for key in named})


def meaning(op: Operation) -> Meaning | None:
    """Return the meaning of an op; None without one, or if it does not depend on the op alone."""
    function = _FUNCTIONS.get(op.name)
    if function is not None:
        element_ = _call(function, op)
        return None if element_ is None else Meaning(element_)
    if is_movement(op):
        return Meaning(moved=tuple(element_of(v) for v in op.operands if _is_tensor(v)))
    if is_of(op, "lookup"):
        return Meaning(moved=(element_of(op.operands[0]),))
    if is_of(op, "padding"):
        x, *others = (element_of(v) for v in op.operands if _is_tensor(v))
        filled = argument(op, "value" if hasattr(op, "arg") else "padding_value")
        return Meaning(moved=(x, *(others or (0.0 if filled is None else filled,))))
    if is_of(op, "write") and not hasattr(op, "arg"):
        result_element = element(op.results[0].type)
        tensors = (v for v in op.operands if _is_tensor(v) and element(v.type) == result_element)
        return Meaning(moved=tuple(map(element_of, tensors)))
    return None


def _is_tensor(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType)


class NotSaid(Exception):
    """Raised by a function that defines an op's semantics, if it does not cover the arguments."""


def _call(function: Expression, op: Operation) -> Term | None:
    positional, named = parameters_of(function)
    given = _in_order(op, positional)
    keywords = {name: op if name == "op" else argument(op, name) for name in named}
    try:
        found = function(*given, **keywords)
    except NotSaid:
        return None
    return cast(Term | None, found)


@cache
def parameters_of(function: Expression) -> tuple[int, tuple[str, ...]]:
    """Return the number of a function's positional parameters, and the names of the others."""
    kinds = inspect.signature(function).parameters.values()
    positional = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in kinds)
    return positional, tuple(p.name for p in kinds if p.kind is p.KEYWORD_ONLY)


def _in_order(op: Operation, count: int) -> list[Any]:
    schema = getattr(op, "SCHEMA", None)
    if schema is None:
        scalars: list[Any] = [_scalar(value) for value in op.operands[:count]]
        return scalars + [None] * (count - len(scalars))
    return [argument(op, each.name) for each in schema.arguments[:count]]


def argument(op: Operation, name: str) -> Any:
    """Return an op's argument or property by name: a term, a number, None, or another value."""
    arg = getattr(op, "arg", None)
    if arg is not None:
        return _scalar(arg(name)) if name in cast(Any, op).SCHEMA.by_name else None
    held = op.properties.get(name)
    if isinstance(held, IntegerAttr | FloatAttr):
        return held.value.data
    return held


def _scalar(scalar: Any) -> Any:
    if not isinstance(scalar, SSAValue):
        return scalar
    return element_of(scalar) if _is_tensor(scalar) else unknown()


Count = Callable[[Any], int | None]
_COUNTS: dict[str, Count] = {}


def counts(*names: str) -> Callable[[Count], Count]:
    """Register the number of elements that ops reduce, if axis maps do not define it."""

    def register(function: Count) -> Count:
        for name in names:
            assert name not in _COUNTS, name
            _COUNTS[name] = function
        return function

    return register


Range = Callable[[Any], tuple[int, int]]
_RANGES: dict[str, Range] = {}


def ranges(*names: str) -> Callable[[Range], Range]:
    """Register the range of the results of ops, which holds for all operands."""

    def register(function: Range) -> Range:
        for name in names:
            assert name not in _RANGES, name
            _RANGES[name] = function
        return function

    return register


def range_of(op: Operation) -> tuple[int, int] | None:
    """Return the declared smallest and largest value of an op's results; None if not declared."""
    function = _RANGES.get(op.name)
    return None if function is None else function(op)


def count_of(op: Operation) -> int | None:
    """Return how many operand elements are reduced to an element of the first result; None if
    the number is symbolic.
    """
    if op.name in _COUNTS:
        return _COUNTS[op.name](op)
    axes = axis_map(op)
    if axes is None:
        return None
    counts: list[int] = []
    for shape, links in zip(axes.shapes, axes.links, strict=True):
        count = 1
        for size, link in zip(shape, links or (), strict=False):
            if isinstance(link, All):
                if not isinstance(size, int):
                    return None
                count *= size
        counts.append(count)
    return max(counts, default=None)


def keeps_axes(op: Operation) -> bool:
    """Whether a reduced axis remains in the result at its position, with size 1 or repeated."""
    operand_dims, result_dims = dims(op.operands[0].type), dims(op.results[0].type)
    return len(operand_dims) == len(result_dims)
