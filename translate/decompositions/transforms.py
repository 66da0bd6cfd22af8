"""Decompositions of short-time Fourier transforms into filters, or into transforms of frames."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from operator import gt
from typing import Any

import torch
from torch.nn.functional import pad
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import Deviation, numerics_of
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import Dim, Size, settled
from stepwell.ir.types import element
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.complex import COMPLEX, pair, paired
from stepwell.translate.decompositions.fourier import (
    BACK,
    BY_SIZE,
    LARGEST,
    NORMALIZATIONS,
    NUMBERS,
    REAL,
    count,
    derived,
    has_kernel,
    is_operator,
    matrix,
    rows_of,
    spreads,
)
from stepwell.translate.decompositions.values import Value, cat
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.building import emit, is_known

NARROWEST = 8
"""The fewest samples of a channel-wise view of a signal. With fewer, the signal is one channel."""
FRAMING = 0.7
"""The time to cut a number into frames and to multiply it by a window (`has_kernel`)."""

ADDING = 16.0
"""How many times as fast a kernel must be that a delegate on each side adds to the program."""


def _is_strict(program: Program) -> bool:
    return numerics_of(program.context) == "strict"


def _spreads(op: Operation, program: Program) -> Deviation | None:
    """Return the deviation of filters; None in strict mode, which does not use them."""
    return None if _is_strict(program) else spreads(op, program)


class Frames:
    """The frames of an `stft` or an `istft`: their length, their hop, and the padded window."""

    def __init__(self, op: Any, b: Rewriter) -> None:
        tensors = [v for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)]
        if not all(is_known(Value(value, b).shape) for value in tensors):
            refuse("the shape is not known, not even as an expression")
        window = op.operand("window")
        if window is not None and element(window.type) != f32:
            refuse("the window is not of single precision")
        self.length = op.arg("n_fft")
        self.hop = op.arg("hop_length") or self.length // 4
        self.wide = op.arg("win_length") or self.length
        if not all(isinstance(number, int) for number in (self.length, self.hop, self.wide)):
            refuse("a length is known only at run time")
        self.given = None if window is None else Value(window, b)
        key = None if self.given is None else self.given.key
        self.sources = [] if key is None else [key]
        self.is_constant = self.given is None or key is not None
        self.b = b

    def window(self) -> Value | None:
        """Return the window centered in a frame and padded with zeros; None if all are ones."""
        window, b = self.given, self.b
        if self.wide == self.length:
            return window
        window = window or Value(b.constant(torch.ones(self.wide)), b)
        before = (self.length - self.wide) // 2
        sides = (before, self.length - self.wide - before)
        first, last = ([Value(b.constant(torch.zeros(n)), b)] if n else [] for n in sides)
        return cat([*first, window.view(self.wide), *last], 0)

    def derived(self, name: str, **of: Any) -> Value:
        """Return a weight that is computed from the window."""
        return derived(self.b, name, self.sources, wide=self.wide, length=self.length, **of)


def _padded_window(window: Sequence[torch.Tensor], wide: int, length: int) -> torch.Tensor:
    given = window[0].double() if window else torch.ones(wide, dtype=torch.float64)
    before = (length - wide) // 2
    return pad(given, (before, length - wide - before))


@recipe("stft_filters")
def stft_filters(
    *window: torch.Tensor, wide: int, length: int, channels: int, scale: float, **of: Any
) -> torch.Tensor:
    """Return the filters `f32[points, channels, taps]` of one part of windowed transforms."""
    rows = matrix(NUMBERS, points=length, inverse=False, **of) * scale
    rows = rows.to(window[0].device) if window else rows
    rows = (rows * _padded_window(window, wide, length)).float()
    return rows.unflatten(1, (-1, channels)).transpose(1, 2).contiguous()


@recipe("istft_filters")
def istft_filters(
    *window: torch.Tensor, wide: int, length: int, channels: int, scale: float, form: str
) -> torch.Tensor:
    """Return the filters `f32[numbers in a row, channels, taps]` of windowed inverse transforms."""
    rows = matrix(form, length, length, inverse=True, part=0, back=True) * scale
    rows = rows.to(window[0].device) if window else rows
    rows = (rows.T * _padded_window(window, wide, length)).float()
    return rows.unflatten(1, (-1, channels)).transpose(1, 2).contiguous()


@recipe("squared_window")
def squared_window(*window: torch.Tensor, wide: int, length: int, channels: int) -> torch.Tensor:
    """Return the squared window as a filter `f32[1, channels, taps]`."""
    squares = _padded_window(window, wide, length).square().float()
    return squares.unflatten(0, (-1, channels)).T[None].contiguous()


@recipe("overlap_scale")
def overlap_scale(
    *window: torch.Tensor, wide: int, length: int, hop: int, frames: int, start: int, stop: int
) -> torch.Tensor:
    """Return the reciprocal sum `f32[samples]` of the squared windows of all frames."""
    squares = _padded_window(window, wide, length).square()
    total = squares.new_zeros(length + hop * (frames - 1))
    places = torch.arange(frames)[:, None] * hop + torch.arange(length)
    if squares.device.type != "meta":
        total.index_add_(0, places.flatten(), squares.repeat(frames))
    return total[start:stop].reciprocal().float()


@lowers(
    "aten.stft.default",
    to="aten",
    phases=("xnnpack/transforms", "tosa/transforms", "tosa/decompose"),
    bound=roundings("the same transform of frames that lie elsewhere"),
    deviation=_spreads,
    sample=("12xf32", 4, 2, {"return_complex": True}),
)
def stft_to_frames(x: Value, *, op: Any, out: Out, b: Rewriter) -> Value:
    """Decompose `stft` into a strided convolution with windowed cosines and sines, or into
    overlapping frames, a window, and a transform of each frame.

    PyTorch cuts frames by strides in memory; `unfold` does so independently of the memory layout.
    """
    if x.dtype != f32:
        refuse("only real numbers of single precision are transformed")
    if op.arg("align_to_window"):
        refuse("the frames are aligned to the window (`align_to_window`)")
    frames = Frames(op, b)
    length, hop = frames.length, frames.hop
    half, code = op.arg("onesided") is not False, int(op.arg("normalized"))
    points = length // 2 + 1 if half else length
    *batch, whole = x.shape
    number: Dim = settled((whole - length) // hop + 1)
    if _uses_filters(frames, x, REAL if half else "", count([*batch, number]), op):
        y = _filtered(x, frames, points, number, length ** NORMALIZATIONS[code])
    else:
        at = len(batch)
        y = Value(emit(b, aten.UnfoldDefault.make(x.ssa, at, length, hop)), b)
        if (window := frames.window()) is not None:
            y = y * window
        shape = (*batch, number, points)
        y = y.call(aten._FftR2cDefault, [at + 1], code, half, shape=shape, dtype=COMPLEX)
        y = y.permute([*range(at), at + 1, at])
    return y if out.dtype == COMPLEX else Value(pair(y.ssa, b), b)


def _uses_filters(frames: Frames, x: Value, form: str, rows: int, op: Any) -> bool:
    """Whether transforms are computed by filters, and not by the target or two factors."""
    if not frames.is_constant or frames.length * (frames.length // 2 + 1) * 2 > LARGEST:
        return False
    if _is_strict(x.b.program):
        return False
    if is_operator(frames.length, x.b.program.context.target):
        return False
    return not has_kernel(form, frames.length, rows, op, x.b, FRAMING)


def _filtered(x: Value, frames: Frames, points: int, number: Dim, scale: float) -> Value:
    """Convolve `[…, L]` with the rows of a windowed matrix, `[…, points, frames]`.

    The signal is viewed as `L / g` columns of g channels, where g divides frame and hop.
    """
    *batch, size = x.shape
    length, hop = frames.length, frames.hop
    channels = gcd(length, hop)
    if isinstance(size, int) and isinstance(number, int):
        size = hop * (number - 1) + length
        x = x.slice(x.rank - 1, 0, size)
    columns = Size.of(size).exact_quotient(channels)
    one = batch[0] if batch else 1
    if channels < NARROWEST or columns is None:
        channels, image = 1, x.view(one, 1, size)
    else:
        image = x.view(one, settled(columns), channels).permute([0, 2, 1])
    parts: list[Value] = []
    for part in range(2):
        filters = frames.derived(
            "stft_filters", channels=channels, outputs=points, part=part, scale=scale
        )
        strided = ([hop // channels], [0], [1], False, [0], 1)
        y = image.call(
            aten.ConvolutionDefault, filters, None, *strided, shape=(one, points, number)
        )
        parts.append(y.view(*batch, points, number))
    return paired(parts)


@lowers(
    "aten.istft.default",
    to="aten",
    phases=("xnnpack/transforms", "tosa/transforms", "tosa/decompose"),
    bound=roundings("frames are added in another order"),
    deviation=_spreads,
    sample="""
    %y = aten.istft.default(%x, 4, 2) : (tensor<3x4xcomplex<f32>>) -> tensor<6xf32>
    """,
)
def istft_to_frames(x: Value, *, op: Any, out: Out, b: Rewriter) -> Value:
    """Decompose `istft` into a transposed convolution with windowed cosines and sines, or into a
    transform of each frame, a window, and overlap-add.

    The sum is divided by the sum of the squared windows.
    """
    if x.dtype != COMPLEX or op.arg("return_complex"):
        refuse("an operand or the result is neither complex64 nor float32")
    frames = Frames(op, b)
    length, hop = frames.length, frames.hop
    *batch, points, number = x.shape
    if points != length // 2 + 1:  # For two points the one-sided transform is the full one.
        refuse("the spectrum is two-sided (`onesided=False`)")
    start = length // 2 if op.arg("center") else 0
    most = settled(length + hop * (number - 1))
    stop = settled(start + out.shape[-1])
    beyond = stop - most if isinstance(most, int) and isinstance(stop, int) else 0
    if beyond > 0:  # PyTorch pads with zeros what no frame covers.
        shape = (*batch, most - start)
        given = {name: op.arg(name) for name in op.SCHEMA.by_name if name not in ("self", "length")}
        y = x.call(type(op), length=most - start, shape=shape, dtype=f32, **given)
        return _padded(y, [0, beyond])
    if frames.is_constant and isinstance(number, int) and isinstance(stop, int):
        windows = [b.weights.get(key) for key in frames.sources]
        of = {"wide": frames.wide, "length": length, "hop": hop, "frames": number}
        if overlap_scale(*windows, **of, start=start, stop=stop).max() > 1e11:
            refuse("the windows add up to less than 1e-11 at a sample, which PyTorch refuses")
    code = 1 if op.arg("normalized") else BY_SIZE
    kernel = has_kernel(BACK, length, count([*batch, number]), op, b, FRAMING, ADDING)
    if (
        frames.is_constant
        and not _is_strict(b.program)
        and not (x.is_static and kernel)
        and not is_operator(length, b.program.context.target)
    ):
        return _added(x, frames, start, stop, length ** NORMALIZATIONS[code])
    if not x.is_static:
        refuse("the shape is symbolic")
    at = len(batch)
    rows = x.permute([*range(at), at + 1, at])
    shape = (*batch, number, length)
    y = rows.call(aten._FftC2rDefault, [at + 1], code, length, shape=shape, dtype=f32)
    window = frames.window() or Value(b.constant(torch.ones(length)), b)
    assert isinstance(stop, int)
    y = _overlapped(y * window, hop).slice(at, start, stop)
    if frames.is_constant:
        of = {"hop": hop, "frames": number, "start": start, "stop": stop}
        return y * frames.derived("overlap_scale", **of)
    weights = (window * window).view(1, length).expand(number, length)
    return y.call(aten.DivTensor, _overlapped(weights, hop).slice(0, start, stop))


def _added(x: Value, frames: Frames, start: int, stop: Dim, scale: float) -> Value:
    """Overlap-add `[…, points, F]` to `[…, start:stop]` by a transposed convolution.

    The result is columns of g channels, where g divides frame and hop.
    """
    *batch, _, number = x.shape
    row, _ = rows_of(x, x.rank - 2)  # […, F, numbers]
    one, wide = batch[0] if batch else 1, row.value.shape[-1]
    image = row.value.view(one, number, wide).permute([0, 2, 1])
    length, hop = frames.length, frames.hop
    channels = gcd(length, hop)
    filters = frames.derived("istft_filters", channels=channels, scale=scale, form=row.form)
    most = settled(length + hop * (number - 1))
    rest = settled(most - stop)
    fits = rest == start or (isinstance(rest, int) and rest > start)
    crop = start // channels if start % channels == 0 and fits else 0

    def added(image: Value, filters: Value, rows: Dim) -> Value:
        """Add overlapping rows, without `crop` columns at both ends: `[rows, samples]`."""
        size = settled(most - 2 * crop * channels)
        columns = settled(Size.of(size).exact_quotient(channels) or 0)
        strided = ([hop // channels], [crop], [1], True, [0], 1)
        y = image.call(
            aten.ConvolutionDefault, filters, None, *strided, shape=(rows, channels, columns)
        )
        return y.permute([0, 2, 1]).view(rows, size)

    y = added(image, filters, one)
    front = start - crop * channels
    end = settled(stop - start + front)
    if isinstance(end, int):
        y = y.slice(1, front, end)
    elif y.shape[1] != end:
        refuse("the requested length is symbolic and not that of the frames")
    if isinstance(number, int):
        of = {"hop": hop, "frames": number, "start": start, "stop": stop}
        y = y * frames.derived("overlap_scale", **of)
    else:
        ones = image.slice(1, 0, 1) * 0.0 + 1.0
        total = added(ones, frames.derived("squared_window", channels=channels), one)
        y = y.call(aten.DivTensor, total)
    return y.view(*batch, y.shape[1])


@lowers(
    "aten.pad.default",
    to="aten",
    phases=("xnnpack/transforms",),
    sample="""
    %v = aten.view.default(%x, [1, 2, 6]) : (tensor<2x6xf32>) -> tensor<1x2x6xf32>
    %y = aten.pad.default(%v, [1, 2], "reflect") : (tensor<1x2x6xf32>) -> tensor<1x2x9xf32>
    """,
)
def pad_before_view(x: Value, *, op: Any, out: Out) -> Value | None:
    """Pad the rows of a signal, which `torch.stft` views as an image of one batch, as they are."""
    rows = x
    while isinstance(rows.owner, aten.ViewDefault | aten.ReshapeDefault):
        source = Value(rows.owner.operands[0], x.b)
        if source.shape[-1:] != x.shape[-1:]:
            break
        rows = source
    if rows.ssa is x.ssa or rows.rank not in (2, 3) or len(op.arg("pad")) != 2:
        return None
    shape = (*rows.shape[:-1], out.shape[-1])
    rest = (op.arg("pad"), op.arg("mode"), op.arg("value"))
    return rows.call(aten.PadDefault, *rest, shape=shape).view(*out.shape)


def _overlapped(frames: Value, hop: int) -> Value:
    """Overlap-add `[..., F, n]` to `[..., n + hop · (F - 1)]`: frame i starts at i · hop.

    Frames are cut into pieces as long as the hop. The first pieces of all frames, then the second
    ones and so on, are added as whole rows.
    """
    *batch, count, length = frames.shape
    pieces = -(-length // hop)
    if pieces * hop != length:
        frames = _padded(frames, [0, pieces * hop - length])
    at, parts = len(batch) + 1, list[Value]()
    for piece in range(pieces):
        part = frames.slice(at, piece * hop, (piece + 1) * hop)
        parts.append(_padded(part, [0, 0, piece, pieces - 1 - piece]) if pieces > 1 else part)
        if piece:
            parts[-2:] = [parts[-2] + parts[-1]]
    line = parts[0].view(*batch, (count + pieces - 1) * hop)
    return line.slice(at - 1, 0, length + hop * (count - 1))


MOST_PIECES = 64
"""The most pieces, as long as the stride, into which a window is cut (`fold_to_overlaps`)."""


@lowers(
    "aten.col2im.default",
    to="aten",
    phases=("xnnpack/transforms",),
    unless=lambda op: op.arg("kernel_size") == op.arg("stride") and not any(op.arg("padding")),
    bound=roundings("the windows are added in another order"),
    sample=("1x8x9xf32", [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
)
def fold_to_overlaps(x: Value, *, op: Any, out: Out, b: Rewriter) -> Value:
    """Decompose `fold` of windows that overlap into sums along the width, then along the height."""
    names = ("output_size", "kernel_size", "dilation", "padding", "stride")
    size, kernel, dilation, padding, stride = (list(op.arg(name)) for name in names)
    if x.dtype != f32 or not x.is_static:
        refuse("the element type is not f32, or a size is symbolic")
    whole = [n + 2 * p for n, p in zip(size, padding, strict=True)]
    windows = [(n - k) // s + 1 for n, k, s in zip(whole, kernel, stride, strict=True)]
    stride = [s if n > 1 else k for n, k, s in zip(windows, kernel, stride, strict=True)]
    if any(n != 1 for n in dilation) or any(map(gt, stride, kernel)):
        refuse("the windows have gaps")
    if max(k / s for k, s in zip(kernel, stride, strict=True)) > MOST_PIECES:
        refuse(f"the windows overlap in more than {MOST_PIECES} pieces")
    rows = x.shape[0] * out.shape[1] if x.rank == 3 else out.shape[0]
    y = x.view(rows, *kernel, *windows).permute([0, 1, 3, 4, 2])
    y = _overlapped(y, stride[1]).permute([0, 3, 2, 1])
    y = _overlapped(y, stride[0]).permute([0, 2, 1])
    missing = [n - y.shape[at + 1] for at, n in enumerate(whole)]
    if any(missing):
        y = _padded(y, [0, missing[1], 0, missing[0]])
    for at, (n, p) in enumerate(zip(size, padding, strict=True)):
        y = y.slice(at + 1, p, p + n)
    return y.view(*out.shape)


def _padded(value: Value, around: list[int]) -> Value:
    op = aten.ConstantPadNdDefault.make(value.ssa, around, 0.0)
    return Value(emit(value.b, op), value.b)


RULES = lowerings_of(__name__)
