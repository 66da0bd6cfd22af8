"""Decompositions of short-time Fourier transforms into transforms of frames."""

from __future__ import annotations

from typing import Any

import torch
from xdsl.dialects.builtin import TensorType

from stepwell.dialects import aten
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import f32
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import element
from stepwell.translate.decompositions.complex import COMPLEX, pair
from stepwell.translate.decompositions.values import Value, cat
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.building import emit

BY_ROOT, BY_COUNT = 1, 2
"""PyTorch's codes for the scaling of an inverse transform."""


def _frames(op: Any, b: Rewriter) -> tuple[int, int, Value | None]:
    """Return the length and the hop of an `stft`'s or `istft`'s frames, and the window, if any."""
    tensors = [Value(v, b) for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)]
    if not all(value.is_static for value in tensors):
        refuse("the shape is symbolic")
    window = op.operand("window")
    if window is not None and element(window.type) != f32:
        refuse("the window is not of single precision")
    length = op.arg("n_fft")
    hop, wide = op.arg("hop_length") or length // 4, op.arg("win_length") or length
    if not all(isinstance(number, int) for number in (length, hop, wide)):
        refuse("a length is known only at run time")
    return length, hop, None if window is None else Value(window, b)


def _window(length: int, window: Value | None, op: Any, b: Rewriter) -> Value | None:
    """Return the window centered in a frame and padded with zeros; ones if there is none."""
    wide = op.arg("win_length") or length
    if wide == length:
        return window
    window = window or Value(b.constant(torch.ones(wide)), b)
    before = (length - wide) // 2
    sides = (before, length - wide - before)
    first, last = ([Value(b.constant(torch.zeros(n)), b)] if n else [] for n in sides)
    return cat([*first, window.view(wide), *last], 0)


@lowers(
    "aten.stft.default",
    to="aten",
    phases=("tosa/decompose",),
    bound=roundings("the same transform of frames that lie elsewhere"),
    sample=("12xf32", 4, 2, {"return_complex": True}),
)
def stft_to_frames(x: Value, *, op: Any, out: Out, b: Rewriter) -> Value:
    """Decompose `stft` into overlapping frames, a window, and a transform of each frame.

    PyTorch cuts frames by strides in memory; `unfold` does so independently of the memory layout.
    """
    if x.dtype != f32:
        refuse("TOSA transforms real numbers of single precision")
    if op.arg("align_to_window"):
        refuse("the frames are aligned to the window (`align_to_window`)")
    length, hop, window = _frames(op, b)
    batch = x.shape[:-1]
    at = len(batch)
    frames = Value(emit(b, aten.UnfoldDefault.make(x.ssa, at, length, hop)), b)
    if (window := _window(length, window, op, b)) is not None:
        frames = frames * window
    half = op.arg("onesided") is not False
    shape = (*batch, frames.shape[at], length // 2 + 1 if half else length)
    scaled = int(op.arg("normalized"))
    points = frames.call(aten._FftR2cDefault, [at + 1], scaled, half, shape=shape, dtype=COMPLEX)
    points = points.permute([*range(at), at + 1, at])
    return points if out.dtype == COMPLEX else Value(pair(points.ssa, b), b)


@lowers(
    "aten.istft.default",
    to="aten",
    phases=("tosa/decompose",),
    bound=roundings("frames are added in another order"),
    sample="""
    %y = aten.istft.default(%x, 4, 2) : (tensor<3x4xcomplex<f32>>) -> tensor<6xf32>
    """,
)
def istft_to_frames(x: Value, *, op: Any, out: Out, b: Rewriter) -> Value:
    """Decompose `istft` into a transform of each frame, a window, and overlap-add.

    Frames are cut into pieces as long as the hop. The first pieces of all frames, then the second
    ones and so on, are added as whole rows. The sum is divided by the sum of the windows.
    """
    if x.dtype != COMPLEX or op.arg("return_complex"):
        refuse("an operand or the result is neither complex64 nor float32")
    length, hop, window = _frames(op, b)
    *batch, points, count = x.shape
    if points != length // 2 + 1:  # For two points the one-sided transform is the full one.
        refuse("the spectrum is two-sided (`onesided=False`)")
    start = length // 2 if op.arg("center") else 0
    stop = start + out.shape[-1]
    if stop > length + hop * (count - 1):
        refuse("the requested length exceeds the frames")
    at = len(batch)
    rows = x.permute([*range(at), at + 1, at])
    scaled, shape = BY_ROOT if op.arg("normalized") else BY_COUNT, (*batch, count, length)
    frames = rows.call(aten._FftC2rDefault, [at + 1], scaled, length, shape=shape, dtype=f32)
    window = _window(length, window, op, b) or Value(b.constant(torch.ones(length)), b)
    frames = frames * window
    weights = (window * window).view(1, length).expand(count, length)
    total, weight = (_overlapped(value, hop) for value in (frames, weights))
    total, weight = (value.slice(value.rank - 1, start, stop) for value in (total, weight))
    return total.call(aten.DivTensor, weight)


def _overlapped(frames: Value, hop: int) -> Value:
    """Overlap-add `[..., F, n]` to `[..., n + hop · (F - 1)]`: frame i starts at i · hop."""
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


def _padded(value: Value, around: list[int]) -> Value:
    op = aten.ConstantPadNdDefault.make(value.ssa, around, 0.0)
    return Value(emit(value.b, op), value.b)


RULES = lowerings_of(__name__)
