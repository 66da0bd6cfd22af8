"""`stft` as what it is: overlapping frames, a window, a transform of each.

PyTorch cuts frames by strides of memory; `unfold` says the same of elements, whatever lies where.

Before:
    %y = aten.stft.default(%x, 4, 2, return_complex=true) : (tensor<12xf32>) -> tensor<3x5xcomplex<f32>>
After:
    %0 = aten.unfold.default(%x, 0, 4, 2) : (tensor<12xf32>) -> tensor<5x4xf32>
    %1 = aten._fft_r2c.default(%0, [1], 0, true) : (tensor<5x4xf32>) -> tensor<5x3xcomplex<f32>>
    %y = aten.permute.default(%1, [1, 0]) : (tensor<5x3xcomplex<f32>>) -> tensor<3x5xcomplex<f32>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.building import cat, emit, permute, static_dims, view
from stepwell.translate.rewrites.transforms.complex_to_pairs import COMPLEX, pair

STFT = op_class("aten.stft.default")


@dataclass(frozen=True)
class Framed:
    """A `stft` or `istft` of known sizes: its frames' length and distance, and its window, if any."""

    op: SchemaOp
    length: int
    hop: int
    window: SSAValue | None


@dataclass(frozen=True)
class StftToFrames(Rewrite[Framed]):
    """`stft` to `unfold`, a product and a transform."""

    name: ClassVar[str] = "stft-to-frames-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (STFT,)
    bound: ClassVar[Bound] = roundings("the same transform of frames that lie elsewhere")

    def match(self, op: SchemaOp, program: Program) -> Framed | Refusal | None:
        """Guards: real numbers of single precision and known size, numbers known ahead of time."""
        if element(op.operands[0].type) != f32:
            return Refusal("TOSA transforms real numbers of single precision")
        if op.arg("align_to_window"):
            return Refusal("its frames are aligned to the window")
        return framed(op)

    def build(self, match: Framed, rw: Rewriter) -> None:
        """Frames are rows; the result has a column for each."""
        op, x = match.op, match.op.operands[0]
        batch = dims(x.type)[:-1]
        at = len(batch)
        frames = emit(rw, aten.UnfoldDefault.make(x, at, match.length, match.hop))
        if (window := window_of(match, rw)) is not None:
            frames = emit(rw, aten.MulTensor.make(frames, window))
        half = op.arg("onesided") is not False
        count, made = dims(frames.type)[at], match.length // 2 + 1 if half else match.length
        y = emit(
            rw,
            aten._FftR2cDefault.make(
                frames,
                [at + 1],
                int(op.arg("normalized")),
                half,
                result_types=[tensor((*batch, count, made), COMPLEX)],
            ),
        )
        y = permute(rw, y, [*range(at), at + 1, at])
        rw.replace(op, [y if element(op.results[0].type) == COMPLEX else pair(y, rw)])


def framed(op: SchemaOp) -> Framed | Refusal:
    """The frames of a `stft` or `istft`; sizes and a window of single precision are known."""
    values = [v for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)]
    if any(static_dims(v) is None for v in values):
        return Refusal("the shape is symbolic")
    window = op.operand("window")
    if window is not None and element(window.type) != f32:
        return Refusal("its window is not of single precision")
    length = op.arg("n_fft")
    hop, wide = op.arg("hop_length") or length // 4, op.arg("win_length") or length
    if not all(isinstance(number, int) for number in (length, hop, wide)):
        return Refusal("a length is known only at run time")
    return Framed(op, length, hop, window)


def window_of(match: Framed, rw: Rewriter) -> SSAValue | None:
    """The window in the middle of a frame, zeros around it; where none is given, ones."""
    wide, window = match.op.arg("win_length") or match.length, match.window
    if wide == match.length:
        return window
    if window is None:
        window = rw.constant(torch.ones(wide))
    before = (match.length - wide) // 2
    sides = (before, match.length - wide - before)
    zeros = [rw.constant(torch.zeros(size)) if size else None for size in sides]
    parts = [part for part in (zeros[0], view(rw, window, (wide,)), zeros[1]) if part is not None]
    return cat(rw, parts, 0)
