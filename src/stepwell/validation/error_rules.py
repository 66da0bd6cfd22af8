"""Propagate errors by operator family: the operands' errors, plus the operator's own rounding."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

import stepwell.dialects.aten  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.ir.compat.torch.torch_private import operator_and_overload, schema_of
from stepwell.ir.declared.families import Family, ops_of


class NoErrorRule(Exception):
    """An operator whose rounding errors are unknown."""


def _of_families(*families: Family) -> frozenset[str]:
    """Return the names of PyTorch's operators in some families, without overloads."""
    names = (name for family in families for name in ops_of(family, "aten"))
    return frozenset(name.split(".")[1] for name in names if "dropout" not in name)


NO_ROUNDING = _of_families("comparison", "choice") | frozenset(
    """abs neg relu clamp clamp_min clamp_max hardtanh maximum minimum fmax fmin sign sgn floor ceil
    round trunc frac copysign fill nan_to_num positive bitwise_and bitwise_or bitwise_not
    bitwise_xor threshold leaky_relu_ heaviside real imag""".split()
)
"""Elementwise operators whose results are exact."""
ROUNDED_ONCE = frozenset("add sub mul div sqrt reciprocal rsub square floor_divide".split())
"""Operators that round once, by IEEE 754 section 5.4."""
APPROXIMATED = 4
"""The error of exp, log, erf, pow, … of any library in half units in the last place: two units.

PyTorch's vectorized functions (Sleef, MKL's) guarantee one; a C library's are within one."""

MOVEMENTS = _of_families("movement", "lookup", "padding") | frozenset(
    """_reshape_alias resolve_conj resolve_neg view_as_real view_as_complex as_strided
    as_strided_copy unfold unfold_copy diag_embed im2col scatter index_put slice_scatter
    select_scatter reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d""".split()
)
"""Data movement, also by windows, and to places that an argument says."""
MOVES = MOVEMENTS | frozenset(
    """any all max min sort topk cummax cummin amax amin max_pool2d max_pool3d tril triu copy
    masked_scatter""".split()
)
"""Operators that move errors. The maximum of several elements has at most their largest error."""
LINEAR = frozenset(
    """sum mean mm bmm addmm baddbmm convolution cumsum avg_pool1d avg_pool2d avg_pool3d
    _adaptive_avg_pool2d _adaptive_avg_pool3d dot mv index_add scatter_add upsample_linear1d
    upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d col2im mkldnn_convolution
    _upsample_bilinear2d_aa matmul linear addmv addr outer""".split()
)
"""Sums of products: linear in each operand."""


def flat(values: Any) -> list[Any]:
    """Return the items of nested lists."""
    if isinstance(values, list | tuple):
        return [each for value in cast("Sequence[Any]", values) for each in flat(value)]
    return [values]


def is_real(value: Any) -> bool:
    """Whether a value is a tensor of floats for arithmetic (not MX codes)."""
    return isinstance(value, Tensor) and value.is_floating_point() and value.dtype.itemsize > 1


def unit(dtype: torch.dtype) -> float:
    """Return the unit roundoff of a float type: half a unit in the last place of 1."""
    return torch.finfo(dtype).eps / 2 if dtype.is_floating_point else 0.0


def least(dtype: torch.dtype, approximated: bool = False) -> float:
    """Return the error of a denormal result: half a step, or all of it if it is flushed to 0."""
    if not dtype.is_floating_point:
        return 0.0
    info = torch.finfo(dtype)
    return info.smallest_normal if approximated else info.smallest_normal * info.eps


