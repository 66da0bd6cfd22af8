"""Represent unknown numbers, on which the conditions and functions of rules run.

A rule's `$c` becomes a `SymbolicFloat` or a `SymbolicInt`. Arithmetic on one gives another, and a
comparison gives a `Truth`. Converting a `Truth` to bool forks the run: it is true in one run and
false in the other (`paths`). In ops of the IR such a number is a plain number, a *token*, which
`Tokens` maps back: tokens are numbers that every float type represents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType, SimpleNamespace
from typing import Any, TypeVar

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import StepwellError
from stepwell.validation.rules.hashes import names_in

T = TypeVar("T")
MANY = 24
"""The number of paths after which only those with consistent answers are followed."""


@dataclass(frozen=True)
class Unknown:
    """An arbitrary float or int of a rule; `is_late` if it is computed at runtime."""

    name: str
    is_int: bool = False
    is_late: bool = False


@dataclass(frozen=True, eq=False)
class Number:
    """An expression over unknown numbers: `variable`s, constants, and functions of them."""

    function: str
    operands: tuple[Any, ...] = ()
    is_int: bool = False


class Unproven(StepwellError):
    """Raised if a claim about a rule can be neither proved nor refuted by the available means."""


@dataclass
class Path:
    """One run of a function on symbolic numbers, with the answer to each comparison in it."""

    answers: list[bool] = field(default_factory=list[bool])
    asked: list[Number] = field(default_factory=list[Number])
    forced: set[int] = field(default_factory=set[int])
    """Questions with only one possible answer."""
    possible: Callable[[list[tuple[Number, bool]]], bool] | None = None

    def ask(self, question: Number) -> bool:
        """Return the answer of this run to a comparison: the prescribed answer, else True."""
        at = len(self.asked)
        self.asked.append(question)
        if at == len(self.answers):
            self.answers.append(True)
            if self.possible is not None:
                self._restrict(at)
        return self.answers[at]

    def _restrict(self, at: int) -> None:
        assert self.possible is not None
        for answer in (True, False):
            self.answers[at] = answer
            if not self.possible(self.conditions):
                self.answers[at] = not answer
                self.forced.add(at)
                return
        self.answers[at] = True

    @property
    def conditions(self) -> list[tuple[Number, bool]]:
        """Return the facts about symbolic numbers that hold in this run."""
        return list(zip(self.asked, self.answers, strict=False))


class Tokens:
    """The tokens of symbolic numbers, and the path of the run."""

    def __init__(self) -> None:
        self.path = Path()
        self.known: dict[float, SymbolicFloat] = {}
        self.whole: dict[int, SymbolicInt] = {}
        self.variables = 0

    def float(self, node: Number) -> SymbolicFloat:
        """Return the symbolic float of an expression."""
        at = len(self.known)
        token = math.ldexp(129 + 2 * (at % 63), -17 + at // 63)
        made = self.known[token] = SymbolicFloat(token)
        made.node, made.tokens = node, self
        return made

    def int(self, node: Number) -> SymbolicInt:
        """Return the symbolic int of an expression."""
        token = 1_000_003 + 2 * len(self.whole)
        made = self.whole[token] = SymbolicInt(token)
        made.node, made.tokens = node, self
        return made

    def lifted(self, value: Any) -> Any:
        """Return the symbolic number of a token; other values unchanged."""
        if isinstance(value, Symbolic | bool):
            return value
        if isinstance(value, float):
            return self.known.get(value, value)
        if isinstance(value, int):
            return self.whole.get(value, value)
        if isinstance(value, list):
            return [self.lifted(item) for item in value]
        return value

    def lowered(self, value: Any) -> Any:
        """Return the token of a symbolic number; other values unchanged."""
        if isinstance(value, SymbolicFloat):
            return float.__float__(value)
        if isinstance(value, SymbolicInt):
            return int.__int__(value)
        if isinstance(value, list):
            return [self.lowered(item) for item in value]
        return bool(value) if isinstance(value, Truth) else value


class Symbolic:
    """The base class of symbolic numbers, on which functions of rules run."""

    node: Number
    tokens: Tokens

    def _with(self, function: str, *others: Any, is_int: bool | None = None) -> Any:
        nodes = (self.node, *(node_of(other) for other in others))
        return self._made(function, nodes, is_int)

    def _after(self, function: str, other: Any) -> Any:
        return self._made(function, (node_of(other), self.node), None)

    def _made(self, function: str, nodes: tuple[Number, ...], is_int: bool | None) -> Any:
        whole = all(node.is_int for node in nodes) if is_int is None else is_int
        node = Number(function, nodes, whole)
        return self.tokens.int(node) if whole else self.tokens.float(node)

    def _compared(self, function: str, other: Any) -> Any:
        if not isinstance(other, int | float):
            return NotImplemented
        return Truth(Number(function, (self.node, node_of(other))), self.tokens)

    def __add__(self, other: Any) -> Any:
        return self._with("add", other)

    def __radd__(self, other: Any) -> Any:
        return self._after("add", other)

    def __sub__(self, other: Any) -> Any:
        return self._with("subtract", other)

    def __rsub__(self, other: Any) -> Any:
        return self._after("subtract", other)

    def __mul__(self, other: Any) -> Any:
        return self._with("multiply", other)

    def __rmul__(self, other: Any) -> Any:
        return self._after("multiply", other)

    def __truediv__(self, other: Any) -> Any:
        return self._with("divide", other, is_int=False)

    def __rtruediv__(self, other: Any) -> Any:
        return self._made("divide", (node_of(other), self.node), False)

    def __mod__(self, other: Any) -> Any:
        return self._with("modulo", other)

    def __neg__(self) -> Any:
        return self._with("negate")

    def __abs__(self) -> Any:
        return self._with("absolute")

    def __eq__(self, other: object) -> Any:
        return self is other or self._compared("equal", other)

    def __ne__(self, other: object) -> Any:
        same = self._compared("equal", other)
        return same if same is NotImplemented else not same

    def __lt__(self, other: Any) -> Any:
        return self._compared("less", other)

    def __le__(self, other: Any) -> Any:
        return self._compared("less_equal", other)

    def __gt__(self, other: Any) -> Any:
        return Truth(Number("less", (node_of(other), self.node)), self.tokens)

    def __ge__(self, other: Any) -> Any:
        return Truth(Number("less_equal", (node_of(other), self.node)), self.tokens)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __hash__(self) -> int:
        return id(self)

    def __format__(self, spec: str) -> str:
        return "c"


class SymbolicFloat(Symbolic, float):
    """A float64 that is a variable of the solver."""


class SymbolicInt(Symbolic, int):
    """An integer below 2³¹ that is a variable of the solver."""

    def is_integer(self) -> bool:
        """Return True, because a symbolic integer is an integer."""
        return True


@dataclass(frozen=True, eq=False)
class Truth:
    """The result of comparing symbolic numbers; its conversion to bool forks the run."""

    node: Number
    tokens: Tokens

    def __bool__(self) -> bool:
        return self.tokens.path.ask(self.node)

    def __eq__(self, other: object) -> bool:
        return bool(self) == bool(other)

    def __hash__(self) -> int:
        return id(self)


def node_of(value: Any) -> Number:
    """Return the expression of a symbolic number, or of a Python number as a constant."""
    if isinstance(value, Symbolic):
        return value.node
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unproven(f"arithmetic of a number and {type(value).__name__}")
    return Number("constant", (value,), isinstance(value, int))


Possible = Callable[[list[tuple[Number, bool]]], bool]


def paths(
    run: Callable[[Path], T], most: int = 400, possible: Possible | None = None
) -> Iterator[tuple[Path, T]]:
    """Yield every path through a function that branches on symbolic numbers.

    Args:
        run: the function.
        most: the largest number of paths.
        possible: whether answers are consistent, called when many paths are pending.

    Raises:
        Unproven: there are more than `most` paths.
    """
    waiting: list[list[bool]] = [[]]
    for count in range(most):
        if not waiting:
            return
        given = waiting.pop()
        path = Path(list(given), possible=possible if count > MANY else None)
        result = run(path)
        for at in range(len(given), len(path.asked)):
            if at in path.forced:
                continue
            waiting.append([*path.answers[:at], False])
        yield path, result
    raise Unproven(f"more than {most} paths through its conditions")


# -- functions that compute with such numbers ----------------------------------------------------


def _asked(name: str) -> Callable[[Any], Any]:
    plain: Callable[[Any], bool] = getattr(math, name)

    def ask(value: Any) -> Any:
        if isinstance(value, Symbolic):
            return Truth(Number(name, (value.node,)), value.tokens)
        return plain(value)

    return ask


def _copysign(size: Any, sign: Any) -> Any:
    if not isinstance(sign, Symbolic):
        return math.copysign(size, sign)
    is_below = Truth(Number("signbit", (sign.node,)), sign.tokens)
    return -abs(size) if is_below else abs(size)


def _frexp(value: Any) -> Any:
    """Apply `math.frexp`; only the mantissa is defined: ±½ exactly for powers of two."""
    if not isinstance(value, Symbolic):
        return math.frexp(value)
    return value._with("mantissa", is_int=False), value._with("exponent", is_int=True)  # pyright: ignore[reportPrivateUsage]


def _tensor(value: Any, dtype: Any = None) -> Any:
    """Return a number rounded to a dtype, as `torch.tensor(number, dtype=torch.float32).item()`."""
    if not isinstance(value, Symbolic):
        return torch.tensor(value, dtype=dtype)
    if dtype is not torch.float32:
        raise Unproven(f"a number as {dtype}")
    return SimpleNamespace(item=lambda: value._with("single", is_int=False))  # pyright: ignore[reportPrivateUsage]


class _FloatType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, float)


class _Float(float, metaclass=_FloatType):
    """A replacement of `float` for functions that run on symbolic numbers."""

    def __new__(cls, value: Any = 0.0) -> Any:
        if isinstance(value, SymbolicFloat):
            return value
        if isinstance(value, SymbolicInt):
            return value._with("float", is_int=False)  # pyright: ignore[reportPrivateUsage]
        return float(value)


class _Instead:
    """An object that stands in for a module, with some of its functions replaced."""

    def __init__(self, module: Any, **functions: Any) -> None:
        self.__dict__.update(functions)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


_FUNCTIONS: dict[Any, Any] = {
    math.isfinite: _asked("isfinite"),
    math.isnan: _asked("isnan"),
    math.isinf: _asked("isinf"),
    math.copysign: _copysign,
    math.frexp: _frexp,
}
_MATH = _Instead(math, **{plain.__name__: other for plain, other in _FUNCTIONS.items()})


class Rebound:
    """A mapping from functions to copies whose global names mean versions for symbolic numbers.

    Functions of `stepwell.translate` that they call by name are rebound recursively.
    """

    def __init__(self, given: dict[str, Any] | None = None) -> None:
        self.given = given or {}
        self._made: dict[FunctionType, FunctionType] = {}

    def __call__(self, value: Any) -> Any:
        """Return the replacement of a function; other values unchanged."""
        if value is math:
            return _MATH
        if value is torch:
            return _Instead(torch, tensor=_tensor)
        if isinstance(value, FunctionType):
            return self._function(value)
        try:
            return _FUNCTIONS.get(value, value)
        except TypeError:
            return value

    def _function(self, function: FunctionType) -> Any:
        name = function.__name__
        if name in self.given:
            return self.given[name]
        if not str(function.__module__).startswith("stepwell.translate"):
            return function
        if function not in self._made:
            held: dict[str, Any] = {"float": _Float, "__builtins__": __builtins__}
            made = FunctionType(
                function.__code__, held, name, function.__defaults__, function.__closure__
            )
            made.__kwdefaults__ = function.__kwdefaults__
            made.__module__ = function.__module__
            self._made[function] = made
            for used in names_in(function.__code__):
                if used in function.__globals__:
                    held[used] = self(function.__globals__[used])
        return self._made[function]


def taking(function: Callable[..., Any], tokens: Tokens) -> Callable[..., Any]:
    """Wrap a function so that tokens among its arguments are replaced by the symbolic numbers for
    which they stand.
    """
    if isinstance(function, FunctionType) and "program" in _arguments(function):

        def with_program(*given: Any, program: Any) -> Any:
            return function(*map(tokens.lifted, given), program=program)

        return with_program

    def lifting(*given: Any) -> Any:
        return function(*map(tokens.lifted, given))

    return lifting


def _arguments(function: FunctionType) -> Sequence[str]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
