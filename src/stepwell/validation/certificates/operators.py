"""Transfer functions of PyTorch operators on expression numbers, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from stepwell.ir.compat.torch.torch_private import operator_and_overload
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
    Reading,
    is_shadow,
    is_whole,
    kept,
    moved,
)

Operator = Callable[[Reading, Any, tuple[Any, ...], dict[str, Any]], Any]
_MOVES = """view _unsafe_view reshape _reshape_alias permute transpose t expand slice select
    unsqueeze squeeze alias detach clone contiguous cat stack index index_select gather flip roll
    repeat unfold split split_with_sizes unbind diagonal lift_fresh slice_scatter select_scatter
    scatter index_put pixel_shuffle pixel_unshuffle channel_shuffle reflection_pad1d
    reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d im2col
    upsample_nearest1d upsample_nearest2d upsample_nearest3d expand_copy view_copy permute_copy
    slice_copy select_copy unsqueeze_copy squeeze_copy constant_pad_nd embedding
    as_strided as_strided_copy diag_embed""".split()
for _name in _MOVES:
    HANDLERS[_name] = moved
STEPS.update({n: s for n, s in kernel_steps.STEPS.items() if n not in ("add", "sub", "rsub")})
EXACT_STEPS.update(
    """_softmax _log_softmax native_layer_norm native_group_norm native_batch_norm
    _native_batch_norm_legit _native_batch_norm_legit_no_training var std var_mean addcmul addcdiv
    _scaled_dot_product_flash_attention_for_cpu linalg_vector_norm""".split()
)


def handles(*names: str) -> Callable[[Operator], Operator]:
    """Register the transfer function of operators."""

    def register(function: Operator) -> Operator:
        for name in names:
            assert name not in HANDLERS, name
            HANDLERS[name] = function
        return function

    return register


class Numbers:
    """Arithmetic of expression numbers in a reading, in an element type."""

    def __init__(self, reading: Reading, of: torch.dtype) -> None:
        self.reading, self.of = reading, of
        is_ring = not of.is_floating_point and of.itemsize >= 4
        self.rounds = not is_ring and (reading.is_exact or not of.is_floating_point)

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
        one = self.reading.numbers(torch.ones((), dtype=self.of))
        made = commuting(f"mul:{self.of}", x, y)
        return torch.where(y == one, x, torch.where(x == one, y, made))

    def divide(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.rounds:
            return times(x, inverse(y))
        one = self.reading.numbers(torch.ones((), dtype=self.of))
        return torch.where(y == one, x, digest(f"div:{self.of}", x, y))

    def negate(self, x: Tensor) -> Tensor:
        return (prime() - x) % prime()

    def total(self, x: Tensor, axes: list[int], keep: bool) -> Tensor:
        count = math.prod(x.shape[axis] for axis in axes)
        if not axes or count == 1:
            alone = x.sum(axes, keep) if axes else x
            is_float = axes and self.rounds and self.of.is_floating_point
            return digest(f"alone:{self.of}", alone) if is_float else alone  # 0 + −0 is 0.
        if not self.rounds:
            return x.sum(axes, keep) % prime()
        return digest(f"dot:{self.of}", self.paired(x).sum(axes, keep) % prime())

    def paired(self, x: Tensor) -> Tensor:
        """Return the terms of a sum in the form of a product with ones."""
        one = self.reading.numbers(torch.ones((), dtype=self.of))
        return times(mixed(x), mixed(one))

    def product(self, kernel: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
        """Return a sum of products."""
        if not self.rounds:
            return bilinear(kernel, x, y)
        return digest(f"dot:{self.of}", bilinear(kernel, mixed(x), mixed(y)))


def _in(reading: Reading, func: Any, args: Any, kwargs: Any) -> tuple[Any, Numbers]:
    """Return a result without elements, and the arithmetic of its type."""
    bare = reading.type_of(func, args, kwargs)
    return bare, Numbers(reading, bare.dtype)


def _scaled(reading: Reading, n: Numbers, value: Any, factor: Any) -> Tensor:
    numbers = reading.numbers(value, n.of)
    return numbers if factor == 1 else n.multiply(numbers, reading.numbers(factor, n.of))


# -- arithmetic ----------------------------------------------------------------------------------


@handles("add", "sub", "rsub")
def _sums(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    _, n = _in(reading, func, args, kwargs)
    name = operator_and_overload(func)[0]
    x, y = (args[1], args[0]) if name == "rsub" else args[:2]
    alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
    one, other = (_scaled(reading, n, x, 1), _scaled(reading, n, y, alpha))
    return reading.made(n.add(one, other if name == "add" else n.negate(other)), n.of)


@handles("mul", "div", "divide", "true_divide")
def _products(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    if kwargs.get("rounding_mode") is not None or len(args) > 2:
        return NotImplemented
    _, n = _in(reading, func, args, kwargs)
    x, y = (reading.numbers(each, n.of) for each in args)
    is_product = operator_and_overload(func)[0] == "mul"
    return reading.made((n.multiply if is_product else n.divide)(x, y), n.of)


@handles("neg")
def _negative(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    x, of = args[0].held, args[0].dtype
    is_narrow = not of.is_floating_point and of.itemsize < 4  # −(−128) is −128 there.
    return reading.made(digest(f"neg:{of}", x) if is_narrow else prime() - x, of)


@handles("square", "reciprocal", "sqrt", "rsqrt", "expm1", "log1p")
def _of_one(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    bare, n = _in(reading, func, args, kwargs)
    name = operator_and_overload(func)[0]
    x = reading.numbers(args[0], n.of)
    one = reading.numbers(1.0, n.of)
    if name == "square":
        found = n.multiply(x, x)
    elif name == "reciprocal":
        found = n.divide(one, x)
    elif reading.is_exact:
        found = digest(f"{name}:{n.of}", x)
    elif name == "rsqrt":
        found = inverse(digest("sqrt", x))
    elif name == "expm1":
        found = digest("exp", x) - 1
    else:
        found = digest("log", (x + 1) % prime()) if name == "log1p" else digest("sqrt", x)
    return reading.made(found, bare.dtype)


@handles("exp", "log", "erf", "sin", "cos", "floor", "ceil", "round", "trunc", "abs", "sign",
         "tanh", "atan", "tan")  # fmt: skip
def _named(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    if len(args) > 1 or kwargs:
        return NotImplemented
    bare, _ = _in(reading, func, args, kwargs)
    name = operator_and_overload(func)[0]
    rounds = f":{bare.dtype}" if reading.is_exact else ""
    x = reading.numbers(args[0], bare.dtype)
    return reading.made(digest(f"{name}{rounds}", x), bare.dtype)


@handles("pow")
def _power(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    base, exponent = args[:2]
    if not is_shadow(base) or isinstance(exponent, Tensor) or not base.dtype.is_floating_point:
        return NotImplemented
    if exponent in (0.5, -0.5, -1, 1, 2):
        steps: dict[float, Callable[[Any], Any]] = {
            0.5: torch.sqrt, -0.5: torch.rsqrt, -1: torch.reciprocal, 2: torch.square,
            1: lambda x: x,
        }  # fmt: skip
        return steps[exponent](base)
    if exponent == 3:
        return base * base * base
    if reading.is_exact or exponent != int(exponent) or exponent < 0:
        return NotImplemented
    return reading.made(power(base.held, int(exponent)), base.dtype)


# -- extrema, comparisons, choices ---------------------------------------------------------------


@handles("clamp", "clamp_min", "clamp_max", "hardtanh", "relu", "relu6")
def _clamped(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    bare, _ = _in(reading, func, args, kwargs)
    name = operator_and_overload(func)[0]
    given = [*args[1:], None, None]
    low, high = kwargs.get("min", given[0]), kwargs.get("max", given[1])
    if name == "relu":
        low, high = 0, None
    elif name == "relu6":
        low, high = 0, 6
    elif name == "clamp_max":
        low, high = None, kwargs.get("max", given[0])
    elif name == "hardtanh":
        low, high = (kwargs.get(n, g) for n, g in (("min_val", given[0]), ("max_val", given[1])))
        low, high = -1.0 if low is None else low, 1.0 if high is None else high
    numbers = reading.numbers(args[0], bare.dtype)
    for limit, kind in ((low, "maximum"), (high, "minimum")):
        if limit is not None and limit not in _ENDS.get(kind, ()):
            numbers = commuting(
                kind, numbers, reading.numbers(_typed(limit, bare.dtype), bare.dtype)
            )
    return reading.made(numbers.expand(bare.shape), bare.dtype)


_ENDS = {"maximum": (-math.inf,), "minimum": (math.inf,)}
"""Limits without an effect."""


def _typed(value: Any, of: torch.dtype) -> Any:
    return value if isinstance(value, Tensor) else float(value) if of.is_floating_point else value


@handles("maximum", "minimum", "logical_and", "logical_or", "logical_xor", "bitwise_and",
         "bitwise_or", "bitwise_xor", "eq")  # fmt: skip
def _commutes(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    bare, _ = _in(reading, func, args, kwargs)
    name = operator_and_overload(func)[0]
    of = _compared_in(args) if name == "eq" else bare.dtype
    x, y = (reading.numbers(each, of) for each in args)
    found = commuting(name, x, y)
    if name == "bitwise_and" and args[1] == _WORD and not reading.is_exact:
        found = x  # It does not overflow.
    elif name == "eq":
        zero = reading.numbers(torch.zeros((), dtype=of))
        found = torch.where(y == zero, 1 - digest("nonzero", x), found)
    elif name in _NEUTRAL:
        end, other_end = (reading.numbers(sign * math.inf, of) for sign in _NEUTRAL[name])
        found = torch.where(y == end, x, torch.where(x == end, y, found))
        if not reading.is_exact:
            found = torch.where((x == other_end) | (y == other_end), other_end, found)
    return reading.made(found.expand(bare.shape), bare.dtype)


_WORD = 0xFFFFFFFF
_NEUTRAL = {"maximum": (-1, 1), "minimum": (1, -1)}
"""The infinity without an effect, and the one that always wins."""


@handles("lt", "le", "gt", "ge", "ne")
def _compared(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    name = operator_and_overload(func)[0]
    x, y = args
    if name == "ne":
        return reading.made(1 - reading.numbers(torch.eq(x, y)), torch.bool)
    of = _compared_in(args)
    one, other = reading.numbers(x, of), reading.numbers(y, of)
    if name in ("gt", "ge"):
        one, other = other, one
    return reading.made(digest("lt" if name in ("lt", "gt") else "le", one, other), torch.bool)


def _compared_in(args: Sequence[Any]) -> torch.dtype:
    given = [
        torch.empty(a.shape, dtype=a.dtype, device="meta") if is_shadow(a) else a for a in args
    ]
    return torch.result_type(*given)


@handles("isfinite")
def _finite(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    """Return True, because real numbers are finite."""
    return NotImplemented if reading.is_exact else torch.ones(args[0].shape, dtype=torch.bool)


@handles("logical_not")
def _not(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    numbers = reading.numbers(args[0], torch.bool)
    return reading.made(1 - numbers, torch.bool)


@handles("where", "masked_fill")
def _chosen(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    if len(args) < 3:
        return NotImplemented
    bare, _ = _in(reading, func, args, kwargs)
    fills = operator_and_overload(func)[0] == "masked_fill"
    test, one, other = (args[1], args[2], args[0]) if fills else args
    x, y = (reading.numbers(_typed(each, bare.dtype), bare.dtype) for each in (one, other))
    if is_shadow(test):
        found = digest("where", reading.numbers(test), x, y)
    else:
        found = torch.where(test, x, y)
    return reading.made(found.expand(bare.shape), bare.dtype)


@handles("tril", "triu")
def _triangle(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    ones = torch.ones(args[0].shape, dtype=torch.bool)
    return kept(args[0], func(ones, *args[1:], **kwargs), reading)


# -- casts ---------------------------------------------------------------------------------------


@handles("_to_copy", "to")
def _converted(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    bare = reading.type_of(func, args, {k: v for k, v in kwargs.items() if k != "device"})
    x, is_float = args[0], bare.dtype.is_floating_point
    if x.is_whole and not is_float and bare.dtype.itemsize >= 4 and not reading.is_exact:
        return reading.made(x.held, bare.dtype)  # It does not overflow.
    made = reading.made(reading.numbers(x, bare.dtype), bare.dtype)
    made.is_whole = is_float and bare.dtype.itemsize >= 4 and is_whole(x)
    return made


# -- folds ---------------------------------------------------------------------------------------


def _axes(args: Any, kwargs: Any) -> list[int]:
    given = kwargs.get("dim", args[1] if len(args) > 1 else None)
    rank = args[0].dim()
    if given is None or given == []:
        return list(range(rank))
    return [axis % rank if rank else 0 for axis in ([given] if isinstance(given, int) else given)]


def _keeps(args: Any, kwargs: Any, at: int = 2) -> bool:
    return bool(kwargs.get("keepdim", args[at] if len(args) > at else False))


@handles("sum", "mean")
def _folded(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    _, n = _in(reading, func, args, kwargs)
    axes = _axes(args, kwargs)
    numbers = reading.numbers(args[0], n.of)
    if not numbers.dim():
        return reading.made(n.total(numbers.reshape(1), [0], False), n.of)
    found = n.total(numbers, axes, _keeps(args, kwargs))
    if operator_and_overload(func)[0] == "mean":
        count = math.prod(numbers.shape[axis] for axis in axes)
        found = n.divide(found, reading.numbers(float(count), n.of))
    return reading.made(found, n.of)


@handles("amax", "amin", "any", "all", "max", "min")
def _extreme(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    name = operator_and_overload(func)[0]
    if name in ("max", "min") and (len(args) > 1 or kwargs):
        return NotImplemented
    bare = reading.type_of(func, args, kwargs)
    axes = _axes(args, kwargs)
    numbers = reading.numbers(args[0])
    if not numbers.dim() or math.prod(numbers.shape[axis] for axis in axes) == 1:
        found = numbers.reshape(bare.shape)
    else:
        found = digest(_greatest(name), mixed(numbers).sum(axes, _keeps(args, kwargs)) % prime())
    return reading.made(found.reshape(bare.shape), bare.dtype)


def _greatest(name: str) -> str:
    return {"max": "amax", "min": "amin"}.get(name, name)


@handles("mm", "bmm", "mv", "dot")
def _product(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    _, n = _in(reading, func, args, kwargs)
    x, y = (reading.numbers(each, n.of) for each in args)
    return reading.made(n.product(func, x, y), n.of)


@handles("addmm", "baddbmm", "addmv")
def _product_and_bias(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    bare, n = _in(reading, func, args, kwargs)
    bias, *given = args[:3]
    kernel = {"addmm": torch.mm, "baddbmm": torch.bmm, "addmv": torch.mv}[
        operator_and_overload(func)[0]
    ]
    x, y = (reading.numbers(each, n.of) for each in given)
    made = reading.made(n.product(kernel, x, y), n.of)
    found = _scaled(reading, n, made, kwargs.get("alpha", 1))
    shift = _scaled(reading, n, bias, kwargs.get("beta", 1))
    return reading.made(n.add(found, shift).expand(bare.shape), n.of)


@handles("convolution", "_convolution")
def _convolved(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    x, w, bias, stride, padding, dilation, transposed, more, groups = args[:9]
    bare, n = _in(reading, torch.ops.aten.convolution.default, args[:9], {})
    numbers = (reading.numbers(each, n.of) for each in (x, w))

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return torch.convolution(a, b, None, stride, padding, dilation, transposed, more, groups)

    found = n.product(kernel, *numbers)
    if bias is not None:
        lying = [-1, *[1] * (len(bare.shape) - 2)]
        found = n.add(found, reading.numbers(bias, n.of).reshape(lying).expand(found.shape))
    return reading.made(found, n.of)


# -- windows -------------------------------------------------------------------------------------


def _windows(tensor: Tensor, *args: Any) -> Tensor:
    """Return sums over windows; padding adds nothing."""
    size, stride, padding, ceil = args
    pooled = torch.nn.functional.avg_pool2d(
        tensor.double(), size, stride or size, padding, ceil, True, divisor_override=1
    )
    return pooled.long() % prime()


@handles("avg_pool2d")
def _averaged(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    if kwargs:
        return NotImplemented
    _, n = _in(reading, func, args, kwargs)
    defaults: tuple[Any, ...] = (None, None, [0, 0], False, True, None)
    x, size, stride, padding, ceil, with_padding, divisor = *args, *defaults[len(args) - 1 :]
    if ceil:
        return NotImplemented
    numbers = reading.numbers(x, n.of)
    ones = torch.ones_like(numbers)
    if divisor is None and not with_padding:
        count = _windows(ones, size, stride, padding, ceil)
    else:
        count = torch.tensor(divisor or math.prod(size) ** (3 - len(size)))
    terms = n.paired(numbers) if n.rounds else numbers
    windows = _windows(terms, size, stride, padding, ceil)
    if n.rounds:
        windows = digest(f"dot:{n.of}", windows)
    counts = reading.numbers(count.to(n.of))
    return reading.made(n.divide(windows, counts.expand(windows.shape)), n.of)


@handles("_adaptive_avg_pool2d")
def _adapted(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    x, size = args
    if list(size) == [1, 1]:
        return x.mean([-2, -1], keepdim=True)
    sizes = x.shape[-2:]
    if any(g % s for g, s in zip(sizes, size, strict=True)):
        return NotImplemented
    window = [g // s for g, s in zip(sizes, size, strict=True)]
    return torch.nn.functional.avg_pool2d(x, window)


@handles("max_pool2d", "max_pool2d_with_indices")
def _greatest_of_windows(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    defaults: tuple[Any, ...] = (None, None, [0, 0], [1, 1], False)
    x, size, stride, padding, dilation, ceil = *args, *defaults[len(args) - 1 :]
    if kwargs or any(d != 1 for d in ([dilation] if isinstance(dilation, int) else dilation)):
        return NotImplemented
    held = digest("amax", _windows(mixed(x.held), size, stride, padding, ceil))
    found = reading.made(held, x.dtype)
    if operator_and_overload(func)[0] == "max_pool2d":
        return found
    text = f"places of {reading.name_of(found)}"
    return found, reading.unknown(text, torch.empty(held.shape, dtype=torch.long, device="meta"))