def moved(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], known: Mapping[int, Tensor]
) -> Any:
    """Apply an operator that moves elements to the errors of its operands."""
    name = schema_of(func).name.removeprefix("aten::")

    def error(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [error(item) for item in cast("Sequence[Any]", value)]
        if isinstance(value, Tensor) and (id(value) in known or is_real(value)):
            found = known.get(id(value))
            return torch.zeros(value.shape, dtype=torch.float64) if found is None else found
        return value

    given = [error(value) for value in args]
    if operator_and_overload(func)[1] == "dtype":  # This reinterprets the bits as another type.
        if args[0].dtype.itemsize != args[1].itemsize:
            raise NoErrorRule("a view as numbers of another width")
        return given[0]
    if name in ("max", "min") and len(args) < 2:
        return given[0].amax()
    if name in ("max", "min", "sort", "topk", "cummax", "cummin"):
        at = 2 if name == "topk" else 1
        axis = kwargs.get("dim", args[at] if len(args) > at else -1)
        drops_axis = name in ("max", "min") and not (len(args) > 2 and args[2])
        worst = given[0].amax(axis, True)
        return worst.squeeze(axis) if drops_axis else worst
    if name in ("any", "all"):
        axes, *rest = args[1:] or (list(range(given[0].dim())),)
        return given[0].amax(axes, *rest)
    if name == "constant_pad_nd":
        given, kwargs = given[:2], {}
    elif name == "amin":
        func = torch.ops.aten.amax.default
    return func(*given, **kwargs)


def converted(value: Tensor, error: Tensor | None, result: Tensor) -> Tensor | None:
    """Return the rounding error of a cast to another float type, or to an integer (truncation)."""
    if value.dtype.is_complex or result.dtype.is_complex:
        raise NoErrorRule("complex numbers")
    if result.dtype == value.dtype:
        return error
    if result.dtype.is_floating_point:
        own = unit(result.dtype) * result.double().abs() + least(result.dtype)
        narrows = torch.finfo(result.dtype).bits < 64 and not _holds(value.dtype, result.dtype)
        if not narrows:
            return error
        return own if error is None else own + error
    if error is None:
        return None
    wide = value.double()
    ends = [(wide + sign * error).trunc() - wide.trunc() for sign in (1, -1)]
    return torch.maximum(ends[0].abs(), ends[1].abs()).nan_to_num(nan=0.0)


def _holds(narrow: torch.dtype, wide: torch.dtype) -> bool:
    """Whether a float type represents all numbers of another type exactly."""
    if not narrow.is_floating_point:
        info = torch.iinfo(narrow) if narrow != torch.bool else None
        return info is None or info.bits <= 1 - math.log2(torch.finfo(wide).eps)
    a, b = torch.finfo(narrow), torch.finfo(wide)
    return b.eps <= a.eps and b.max >= a.max


def pointwise(
    func: Any,
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    known: Mapping[int, Tensor],
    result: Tensor,
) -> Tensor | None:
    """Evaluate the operator at both ends of each operand's interval, and add its own rounding."""
    if result.dtype.is_complex or any(isinstance(a, Tensor) and a.is_complex() for a in args):
        raise NoErrorRule("complex numbers")
    half = unit(result.dtype)
    rounds = 0 if name in NO_ROUNDING else 1 if name in ROUNDED_ONCE else APPROXIMATED
    total: Tensor | None = None
    if rounds and half:
        exact = name in ("add", "sub", "rsub")
        total = rounds * half * result.double().abs()
        lost: Any = 0.0 if exact else least(result.dtype, rounds > 1)
        if name in ("mul", "div"):  # A product with zero is exactly zero.
            is_nothing: Any = args[0] == 0 if name == "div" else (args[0] == 0) | (args[1] == 0)
            lost = torch.where(is_nothing & (result == 0), 0.0, lost)
        total = total + lost
    wide = [
        a.double() if is_real(a) or (id(a) in known and a.dtype != torch.bool) else a for a in args
    ]
    shifts: list[tuple[int, Any]] = [
        (i, known[id(a)]) for i, a in enumerate(args) if id(a) in known
    ]
    for i, a in enumerate(args):
        if isinstance(a, float) and half and math.isfinite(a):
            off = abs(a - float(torch.tensor(a, dtype=result.dtype)))
            if off and math.isfinite(off):
                shifts.append((i, off))
    if not shifts:
        return total
    base = func(*wide, **kwargs).double()
    for i, error in shifts:
        if isinstance(args[i], Tensor) and args[i].dtype == torch.bool:
            ends = [torch.where(error > 0, ~args[i], args[i])]
        else:
            ends = [wide[i] + error, wide[i] - error]
        moves = [func(*wide[:i], end, *wide[i + 1 :], **kwargs).double() - base for end in ends]
        worst = torch.maximum(moves[0].abs(), moves[-1].abs())
        slack = 4 * unit(torch.float64) * base.abs() if rounds else 0.0
        worst = worst.nan_to_num(nan=0.0, posinf=math.inf) + slack
        total = worst if total is None else total + worst
    return total


def summed(
    func: Any,
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    known: Mapping[int, Tensor],
    result: Tensor,
) -> Tensor | None:
    """Return the error of a sum of products: Σ|a|·|b| times one rounding per summand, plus the
    operands' errors times the magnitudes.
    """
    if result.dtype.is_complex:
        raise NoErrorRule("complex numbers")
    if not result.dtype.is_floating_point:
        if known:
            raise NoErrorRule(f"aten.{name} of integers")
        return None
    wide = [a.double().abs() if is_real(a) else a for a in args]
    rest = {key: value for key, value in kwargs.items() if key != "dtype"}
    count = summands(name, args, result)
    sizes = func(*wide, **rest).double()
    total = (count + 1) * unit(result.dtype) * sizes + count * least(result.dtype)
    bias = {"addmm": 0, "baddbmm": 0, "convolution": 2}.get(name)
    for i, a in enumerate(args):
        if isinstance(a, Tensor) and id(a) in known:
            error = known[id(a)]
            if bias == i:
                is_channel = name == "convolution"
                error = error.reshape(-1, *[1] * (result.dim() - 2)) if is_channel else error
            else:
                given = [*wide[:i], error, *wide[i + 1 :]]
                if bias is not None and given[bias] is not None:
                    given[bias] = torch.zeros_like(given[bias])
                error = func(*given, **rest).double()
            total = total + error
    return total


def summands(name: str, args: Sequence[Any], result: Tensor) -> float:
    """Return the number of summands of one element of a sum."""
    first = args[0]
    if name in ("mm", "bmm", "mv", "dot", "matmul"):
        return first.shape[-1]
    if name in ("addmm", "baddbmm", "addmv"):
        return args[1].shape[-1] + 1
    if name in ("convolution", "mkldnn_convolution"):
        weight = args[1]
        return weight[0].numel() * (weight.shape[0] / weight.shape[1] if args[6] is True else 1) + 1
    if name.startswith("avg_pool"):
        return math.prod(args[1]) ** (1 if len(args[1]) > 1 else int(name[-2]))
    if name == "cumsum":
        return first.shape[args[1]] if first.dim() else 1
    if name.startswith(("upsample", "_upsample")):
        return 16 * first.numel()
    return max(first.numel() / max(result.numel(), 1), 1) + (name == "mean")
