"""`istft` as what it is: a transform of each frame, a window, and frames added where they overlap.

Frames are cut into pieces as long as two frames lie apart, and the first pieces of all frames, the
second ones and so on are added as whole rows. What windows add up to is divided by.

Before:
    %y = aten.istft.default(%x, 4, 2) : (tensor<3x4xcomplex<f32>>) -> tensor<6xf32>
After:
    %0 = aten.permute.default(%x, [1, 0]) : (tensor<3x4xcomplex<f32>>) -> tensor<4x3xcomplex<f32>>
    %1 = aten._fft_c2r.default(%0, [1], 2, 4) : (tensor<4x3xcomplex<f32>>) -> tensor<4x4xf32>
    %2 = aten.mul.Tensor(%1, dense<1.0>) : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
    %3 = aten.mul.Tensor(dense<1.0>, dense<1.0>) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %4 = aten.view.default(%3, [1, 4]) : (tensor<4xf32>) -> tensor<1x4xf32>
    %5 = aten.expand.default(%4, [4, 4]) : (tensor<1x4xf32>) -> tensor<4x4xf32>
    %6 = aten.slice.Tensor(%2, 1, 0, 2, 1) : (tensor<4x4xf32>) -> tensor<4x2xf32>
    %7 = aten.constant_pad_nd.default(%6, [0, 0, 0, 1], 0.0) : (tensor<4x2xf32>) -> tensor<5x2xf32>
    %8 = aten.slice.Tensor(%2, 1, 2, 4, 1) : (tensor<4x4xf32>) -> tensor<4x2xf32>
    %9 = aten.constant_pad_nd.default(%8, [0, 0, 1, 0], 0.0) : (tensor<4x2xf32>) -> tensor<5x2xf32>
    %10 = aten.add.Tensor(%7, %9) : (tensor<5x2xf32>, tensor<5x2xf32>) -> tensor<5x2xf32>
    %11 = aten.view.default(%10, [10]) : (tensor<5x2xf32>) -> tensor<10xf32>
    %12 = aten.slice.Tensor(%5, 1, 0, 2, 1) : (tensor<4x4xf32>) -> tensor<4x2xf32>
    %13 = aten.constant_pad_nd.default(%12, [0, 0, 0, 1], 0.0) : (tensor<4x2xf32>) -> tensor<5x2xf32>
    %14 = aten.slice.Tensor(%5, 1, 2, 4, 1) : (tensor<4x4xf32>) -> tensor<4x2xf32>
    %15 = aten.constant_pad_nd.default(%14, [0, 0, 1, 0], 0.0) : (tensor<4x2xf32>) -> tensor<5x2xf32>
    %16 = aten.add.Tensor(%13, %15) : (tensor<5x2xf32>, tensor<5x2xf32>) -> tensor<5x2xf32>
    %17 = aten.view.default(%16, [10]) : (tensor<5x2xf32>) -> tensor<10xf32>
    %18 = aten.slice.Tensor(%11, 0, 2, 8, 1) : (tensor<10xf32>) -> tensor<6xf32>
    %19 = aten.slice.Tensor(%17, 0, 2, 8, 1) : (tensor<10xf32>) -> tensor<6xf32>
    %y = aten.div.Tensor(%18, %19) : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.size import number_of
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.building import (
    emit,
    expand,
    permute,
    slice_axis,
    static_dims,
    view,
)
from stepwell.translate.rewrites.transforms.complex_to_pairs import COMPLEX
from stepwell.translate.rewrites.transforms.stft_to_frames import Framed, framed, window_of

ISTFT = op_class("aten.istft.default")
BY_ROOT, BY_COUNT = 1, 2
"""PyTorch's numbers for how a transform back is scaled."""


@dataclass(frozen=True)
class IstftToFrames(Rewrite[Framed]):
    """`istft` to a transform, a product and sums of shifted pieces."""

    name: ClassVar[str] = "istft-to-frames-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (ISTFT,)
    bound: ClassVar[Bound] = roundings("frames are added in another order")

    def match(self, op: SchemaOp, program: Program) -> Framed | Refusal | None:
        """Guards: known sizes, half of the points, a real result no longer than frames reach."""
        if element(op.operands[0].type) != COMPLEX or op.arg("return_complex"):
            return Refusal("it takes or gives other numbers than complex and real ones of 32 bits")
        found = framed(op)
        if isinstance(found, Refusal):
            return found
        shape = static_dims(op.operands[0])
        assert shape is not None
        if shape[-2] != found.length // 2 + 1 or op.arg("onesided") is False:
            return Refusal("both halves of the points are given")
        whole = found.length + found.hop * (shape[-1] - 1)
        start = found.length // 2 if op.arg("center") else 0
        if start + number_of(dims(op.results[0].type)[-1]) > whole:
            return Refusal("it asks for more than its frames reach")
        return found

    def build(self, match: Framed, rw: Rewriter) -> None:
        """Rows of frames, transformed and added."""
        op, x = match.op, match.op.operands[0]
        *batch, _, count = (size for size in dims(x.type) if isinstance(size, int))
        at = len(batch)
        rows = permute(rw, x, [*range(at), at + 1, at])
        scaled = BY_ROOT if op.arg("normalized") else BY_COUNT
        frames = emit(
            rw,
            aten._FftC2rDefault.make(
                rows,
                [at + 1],
                scaled,
                match.length,
                result_types=[tensor((*batch, count, match.length), f32)],
            ),
        )
        window = window_of(match, rw)
        if window is None:
            window = rw.constant(torch.ones(match.length))
        frames = emit(rw, aten.MulTensor.make(frames, window))
        squares = emit(rw, aten.MulTensor.make(window, window))
        weights = expand(rw, view(rw, squares, (1, match.length)), (count, match.length))
        total, weight = (_added(value, match.hop, rw) for value in (frames, weights))
        start = match.length // 2 if op.arg("center") else 0
        stop = start + number_of(dims(op.results[0].type)[-1])
        total, weight = (
            slice_axis(rw, value, len(dims(value.type)) - 1, start, stop)
            for value in (total, weight)
        )
        rw.replace(op, [emit(rw, aten.DivTensor.make(total, weight))])


def _added(frames: SSAValue, hop: int, rw: Rewriter) -> SSAValue:
    """`[..., F, n]` to `[..., n + hop · (F - 1)]`: each frame `hop` behind the one before."""
    *batch, count, length = (size for size in dims(frames.type) if isinstance(size, int))
    pieces = -(-length // hop)
    if pieces * hop != length:
        frames = emit(rw, aten.ConstantPadNdDefault.make(frames, [0, pieces * hop - length], 0.0))
    at, total = len(batch) + 1, None
    for piece in range(pieces):
        part = slice_axis(rw, frames, at, piece * hop, (piece + 1) * hop)
        around = [0, 0, piece, pieces - 1 - piece]
        if pieces > 1:
            part = emit(rw, aten.ConstantPadNdDefault.make(part, around, 0.0))
        total = part if total is None else emit(rw, aten.AddTensor.make(total, part))
    assert total is not None
    line = view(rw, total, (*batch, (count + pieces - 1) * hop))
    return slice_axis(rw, line, at - 1, 0, length + hop * (count - 1))
