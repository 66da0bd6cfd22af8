"""Transfer functions of PyTorch operators on expression numbers, by name."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from stepwell.validation import kernel_steps
from stepwell.validation.certificates.field import (
    bilinear,
    digest,
    inverse,
    mixed,
    of_number,
    power,
    prime,
    times,
)
from stepwell.validation.certificates.field import unordered as commuting
from stepwell.validation.certificates.shadows import (
    EXACT_STEPS,
    HANDLERS,
    STEPS,
    Call,
    Reading,
    bare,
    is_shadow,
    is_whole,
    moved,
)
from stepwell.validation.error_rules import MOVEMENTS

Operator = Callable[[Call], Any]
HANDLERS.update(dict.fromkeys(MOVEMENTS, moved))
STEPS.update({n: s for n, s in kernel_steps.STEPS.items() if n not in ("add", "sub", "rsub")})
EXACT_STEPS.update(kernel_steps.FOLLOWED)


def handles(*names: str) -> Callable[[Operator], Operator]:
    """Return a decorator that registers a transfer function of some PyTorch operators."""

    def register(function: Operator) -> Operator:
        for name in names:
            assert name not in HANDLERS, name
            HANDLERS[name] = function
        return function

    return register


class Numbers:
    """The arithmetic of expression numbers in one element type, bitwise or over the reals."""

    def __init__(self, reading: Reading, of: torch.dtype) -> None:
        self.reading, self.of = reading, of
        is_ring = not of.is_floating_point and of.itemsize >= 4
        self.rounds = not is_ring and (reading.is_exact or not of.is_floating_point)

    @cached_property
    def one(self) -> Tensor:
        return self.reading.numbers(torch.ones((), dtype=self.of))

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        if self.rounds:
            return commuting(f"add:{self.of}", x, y)
        found = (x + y) % prime()
        ends = [of_number(sign * math.inf) for sign in (1, -1)]
        for end in ends if self.of.is_floating_point else ():
            found = torch.where((x == end) | (y == end), end, found)  # The other values are finite.
        return found

    def multiply(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.rounds:
            return times(x, y)
        made = commuting(f"mul:{self.of}", x, y)
        return torch.where(y == self.one, x, torch.where(x == self.one, y, made))

    def divide(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.rounds:
            return times(x, inverse(y))
        return torch.where(y == self.one, x, digest(f"div:{self.of}", x, y))

    def scaled(self, value: Any, factor: Any) -> Tensor:
        """Return a value times a factor; the product with 1 is not rounded."""
        numbers = self.reading.numbers(value, self.of)
        return (
            numbers
            if factor == 1
            else self.multiply(numbers, self.reading.numbers(factor, self.of))
        )

    def negate(self, x: Tensor) -> Tensor:
        return (prime() - x) % prime()

    def total(self, x: Tensor, axes: list[int], keep: bool) -> Tensor:
        count = math.prod(x.shape[axis] for axis in axes)
        if not axes or count == 1:
            alone = x.sum(axes, keep) if axes else x
            is_float = axes and self.rounds and self.of.is_floating_point
            return digest(f"alone:{self.of}", alone) if is_float else alone  # 0 + −0 is 0.
        return self.summed(self.terms(x).sum(axes, keep) % prime())

    def terms(self, x: Tensor) -> Tensor:
        """Return the expression numbers of the summands of a sum. In bitwise arithmetic, each
        summand is represented as its product with 1.
        """
        return times(mixed(x), mixed(self.one)) if self.rounds else x

    def summed(self, total: Tensor) -> Tensor:
        """Return the expression number of a sum of `terms`."""
        return digest(f"dot:{self.of}", total) if self.rounds else total

    def product(self, kernel: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
        """Return the expression number of a sum of products (a matrix product or a convolution)."""
        if not self.rounds:
            return bilinear(kernel, x, y)
        return self.summed(bilinear(kernel, mixed(x), mixed(y)))


def _arithmetic(call: Call) -> Numbers:
    return Numbers(call.reading, call.bare.dtype)


# -- arithmetic ----------------------------------------------------------------------------------


@handles("add", "sub", "rsub")
def _sums(call: Call) -> Any:
    n = _arithmetic(call)
    x, y = (call.args[1], call.args[0]) if call.name == "rsub" else call.args[:2]
    other = n.scaled(y, call.option("alpha", 2, 1))
    return call.made(n.add(call.numbers(x), other if call.name == "add" else n.negate(other)))


@handles("mul", "div", "divide", "true_divide")
def _products(call: Call) -> Any:
    if call.kwargs.get("rounding_mode") is not None or len(call.args) > 2:
        return NotImplemented
    n = _arithmetic(call)
    return call.made(
        (n.multiply if call.name == "mul" else n.divide)(*map(call.numbers, call.args))
    )


@handles("neg")
def _negative(call: Call) -> Any:
    x, of = call.args[0].held, call.args[0].dtype
    is_narrow = not of.is_floating_point and of.itemsize < 4  # −(−128) is −128 there.
    return call.made(digest(f"neg:{of}", x) if is_narrow else prime() - x)


@handles("square", "reciprocal", "sqrt", "rsqrt", "expm1", "log1p")
def _of_one(call: Call) -> Any:
    n, x = _arithmetic(call), call.numbers(call.args[0])
    if call.name == "square":
        return call.made(n.multiply(x, x))
    if call.name == "reciprocal":
        return call.made(n.divide(call.numbers(1.0), x))
    if call.reading.is_exact:
        return call.made(digest(f"{call.name}:{n.of}", x))
    real: dict[str, Callable[[], Tensor]] = {
        "sqrt": lambda: digest("sqrt", x),
        "rsqrt": lambda: inverse(digest("sqrt", x)),
        "expm1": lambda: digest("exp", x) - 1,
        "log1p": lambda: digest("log", (x + 1) % prime()),
    }
    return call.made(real[call.name]())


@handles("exp", "log", "erf", "sin", "cos", "floor", "ceil", "round", "trunc", "abs", "sign",
         "tanh", "atan", "tan")  # fmt: skip
def _named(call: Call) -> Any:
    if len(call.args) != 1 or call.kwargs:
        return NotImplemented
    rounds = f":{call.bare.dtype}" if call.reading.is_exact else ""
    return call.made(digest(f"{call.name}{rounds}", call.numbers(call.args[0])))


@handles("pow")
def _power(call: Call) -> Any:
    base, exponent = call.args[:2]
    if not is_shadow(base) or isinstance(exponent, Tensor) or not base.dtype.is_floating_point:
        return NotImplemented
    steps: dict[float, Callable[[Any], Any]] = {
        0.5: torch.sqrt, -0.5: torch.rsqrt, -1: torch.reciprocal, 2: torch.square,
        1: lambda x: x, 3: lambda x: x * x * x,
    }  # fmt: skip
    if exponent in steps:
        return steps[exponent](base)
    if call.reading.is_exact or exponent != int(exponent) or exponent < 0:
        return NotImplemented
    return call.made(power(base.held, int(exponent)))


# -- extrema, comparisons, choices ---------------------------------------------------------------


@handles("clamp", "clamp_min", "clamp_max", "hardtanh", "relu", "relu6")
def _clamped(call: Call) -> Any:
    low, high = {
        "clamp": lambda: (call.option("min", 1), call.option("max", 2)),
        "clamp_min": lambda: (call.option("min", 1), None),
        "clamp_max": lambda: (None, call.option("max", 1)),
        "hardtanh": lambda: (call.option("min_val", 1, -1.0), call.option("max_val", 2, 1.0)),
        "relu": lambda: (0, None),
        "relu6": lambda: (0, 6),
    }[call.name]()
    numbers = call.numbers(call.args[0])
    for limit, kind, end in ((low, "maximum", -math.inf), (high, "minimum", math.inf)):
        if limit is not None and (isinstance(limit, Tensor) or limit != end):
            numbers = commuting(kind, numbers, call.numbers(_typed(limit, call.bare.dtype)))
    return call.made(numbers)


def _typed(value: Any, of: torch.dtype) -> Any:
    return value if isinstance(value, Tensor) else float(value) if of.is_floating_point else value


_WORD = 0xFFFFFFFF
_NEUTRAL = {"maximum": (-1, 1), "minimum": (1, -1)}
"""The infinity without an effect, and the one that always wins."""


@handles("maximum", "minimum", "logical_and", "logical_or", "logical_xor", "bitwise_and",
         "bitwise_or", "bitwise_xor", "eq")  # fmt: skip
def _commutes(call: Call) -> Any:
    reading, name = call.reading, call.name
    of = _compared_in(call) if name == "eq" else call.bare.dtype
    x, y = (reading.numbers(each, of) for each in call.args)
    found = commuting(name, x, y)
    if name == "bitwise_and" and call.args[1] == _WORD and not reading.is_exact:
        found = x  # It does not overflow.
    elif name == "eq":
        zero = reading.numbers(torch.zeros((), dtype=of))
        found = torch.where(y == zero, 1 - digest("nonzero", x), found)
    elif name in _NEUTRAL:
        end, other_end = (reading.numbers(sign * math.inf, of) for sign in _NEUTRAL[name])
        found = torch.where(y == end, x, torch.where(x == end, y, found))
        if not reading.is_exact:
            found = torch.where((x == other_end) | (y == other_end), other_end, found)
    return call.made(found)


@handles("lt", "le", "gt", "ge", "ne")
def _compared(call: Call) -> Any:
    x, y = call.args
    if call.name == "ne":
        return call.made(1 - call.reading.numbers(torch.eq(x, y)))
    one, other = (call.reading.numbers(each, _compared_in(call)) for each in (x, y))
    if call.name in ("gt", "ge"):
        one, other = other, one
    return call.made(digest("lt" if call.name in ("lt", "gt") else "le", one, other))


def _compared_in(call: Call) -> torch.dtype:
    return torch.result_type(*(bare(a) if is_shadow(a) else a for a in call.args))


@handles("isfinite")
def _finite(call: Call) -> Any:
    """Return True for every element, because real numbers are finite (the transfer function of
    `isfinite`).
    """
    if call.reading.is_exact:
        return NotImplemented
    return torch.ones(call.args[0].shape, dtype=torch.bool)


@handles("logical_not")
def _not(call: Call) -> Any:
    return call.made(1 - call.numbers(call.args[0]))


@handles("where", "masked_fill")
def _chosen(call: Call) -> Any:
    if len(call.args) < 3:
        return NotImplemented
    test, one, other = call.args
    if call.name == "masked_fill":
        other, test, one = call.args
    x, y = (call.numbers(_typed(each, call.bare.dtype)) for each in (one, other))
    if is_shadow(test):
        return call.made(digest("where", call.reading.numbers(test), x, y))
    return call.made(torch.where(test, x, y))


@handles("tril", "triu")
def _triangle(call: Call) -> Any:
    """Return the elements where a known mask is true, and 0 elsewhere."""
    x = call.args[0]
    mask = call.func(torch.ones(x.shape, dtype=torch.bool), *call.args[1:], **call.kwargs)
    zero = call.numbers(torch.zeros((), dtype=x.dtype))
    return call.made(torch.where(mask, call.numbers(x), zero))


# -- casts ---------------------------------------------------------------------------------------


@handles("_to_copy", "to")
def _converted(call: Call) -> Any:
    call.kwargs.pop("device", None)
    x, of, reading = call.args[0], call.bare.dtype, call.reading
    is_wide = of.itemsize >= 4
    if x.is_whole and not of.is_floating_point and is_wide and not reading.is_exact:
        return call.made(x.held)  # It does not overflow.
    made = call.made(call.numbers(x))
    made.is_whole = of.is_floating_point and is_wide and is_whole(x)
    return made


@handles("copy")
def _copied(call: Call) -> Any:
    return call.made(call.numbers(call.args[1]))


# -- reductions ----------------------------------------------------------------------------------


def _axes(call: Call) -> list[int]:
    given, rank = call.option("dim", 1), call.args[0].dim()
    if given is None or given == []:
        return list(range(rank))
    return [axis % rank if rank else 0 for axis in ([given] if isinstance(given, int) else given)]


@handles("sum", "mean")
def _folded(call: Call) -> Any:
    n, axes = _arithmetic(call), _axes(call)
    numbers = call.numbers(call.args[0])
    if not numbers.dim():
        return call.made(n.total(numbers.reshape(1), [0], False))
    found = n.total(numbers, axes, bool(call.option("keepdim", 2)))
    if call.name == "mean":
        count = math.prod(numbers.shape[axis] for axis in axes)
        found = n.divide(found, call.numbers(float(count)))
    return call.made(found)


@handles("amax", "amin", "any", "all", "max", "min")
def _extreme(call: Call) -> Any:
    x, *more = call.args
    if call.name in ("max", "min") and (more or call.kwargs):
        return NotImplemented
    axes, numbers = _axes(call), call.reading.numbers(x)
    if not numbers.dim() or math.prod(numbers.shape[axis] for axis in axes) == 1:
        return call.made(numbers.reshape(call.bare.shape))
    name = {"max": "amax", "min": "amin"}.get(call.name, call.name)
    total = mixed(numbers).sum(axes, bool(call.option("keepdim", 2))) % prime()
    return call.made(digest(name, total).reshape(call.bare.shape))


@handles("mm", "bmm", "mv", "dot")
def _product(call: Call) -> Any:
    return call.made(_arithmetic(call).product(call.func, *map(call.numbers, call.args)))


@handles("addmm", "baddbmm", "addmv")
def _product_and_bias(call: Call) -> Any:
    n, (bias, *given) = _arithmetic(call), call.args[:3]
    kernel = {"addmm": torch.mm, "baddbmm": torch.bmm, "addmv": torch.mv}[call.name]
    made = call.reading.made(n.product(kernel, *map(call.numbers, given)), n.of)
    found = n.scaled(made, call.kwargs.get("alpha", 1))
    return call.made(n.add(found, n.scaled(bias, call.kwargs.get("beta", 1))))


@handles("convolution", "_convolution")
def _convolved(call: Call) -> Any:
    x, w, bias, stride, padding, dilation, transposed, more, groups = call.args[:9]
    call = Call(call.reading, torch.ops.aten.convolution.default, "", call.args[:9], {})
    n = _arithmetic(call)

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return torch.convolution(a, b, None, stride, padding, dilation, transposed, more, groups)

    found = n.product(kernel, call.numbers(x), call.numbers(w))
    if bias is not None:
        lying = [-1, *[1] * (len(call.bare.shape) - 2)]
        found = n.add(found, call.numbers(bias).reshape(lying).expand(found.shape))
    return call.made(found)


# -- windows -------------------------------------------------------------------------------------


def _windows(tensor: Tensor, size: Any, stride: Any, padding: Any, ceil: bool) -> Tensor:
    """Return sums over windows; padding contributes 0."""
    pooled = torch.nn.functional.avg_pool2d(
        tensor.double(), size, stride or size, padding, ceil, True, divisor_override=1
    )
    return pooled.long() % prime()


@handles("avg_pool2d")
def _averaged(call: Call) -> Any:
    if call.kwargs:
        return NotImplemented
    defaults: tuple[Any, ...] = (None, None, [0, 0], False, True, None)
    x, size, *window, with_padding, divisor = *call.args, *defaults[len(call.args) - 1 :]
    if window[-1]:
        return NotImplemented
    n, numbers = _arithmetic(call), call.numbers(x)
    if divisor is None and not with_padding:
        count = _windows(torch.ones_like(numbers), size, *window)
    else:
        count = torch.tensor(divisor or math.prod(size) ** (3 - len(size)))
    found = n.summed(_windows(n.terms(numbers), size, *window))
    counts = call.reading.numbers(count.to(n.of))
    return call.made(n.divide(found, counts.expand(found.shape)))


@handles("_adaptive_avg_pool2d")
def _adapted(call: Call) -> Any:
    x, size = call.args
    if list(size) == [1, 1]:
        return x.mean([-2, -1], keepdim=True)
    window = [g // s for g, s in zip(x.shape[-2:], size, strict=True)]
    if any(g % s for g, s in zip(x.shape[-2:], size, strict=True)):
        return NotImplemented
    return torch.nn.functional.avg_pool2d(x, window)


@handles("max_pool2d", "max_pool2d_with_indices")
def _greatest_of_windows(call: Call) -> Any:
    defaults: tuple[Any, ...] = (None, None, [0, 0], [1, 1], False)
    x, size, stride, padding, dilation, ceil = *call.args, *defaults[len(call.args) - 1 :]
    if call.kwargs or any(d != 1 for d in ([dilation] if isinstance(dilation, int) else dilation)):
        return NotImplemented
    held = digest("amax", _windows(mixed(x.held), size, stride, padding, ceil))
    found = call.reading.made(held, x.dtype)
    if call.name == "max_pool2d":
        return found
    text = f"places of {call.reading.name_of(found)}"
    return found, call.reading.unknown(text, bare(held))
