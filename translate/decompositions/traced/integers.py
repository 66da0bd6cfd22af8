"""Replacements of integer operators whose runtime kernels compute wrong numbers.

`kernel_dtypes.json` lists the wrong kernels and their conditions: remainders of negative integers
are truncated, integers and doubles are summed in single precision, powers and truncating quotients
are computed in double precision, shifts ignore the number of bits. Each replacement is exact for
integers, wraps around where PyTorch does, and uses only correct kernels; `decompose.py` applies
them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from stepwell.translate.decompositions.traced import DECOMPOSITIONS

aten = torch.ops.aten
SMALL = 7
"""A shift by this number of bits is valid for every integer type."""


def _remainder(a: Any, b: Any) -> Any:
    """Compute `a % b` with the divisor's sign: by the floored quotient, or for doubles by fmod."""
    if _is_integral(a, b):
        return a - _floored(a, b) * b
    if not _is_double(a, b):
        return NotImplemented
    divisor = b if isinstance(b, torch.Tensor) else torch.full_like(a, b)
    rest = torch.fmod(a, divisor)
    is_other = torch.logical_and(
        torch.ne(rest, 0), torch.logical_xor(torch.lt(rest, 0), torch.lt(divisor, 0))
    )
    return torch.where(is_other, rest + divisor, rest)


def _floored(a: Any, b: Any) -> Any:
    """Compute the floored quotient by the only kernel that is right for large integers."""
    divisor = b if isinstance(b, torch.Tensor) else torch.full([], b, dtype=a.dtype)
    return torch.floor_divide(a, divisor)


def _fmod(a: Any, b: Any) -> Any:
    """Compute the remainder of truncated division, which has the dividend's sign."""
    if not _is_integral(a, b):
        return NotImplemented
    rest = a - _floored(a, b) * b
    if not torch.iinfo(a.dtype).min:  # Without a sign: a negative divisor is a large one.
        return rest
    is_other = torch.logical_and(torch.ne(rest, 0), torch.logical_xor(torch.lt(a, 0), _below(b, a)))
    return torch.where(is_other, rest - b, rest)


def _below(b: Any, a: torch.Tensor) -> Any:
    if isinstance(b, torch.Tensor):
        return torch.lt(b, 0)
    return torch.full_like(a, b < 0, dtype=torch.bool)


