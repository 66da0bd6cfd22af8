"""Decompositions of Fourier transforms into products with constant matrices.

A transform of n real numbers is two products: one with the cosines, which gives the real parts, and
one with the sines. A part that is not used is not computed. Angles are reduced to one turn before
their cosines and sines are computed in double precision. A transform of more points than
`MOST_POINTS` is computed by two factors, n = n₁ · n₂ (Cooley and Tukey): n₂ transforms of n₁ points,
one product of each number with a constant, and n₁ transforms of n₂ points.

A target's own transform is used where it is cheaper: RFFT2D and FFT2D of TOSA (`+fft`), and on a CPU
the runtime's kernel, which reads and writes complex numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.axes import maps
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import Dim
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.complex import COMPLEX, pair, paired, planar_parts, whole
from stepwell.translate.decompositions.values import Value, cat
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.range_analysis.analysis import is_finite
from stepwell.translate.rewrites.building import axis, is_known

NORMALIZATIONS = (0.0, -0.5, -1.0)
"""PyTorch's normalization code → the exponent of the transform's size in the factor of the result.
"""
BY_SIZE = 2
"""The code for division by the size."""

MOST_POINTS = 512
"""The most points of a transform by one matrix, if their number has two factors."""
MIRRORING = 3.0
"""The time to gather a point of a one-sided transform (`has_kernel`)."""
LARGEST = 1 << 24
"""The most elements of a matrix: 64 MB."""

REAL, WHOLE, BACK = "real", "whole", "back"
"""Real to one-sided complex, complex to complex, and one-sided complex to real."""

TRANSFORMS = {
    "aten._fft_r2c.default": REAL,
    "aten._fft_c2c.default": WHOLE,
    "aten._fft_c2r.default": BACK,
}
C2C = op_class("aten._fft_c2c.default")
MOVEMENTS = frozenset(
    f"aten.{name}"
    for name in """permute.default transpose.int slice.Tensor select.int view_as_real.default
    real.default imag.default""".split()
)
"""Operators between a transform and the phases that are read from it (`_reads_phases`)."""

NUMBERS, PLANAR, PAIRS = "numbers", "planar", "pairs"
"""How a row of a matrix reads n complex numbers: the real parts alone, all real and then all
imaginary parts, or pairs of both.
"""


class Row(NamedTuple):
    """Points on the last axis: `[…, n]` real numbers, `[…, 2 n]` if complex."""

    value: Value
    form: str


# -- matrices ----------------------------------------------------------------------------------


def _turns(outputs: int, inputs: int, points: int, inverse: bool) -> tuple[torch.Tensor, ...]:
    """Return the cosines and the signed sines: `f64[outputs, inputs]`."""
    turns = torch.outer(torch.arange(outputs), torch.arange(inputs)) % points
    angle = turns.double() * (2 * math.pi / points)
    sign = 1 if inverse else -1
    # A cosine of a quarter turn and a sine of a half turn are exactly 0.
    cosines = angle.cos().masked_fill(4 * turns % (2 * points) == points, 0)
    return cosines, (angle.sin() * sign).masked_fill(2 * turns % points == 0, 0)


def matrix(
    form: str, outputs: int, points: int, *, inverse: bool, part: int, back: bool = False
) -> torch.Tensor:
    """Return the matrix `f64[outputs, numbers in a row]` that computes one part of a transform.

    Args:
        form: how a row contains the input's points.
        outputs: the number of points of the result, from the first on.
        points: the size of the transform.
        inverse: whether the angles are positive.
        part: 0 for real, 1 for imaginary parts of the result.
        back: whether the input is one-sided and the result real: each point but the first and the
            middle one counts twice, for its conjugate.
    """
    inputs = points // 2 + 1 if back else points
    cosines, sines = _turns(outputs, inputs, points, inverse)
    of_real, of_imaginary = (sines, cosines) if part else (cosines, -sines)
    if back:
        twice = torch.full((inputs,), 2.0, dtype=torch.float64)
        twice[[0, -1] if points % 2 == 0 else [0]] = 1
        of_real, of_imaginary = of_real * twice, of_imaginary * twice
    if form == NUMBERS:
        return of_real
    parts = (of_real, of_imaginary)
    return torch.stack(parts, 2).flatten(1) if form == PAIRS else torch.cat(parts, 1)


@recipe("fourier_matrix")
def fourier_matrix(*, scale: float, **of: Any) -> torch.Tensor:
    """Return `matrix`, scaled, in single precision."""
    return (matrix(**of) * scale).float()


@recipe("fourier_twiddles")
def fourier_twiddles(
    *, outer: int, inner: int, inverse: bool, part: int, scale: float
) -> torch.Tensor:
    """Return the factors `f32[inner, outer]` between the two transforms of two factors."""
    return (_turns(inner, outer, outer * inner, inverse)[part] * scale).float()


# -- what a target computes itself -------------------------------------------------------------


def has_kernel(
    form: str, n: Dim, rows: int, op: Operation, b: Rewriter, spare: float = 0, worth: float = 1.2
) -> bool:
    """Whether the runtime's kernel computes transforms faster than products.

    It runs outside delegates on complex numbers, which products do not need. It is also used for
    phases: symmetric rows have imaginary parts of exactly 0, whose sign a phase is, where products
    leave a rounding error. The times are nanoseconds of one AVX-512 core.

    Args:
        form: the transform; the runtime has no complex-to-complex one.
        n: the number of points; a symbolic one leaves the kernel alone.
        rows: the number of transforms.
        op: the op that transforms.
        b: the rewriter of the program.
        spare: the time of what the kernel needs, and products do not, for each point.
        worth: how many times as fast the kernel must be.
    """
    if b.program.context.target != "xnnpack" or form not in (REAL, BACK):
        return False
    if isinstance(n, Size) or (form == REAL and _reads_phases(op.results[0])):
        return form == REAL
    by_products = n * (n // 2 + 1) * (0.4 + rows / 8)
    by_kernel = 3000 + rows * n * (_kernel_time(n) + spare)
    return by_products > worth * by_kernel


def _reads_phases(value: SSAValue, depth: int = 4) -> bool:
    """Whether the angles of complex numbers, or of moved ones, are used."""
    users = [use.operation for use in value.uses] if depth else []
    return any(
        user.name in ("aten.angle.default", "aten.atan2.default")
        or (user.name in MOVEMENTS and _reads_phases(user.results[0], depth - 1))
        for user in users
    )


@cache
def _kernel_time(n: int) -> float:
    """Return the time of the kernel for each point; it transforms large primes by longer ones."""
    rest = n
    for prime in (2, 3, 5, 7, 11, 13):
        while rest % prime == 0:
            rest //= prime
    return math.log2(n) / 4 if rest == 1 else 18


def count(sizes: Sequence[Dim]) -> int:
    """Return the number of elements, with 64 for each symbolic size."""
    return math.prod(size if isinstance(size, int) else 64 for size in sizes)


_SPREADS = Deviation(
    "a NaN or an infinity among the points of a transform makes a part NaN that is 0 or infinite in "
    "PyTorch",
    True,
)


def spreads(op: Operation, program: Program) -> Deviation | None:
    """Return the deviation of products with zeros of the matrix; None if all points are finite."""
    return _SPREADS.unless(is_finite(op.operands[0], program))


# -- decompositions ----------------------------------------------------------------------------


@lowers(
    TRANSFORMS,
    to="aten",
    phases=("xnnpack/transforms", "tosa/transforms", "tosa/decompose"),
    bound=roundings("sums of products in another order"),
    deviation=spreads,
    sample="""
    %c = aten._fft_r2c.default(%x, [1], 0, true) : (tensor<3x8xf32>) -> tensor<3x5xcomplex<f32>>
    %y = aten.view_as_real.default(%c) : (tensor<3x5xcomplex<f32>>) -> tensor<3x5x2xf32>
    """,
)
def transforms_to_products(
    x: Value, dim: Sequence[int], normalization: Any, *, form: str, op: Any, out: Out, b: Rewriter
) -> Value | None:
    """Decompose a Fourier transform into products, axis by axis."""
    if not {x.dtype, out.dtype} <= {f32, COMPLEX}:
        refuse("only numbers of single precision are transformed")
    axes = [axis(number, x.rank) for number in dim]
    if normalization not in range(3):
        refuse("the normalization is not one of PyTorch's")
    if not axes:
        refuse("no axis is transformed")
    if not is_known((*x.shape, *out.shape)) or 0 in x.shape:
        refuse("the shape is not known, not even as an expression, or the tensor is empty")
    last = axes[-1]
    one_sided = form != REAL or op.arg("onesided")
    points: list[Dim] = [x.shape[at] for at in axes]
    if form == BACK:
        points[-1] = out.shape[last]
    target = b.program.context.target
    if all(isinstance(n, int) and is_operator(n, target) for n in points):
        return None
    if len(axes) > 1:
        return _peeled(x, axes, normalization, form, op, out)
    n = points[0]
    rows = count([size for at, size in enumerate(x.shape) if at != last])
    if one_sided and has_kernel(form, n, rows, op, b) and (form == REAL or (x.is_static)):
        return None
    if not isinstance(n, int):
        refuse("the number of points is symbolic, and a matrix has constant sizes")
    inverse = form == BACK or (form == WHOLE and not op.arg("forward"))
    if form == WHOLE or not one_sided:
        parts = 1 if x.dtype == f32 else 2
        is_large = _factor(n) == 1 and n * n * parts > LARGEST
        if has_kernel(REAL, n, rows * parts, op, b, MIRRORING) or (
            is_large and has_kernel(REAL, n, 10**6, op, b)
        ):
            return _by_kernel(x, last, n, normalization, inverse)
    scale = float(n) ** NORMALIZATIONS[normalization]
    row, order = rows_of(x, last)
    if form == BACK:
        return _back(row, n, scale).permute(maps.inverse(order))
    outputs = n // 2 + 1 if form == REAL and one_sided else n
    parts = transformed(row, n, outputs, inverse=inverse, scale=scale)
    return paired([part.permute(maps.inverse(order)) for part in parts])


FUNCTIONS = {
    f"aten.fft_{inverse}{prefix}fft{axes}.default": (form, bool(inverse), axes)
    for prefix, inverse, form in (
        ("", "", WHOLE),
        ("", "i", WHOLE),
        ("r", "", REAL),
        ("r", "i", BACK),
    )
    for axes in ("", "2", "n")
}
CODES = {None: (0, 2), "backward": (0, 2), "ortho": (1, 1), "forward": (2, 0)}
"""Argument `norm` → the normalization codes of a forward and of an inverse transform."""


@lowers(
    FUNCTIONS,
    to="aten",
    phases=("xnnpack/transforms", "tosa/transforms"),
    sample="""
    %c = aten.fft_rfft.default(%x, 6) : (tensor<3x8xf32>) -> tensor<3x4xcomplex<f32>>
    %y = aten.view_as_real.default(%c) : (tensor<3x4xcomplex<f32>>) -> tensor<3x4x2xf32>
    """,
)
def fourier_functions(x: Value, *, form: Any, op: Any, out: Out) -> Value:
    """Decompose the functions of `torch.fft` into paddings and transforms of whole axes."""
    kind, inverse, many = form
    if x.dtype not in (f32, COMPLEX) or out.dtype not in (f32, COMPLEX):
        refuse("only numbers of single precision are transformed")
    sizes: Any = op.arg("s" if many else "n")
    dim: Any = op.arg("dim")
    if not many:
        sizes, dim = [sizes], [dim]
    if dim is None:
        dim = range(-len(sizes), 0) if sizes else range(x.rank)
    axes = [axis(number, x.rank) for number in dim]
    for at, size in zip(axes, sizes or list[Any]([None] * len(axes)), strict=True):
        if isinstance(size, SSAValue):
            refuse("the number of points is known only at run time")
        if size is None or size == -1:
            continue
        x = _resized(x, at, size // 2 + 1 if kind == BACK and at == axes[-1] else size)
    code = CODES[op.arg("norm")][inverse]
    if kind == BACK:
        x = x if x.dtype == COMPLEX else Value(whole(pair(x.ssa, x.b), x.b), x.b)
        size = out.shape[axes[-1]]
        if not isinstance(size, int):
            refuse("the number of points is symbolic")
        return x.call(aten._FftC2rDefault, axes, code, size, shape=out.shape, dtype=f32)
    if x.dtype == COMPLEX:
        return x.call(C2C, axes, code, not inverse)
    real = (axes, code, kind == REAL)
    y = x.call(aten._FftR2cDefault, *real, shape=out.shape, dtype=COMPLEX)
    return y.call("conj_physical.default") if inverse else y


def _resized(x: Value, at: int, size: int) -> Value:
    """Return the first elements of an axis, with zeros behind them if it has fewer."""
    parts = Value(pair(x.ssa, x.b), x.b) if x.dtype == COMPLEX else x
    held = parts.shape[at]
    if held == size:
        return x
    if not isinstance(held, int):
        refuse("an axis of symbolic size is cut or padded to a number of points")
    if held > size:
        parts = parts.slice(at, 0, size)
    else:
        around = [0, 0] * (parts.rank - 1 - at) + [0, size - held]
        shape = (*parts.shape[:at], size, *parts.shape[at + 1 :])
        parts = parts.call(aten.ConstantPadNdDefault, around, 0.0, shape=shape)
    return parts if x.dtype == f32 else Value(whole(parts.ssa, x.b), x.b)


def is_operator(n: int, target: str) -> bool:
    """Whether a TOSA target has an operator for a transform of n points: a power of two."""
    if n & (n - 1) or not target.startswith("tosa"):
        return False
    from stepwell.dialects.tosa.targets import fourier_points

    return n <= fourier_points(target)


def _peeled(x: Value, axes: list[int], code: int, form: str, op: Any, out: Out) -> Value:
    """Transform the last axis and the others one after the other; the real side is the last's."""
    *rest, last = axes
    if form == BACK:
        y = x.call(C2C, rest, code, False)
        size = out.shape[last]
        return y.call(aten._FftC2rDefault, [last], code, size, shape=out.shape, dtype=f32)
    if form == REAL:
        one_sided = op.arg("onesided")
        y = x.call(aten._FftR2cDefault, [last], code, one_sided, shape=out.shape, dtype=COMPLEX)
        return y.call(C2C, rest, code, True)
    forward = op.arg("forward")
    return x.call(C2C, [last], code, forward).call(C2C, rest, code, forward)


