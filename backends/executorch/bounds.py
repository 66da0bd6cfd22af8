"""Range analysis: upper bounds of symbolic dimensions, by interval arithmetic over expressions.

Expressions are text as sympy prints it (`2*s77 + 1`, `Max(1, s0)`, `s0//2`). They are parsed with
Python's grammar and never evaluated by Python. Intervals ignore that terms share symbols, so that a
bound may exceed the largest value but is never below it.
"""

import ast
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from stepwell.ir.diagnostics import UnsupportedError

Range = tuple[int, int | None]
Number = Fraction | float
"""An exact number, or an infinity."""
_Interval = tuple[Number, Number]
LARGEST = (1 << 31) - 1
"""The largest size in a `.pte`; torch writes larger ones where it knows no bound."""
_ABOVE = "export with an upper bound: torch.export.Dim(name, max=...)"


def upper_bound(expression: str, ranges: Mapping[str, Range]) -> int:
    """Return the largest value of an expression, given inclusive ranges of its symbols.

    Raises:
        UnsupportedError: a symbol has no upper bound that a size can have, or the expression is
            not supported.
    """
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnsupportedError(f"dimension {expression!r} is not an expression") from None
    _, high = _interval(tree, ranges, expression)
    if isinstance(high, float) or high > LARGEST:
        raise UnsupportedError(
            f"dimension {expression} has no upper bound, and memory is planned ahead", help=_ABOVE
        )
    return max(math.floor(high), 0)


def _interval(node: ast.expr, ranges: Mapping[str, Range], whole: str) -> _Interval:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return Fraction(value), Fraction(value)
        case ast.Name(id=name):
            low, high = ranges.get(name, (0, None))
            return Fraction(low), math.inf if high is None else Fraction(high)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            low, high = _interval(operand, ranges, whole)
            return -high, -low
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _corners(
                _BINARY[type(op)],
                [_interval(left, ranges, whole), _interval(right, ranges, whole)],
                whole,
            )
        case ast.Call(func=ast.Name(id=name), args=[left, right]) if name in _MODULO:
            low, high = _interval(left, ranges, whole)
            _, modulus = _interval(right, ranges, whole)
            return Fraction(0), modulus - 1 if low < 0 else min(high, modulus - 1)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
            intervals = [_interval(argument, ranges, whole) for argument in args]
            return _corners(_CALLS[name], intervals, whole)
        case _:
            raise UnsupportedError(
                f"dimension {whole}: no upper bound is known for {ast.unparse(node)}",
                help="pin its symbols: lower(..., sizes={...}) or --sizes",
            )


def _refuse_what_turns(
    function: Callable[..., Number], intervals: Sequence[_Interval], whole: str
) -> None:
    """Refuse division by, and powers of, an argument that may be negative: neither is monotone."""
    turning = {_divide: 1, _floor_divide: 1, _ceil_divide: 1, _power: 0}.get(function)
    if turning is not None and intervals[turning][0] < (0 if function is _power else 1):
        raise UnsupportedError(
            f"dimension {whole} has no upper bound: the divisor may be below 1, or the base of a "
            "power negative",
            help="export with a lower bound: torch.export.Dim(name, min=...)",
        )


def _corners(
    function: Callable[..., Number], intervals: Sequence[_Interval], whole: str
) -> _Interval:
    """Return the range of a function that is monotone in each argument: its values at the
    corners.
    """
    _refuse_what_turns(function, intervals, whole)
    values: list[Number] = []
    for corner in itertools.product(*intervals):
        try:
            value = function(*corner)
        except (ZeroDivisionError, OverflowError, TypeError):
            raise UnsupportedError(
                f"dimension {whole} has no upper bound: at a limit of its symbols the value is "
                "undefined",
                help=_ABOVE,
            ) from None
        values.append(Fraction(0) if value != value else value)  # inf - inf, 0 * inf
    return min(values), max(values)


def _times(a: Number, b: Number) -> Number:
    return Fraction(0) if a == 0 or b == 0 else a * b


def _floor(a: Number) -> Number:
    return a if isinstance(a, float) else Fraction(math.floor(a))


def _ceil(a: Number) -> Number:
    return a if isinstance(a, float) else Fraction(math.ceil(a))


def _divide(a: Number, b: Number) -> Number:
    if isinstance(b, float):
        return Fraction(0)
    return a / b


def _power(a: Number, b: Number) -> Number:
    if not isinstance(b, Fraction) or b.denominator != 1 or not 0 <= b <= 64:
        raise TypeError
    return a ** int(b)


def _floor_divide(a: Number, b: Number) -> Number:
    return _floor(_divide(a, b))


def _ceil_divide(a: Number, b: Number) -> Number:
    return _ceil(_divide(a, b))


def _same(a: Number) -> Number:
    return a


_BINARY: dict[type[ast.operator], Callable[..., Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _times,
    ast.Div: _divide,
    ast.FloorDiv: _floor_divide,
    ast.Pow: _power,
}
_MODULO = frozenset({"Mod", "PythonMod"})
_CALLS: dict[str, Callable[..., Number]] = {
    "Max": max,
    "Min": min,
    "FloorDiv": _floor_divide,
    "CleanDiv": _floor_divide,
    "CeilDiv": _ceil_divide,
    "IntTrueDiv": _divide,
    "FloatTrueDiv": _divide,
    "floor": _floor,
    "FloorToInt": _floor,
    "ceiling": _ceil,
    "CeilToInt": _ceil,
    "TruncToInt": _floor,
    "ToFloat": _same,
    "Identity": _same,
}