def _div_mode(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    """Compute a truncated or floored quotient from the floored one."""
    if rounding_mode is None or not _is_integral(a, b):
        return NotImplemented
    return _floored(a - _fmod(a, b) if rounding_mode == "trunc" else a, b)


def _left_shift(a: Any, count: Any) -> Any:
    """Compute `a << count`: 0 for a count below 0 or of at least the number of bits."""
    return _shifted(a, count, torch.bitwise_left_shift, torch.zeros_like)


def _right_shift(a: Any, count: Any) -> Any:
    """Compute `a >> count`: the sign bits for a count below 0 or of at least the number of bits."""
    return _shifted(a, count, torch.bitwise_right_shift, _sign_bits)


def _sign_bits(a: torch.Tensor) -> Any:
    """Return -1 for negative numbers and 0 for others."""
    info = torch.iinfo(a.dtype)
    return _by(torch.bitwise_right_shift, a, info.bits - 1) if info.min else torch.zeros_like(a)


def _shifted(a: Any, count: Any, shift: Callable[..., Any], beyond: Callable[[Any], Any]) -> Any:
    """Shift by dynamic counts: by 1, 2, 4, …, each if the count has that bit.

    A Python number as count has the tensor's dtype, in which PyTorch wraps it around.
    """
    if not _is_integral(a, count):
        return NotImplemented
    width = torch.iinfo(a.dtype).bits
    if not isinstance(count, torch.Tensor):
        count %= 1 << width
        return _by(shift, a, count) if count < width else beyond(a)
    if count.dtype != a.dtype:
        return NotImplemented
    shape = torch.broadcast_shapes(a.shape, count.shape)
    result = a.expand(shape)
    for bit in range((width - 1).bit_length()):
        is_set = torch.ne(torch.bitwise_and(count, 1 << bit), 0)
        result = torch.where(is_set, _by(shift, result, 1 << bit), result)
    is_known = torch.logical_and(torch.ge(count, 0), torch.lt(count, width))
    return torch.where(is_known, result, beyond(a))


def _by(shift: Callable[..., Any], a: Any, count: int) -> Any:
    """Shift by a constant, in several shifts that every bit width supports."""
    while count > SMALL:
        a, count = shift(a, SMALL), count - SMALL
    return shift(a, count)


def _itself(a: torch.Tensor) -> Any:
    """Return the operand: an integer is rounded already."""
    return a.clone() if not a.dtype.is_floating_point else NotImplemented


def _power(a: torch.Tensor, exponent: Any) -> Any:
    """Compute an integer power by squaring; the power 0 is 1, also of 0."""
    if not _is_integral(a, exponent) or not 0 <= exponent <= LARGEST_POWER:
        return NotImplemented
    if not exponent:
        return torch.full_like(a, 1)
    result, square = None, a
    while exponent:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        if exponent:
            square = square * square
    return result


LARGEST_POWER = 127
"""The largest that every integer dtype holds: PyTorch takes an exponent as one of them."""


def _sum(
    a: torch.Tensor, dim: Any, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    """Sum integers and float64 exactly in their dtype: the last element of a cumulative sum."""
    given = (a.dtype, dtype or a.dtype)
    if any(t.is_floating_point and t != torch.float64 for t in given):
        return NotImplemented
    held = dtype or (torch.float64 if a.dtype.is_floating_point else torch.int64)
    if a.dim() == 0:
        return a.to(held)
    axes = sorted({d % a.dim() for d in dim} if dim else range(a.dim()), reverse=True)
    for axis in axes:
        if a.shape[axis] == 0:
            return NotImplemented
        a = torch.cumsum(a, axis, dtype=held)
        a = torch.narrow(a, axis, a.shape[axis] - 1, 1)
    return a if keepdim else torch.squeeze(a, axes)


def _threshold(a: torch.Tensor, threshold: Any, value: Any) -> Any:
    """Compute `threshold` on integers directly; PyTorch's decomposition converts them to floats."""
    if a.dtype.is_floating_point:
        return torch.where(torch.le(a, threshold), value, a)
    return torch.where(torch.le(a, int(threshold)), torch.full_like(a, int(value)), a)


def _add_scalar(a: torch.Tensor, other: Any, alpha: Any = 1) -> Any:
    """Add a number to a tensor of the result's type."""
    result_type = torch.result_type(a, other)
    if result_type == a.dtype:
        return NotImplemented
    return torch.add(a.to(result_type), other, alpha=alpha)


def _less_or_equal(a: torch.Tensor, b: torch.Tensor) -> Any:
    """Compute `a <= b` of booleans as `not a or b`."""
    if a.dtype != torch.bool or b.dtype != torch.bool:
        return torch.ge(b, a)
    return torch.logical_or(torch.logical_not(a), b)


def _no_form(*_: Any, **__: Any) -> Any:
    """Refuse: PyTorch's decomposition calls a kernel of another overload that is wrong, too."""
    return NotImplemented


def _is_double(*values: Any) -> bool:
    """Whether the result and all tensor operands are in double precision."""
    return all(not isinstance(v, torch.Tensor) or v.dtype == torch.float64 for v in values)


def _is_integral(*values: Any) -> bool:
    return all(
        not (v.dtype.is_floating_point or v.dtype == torch.bool)
        if isinstance(v, torch.Tensor)
        else isinstance(v, int) and not isinstance(v, bool)
        for v in values
    )


BY_LONG = (
    aten.gather.default,
    aten.scatter.src,
    aten.scatter.value,
    aten.scatter_add.default,
)
"""Operators whose kernels take no indices but of int64."""


def _by_long(overload: Any) -> Callable[..., Any]:
    otherwise = DECOMPOSITIONS.get(overload, _no_form)

    def of_long(a: Any, dim: int, index: Any, *rest: Any, **options: Any) -> Any:
        if index.dtype == torch.int64:
            return otherwise(a, dim, index, *rest, **options)
        return overload(a, dim, index.to(torch.int64), *rest, **options)

    return of_long


JOINED = (aten.cat.default, aten.stack.default)
"""Operators whose kernels copy bytes, whatever dtypes their operands are of."""


def _of_one_dtype(overload: Any) -> Callable[..., Any]:
    def joined(tensors: Any, dim: int = 0) -> Any:
        """Convert all tensors to the result's dtype, then concatenate them."""
        dtype = functools.reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
        if all(tensor.dtype == dtype for tensor in tensors):
            return NotImplemented
        return overload([tensor.to(dtype) for tensor in tensors], dim)

    return joined


PRODUCTS = (aten.bmm.default, aten.mm.default)
"""Products of matrices that their kernels do not write where nothing is multiplied."""


def _over_something(overload: Any) -> Callable[..., Any]:
    def with_zeros(a: Any, b: Any) -> Any:
        """Append a column, or a row, of zeros to both tensors."""
        column = a.new_zeros([*a.shape[:-1], 1])
        row = b.new_zeros([*b.shape[:-2], 1, b.shape[-1]])
        return overload(torch.cat([a, column], -1), torch.cat([b, row], -2))

    return with_zeros


def _zeros(size: Any, *_: Any, dtype: torch.dtype | None = None, **__: Any) -> Any:
    """Return zeros for an uninitialized tensor; the memory layout is not part of its value."""
    return torch.full(size, 0, dtype=dtype or torch.float32)


EXACT: dict[Any, Callable[..., Any]] = {
    **{overload: _by_long(overload) for overload in BY_LONG},
    **{overload: _of_one_dtype(overload) for overload in JOINED},
    **{overload: _over_something(overload) for overload in PRODUCTS},
    aten.remainder.Tensor: _remainder,
    aten.remainder.Scalar: _remainder,
    aten.fmod.Tensor: _fmod,
    aten.fmod.Scalar: _fmod,
    aten.div.Tensor_mode: _div_mode,
    aten.div.Scalar_mode: _div_mode,
    aten.bitwise_left_shift.Tensor: _left_shift,
    aten.bitwise_left_shift.Tensor_Scalar: _left_shift,
    aten.bitwise_right_shift.Tensor: _right_shift,
    aten.bitwise_right_shift.Tensor_Scalar: _right_shift,
    aten.__lshift__.Tensor: torch.bitwise_left_shift,
    aten.__lshift__.Scalar: torch.bitwise_left_shift,
    aten.__rshift__.Tensor: torch.bitwise_right_shift,
    aten.__rshift__.Scalar: torch.bitwise_right_shift,
    aten.ceil.default: _itself,
    aten.floor.default: _itself,
    aten.trunc.default: _itself,
    aten.pow.Tensor_Scalar: _power,
    aten.pow.Scalar: _no_form,
    aten.pow.Tensor_Tensor: _no_form,
    aten.sum.dim_IntList: _sum,
    aten.threshold.default: _threshold,
    aten.add.Scalar: _add_scalar,
    aten.le.Tensor: _less_or_equal,
    aten.empty_permuted.default: _zeros,
    aten.empty_strided.default: _zeros,
}
"""Operator → the form to take in its place where its kernel goes wrong."""