def _by_kernel(x: Value, at: int, n: int, code: int, inverse: bool) -> Value:
    """Return all points of a transform from the one-sided transforms of its parts, A and B.

    Point k is A + i B, and point n - k is conj(A) + i conj(B), gathered from pairs. An inverse
    transform has them the other way round.
    """
    order = [*(other for other in range(x.rank) if other != at), at]
    parts = [x]
    if x.dtype == COMPLEX:
        pairs = pair(x.ssa, x.b)
        front = Value(pairs, x.b).permute([x.rank, *range(x.rank)])
        planes = planar_parts(pairs) or [front.slice(0, part, part + 1).ssa for part in range(2)]
        parts = [Value(plane, x.b).view(*x.shape) for plane in planes]
    k = torch.arange(n)
    first = 2 * torch.where(2 * k <= n, k, n - k)
    sign = torch.where((2 * k <= n) != inverse, 1.0, -1.0)
    picks = [(first, first + 1, sign.abs(), sign), (first + 1, first, -sign, sign.abs())]
    terms: list[Value] = []
    for part, (real, imaginary, *signs) in zip(parts, picks, strict=False):
        rows = part.permute(order)
        batch, last = rows.shape[:-1], x.rank - 1
        shape = (*batch, n // 2 + 1)
        y = rows.call(aten._FftR2cDefault, [last], code, True, shape=shape, dtype=COMPLEX)
        numbers = Value(pair(y.ssa, x.b), x.b).view(*batch, 2 * (n // 2 + 1))
        places = x.constant(torch.stack([real, imaginary], 1).flatten())
        picked = numbers.call(aten.IndexSelectDefault, last, places, shape=(*batch, 2 * n))
        terms.append(picked * x.constant(torch.stack(signs, 1).flatten()))
    total = terms[0] + terms[1] if len(terms) == 2 else terms[0]
    made = total.view(*total.shape[:-1], n, 2).permute([*maps.inverse(order), x.rank])
    return Value(whole(made.ssa, x.b), x.b)


def rows_of(x: Value, at: int) -> tuple[Row, list[int]]:
    """Return a tensor's points on the last axis, and the order of axes that moved them there."""
    order = [*(other for other in range(x.rank) if other != at), at]
    if x.dtype == f32:
        return Row(x.permute(order), NUMBERS), order
    both = pair(x.ssa, x.b)
    if planar := planar_parts(both):
        parts = [Value(part, x.b).view(*x.shape).permute(order) for part in planar]
        return Row(cat(parts, x.rank - 1), PLANAR), order
    pairs = Value(both, x.b).permute([*order, x.rank])
    shape = pairs.shape
    return Row(pairs.view(*shape[:-2], shape[-2] * 2), PAIRS), order


def transformed(row: Row, n: int, outputs: int, *, inverse: bool, scale: float) -> list[Value]:
    """Return the real and the imaginary parts of the first points of transforms."""
    factor = _factor(n)
    if n > MOST_POINTS and factor > 1:
        return _by_factors(row, n // factor, factor, outputs, inverse, scale)
    return [
        _product(row, outputs=outputs, points=n, inverse=inverse, part=part, scale=scale)
        for part in range(2)
    ]


def _product(row: Row, **of: Any) -> Value:
    width = row.value.shape[-1] * of["outputs"]
    if width > LARGEST:
        refuse(
            f"a transform of {of['points']} points needs a matrix of {width} numbers; at most "
            f"{LARGEST} are used"
        )
    weight = derived(row.value.b, "fourier_matrix", form=row.form, **of)
    shape = (*row.value.shape[:-1], of["outputs"])
    return row.value.call(aten.LinearDefault, weight, shape=shape)


def derived(b: Rewriter, recipe: str, sources: Sequence[str] = (), **of: Any) -> Value:
    """Return a constant that a recipe computes from sizes, and from other weights if any."""
    return Value(b.weight(b.weights.derive(recipe, list(sources), **of)), b)


@cache
def _factor(n: int) -> int:
    """Return the largest factor up to the square root."""
    return next(factor for factor in range(math.isqrt(n), 0, -1) if n % factor == 0)


def _by_factors(
    row: Row, outer: int, inner: int, outputs: int, inverse: bool, scale: float
) -> list[Value]:
    """Transform n₁ · n₂ points: number t is n₂ · t₁ + t₂, and point k is k₁ + n₁ · k₂."""
    value, b = row.value, row.value.b
    *batch, _ = value.shape
    at = len(batch)
    if row.form == PAIRS:
        pairs = value.view(*batch, outer, inner, 2)
        columns = pairs.permute([*range(at), at + 1, at, at + 2]).view(*batch, inner, outer * 2)
    elif row.form == PLANAR:
        planes = value.view(*batch, 2, outer, inner)
        columns = planes.permute([*range(at), at + 2, at, at + 1]).view(*batch, inner, 2 * outer)
    else:
        columns = value.view(*batch, outer, inner).permute([*range(at), at + 1, at])
    first = transformed(Row(columns, row.form), outer, outer, inverse=inverse, scale=1.0)
    of: dict[str, Any] = {"outer": outer, "inner": inner, "inverse": inverse, "scale": scale}
    cosines, sines = (derived(b, "fourier_twiddles", part=part, **of) for part in range(2))
    real, imaginary = first
    turned = [real * cosines - imaginary * sines, real * sines + imaginary * cosines]
    swapped = [part.permute([*range(at), at + 1, at]) for part in turned]
    second = Row(cat(swapped, at + 1), PLANAR)
    last = transformed(second, inner, inner, inverse=inverse, scale=1.0)
    n = outer * inner
    return [
        part.permute([*range(at), at + 1, at]).view(*batch, n).slice(at, 0, outputs)
        for part in last
    ]


def _back(row: Row, n: int, scale: float) -> Value:
    """Return n real numbers from the first n // 2 + 1 points of their transform."""
    if n <= MOST_POINTS or _factor(n) == 1:
        return _product(row, outputs=n, points=n, inverse=True, part=0, scale=scale, back=True)
    value, half = row.value, n // 2 + 1
    at = value.rank - 1
    if row.form == PAIRS:
        pairs = value.view(*value.shape[:-1], half, 2)
        parts = [
            pairs.slice(at + 1, part, part + 1).view(*value.shape[:-1], half) for part in (0, 1)
        ]
    else:
        parts = [value.slice(at, 0, half), value.slice(at, half, 2 * half)]
    # The imaginary parts of the first and the middle point contribute only to an imaginary result.
    count = n - half
    both: list[Value] = []
    for part, is_imaginary in zip(parts, (False, True), strict=True):
        rest = part.slice(at, 1, count + 1)
        rest = rest.call(aten.FlipDefault, [at])
        both.append(cat([part, rest * -1.0 if is_imaginary else rest], at))
    return transformed(Row(cat(both, at), PLANAR), n, n, inverse=True, scale=scale)[0]


RULES = lowerings_of(__name__)
