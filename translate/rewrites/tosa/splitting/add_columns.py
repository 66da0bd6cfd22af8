"""`col2im`: every place of the kernel laid where its window stands, one after the other.

Before:
    %y = aten.col2im.default(%x, [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]) : (tensor<1x8x9xf32>) -> tensor<1x2x4x4xf32>
After:
    %0 = tosa.const_shape {values = dense<[1, 2, 4, 9]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %1 = tosa.reshape %x, %0 : (tensor<1x8x9xf32>, !tosa.shape<4>) -> tensor<1x2x4x9xf32>
    %2 = tosa.const_shape {values = dense<0> : tensor<4xindex>} : () -> !tosa.shape<4>
    %3 = tosa.const_shape {values = dense<[1, 2, 1, 9]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %4 = tosa.slice %1, %2, %3 : (tensor<1x2x4x9xf32>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x2x1x9xf32>
    %5 = tosa.const_shape {values = dense<[1, 2, 3, 3]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %6 = tosa.reshape %4, %5 : (tensor<1x2x1x9xf32>, !tosa.shape<4>) -> tensor<1x2x3x3xf32>
    %7 = tosa.const_shape {values = dense<[0, 0, 0, 0, 0, 1, 0, 1]> : tensor<8xindex>} : () -> !tosa.shape<8>
    %8 = tosa.pad %6, %7, dense<0.0> : (tensor<1x2x3x3xf32>, !tosa.shape<8>, tensor<1xf32>) -> tensor<1x2x4x4xf32>
    %9 = tosa.const_shape {values = dense<[0, 0, 1, 0]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %10 = tosa.const_shape {values = dense<[1, 2, 1, 9]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %11 = tosa.slice %1, %9, %10 : (tensor<1x2x4x9xf32>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x2x1x9xf32>
    %12 = tosa.const_shape {values = dense<[1, 2, 3, 3]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %13 = tosa.reshape %11, %12 : (tensor<1x2x1x9xf32>, !tosa.shape<4>) -> tensor<1x2x3x3xf32>
    %14 = tosa.const_shape {values = dense<[0, 0, 0, 0, 0, 1, 1, 0]> : tensor<8xindex>} : () -> !tosa.shape<8>
    %15 = tosa.pad %13, %14, dense<0.0> : (tensor<1x2x3x3xf32>, !tosa.shape<8>, tensor<1xf32>) -> tensor<1x2x4x4xf32>
    %16 = tosa.add %8, %15 : (tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
    %17 = tosa.const_shape {values = dense<[0, 0, 2, 0]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %18 = tosa.const_shape {values = dense<[1, 2, 1, 9]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %19 = tosa.slice %1, %17, %18 : (tensor<1x2x4x9xf32>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x2x1x9xf32>
    %20 = tosa.const_shape {values = dense<[1, 2, 3, 3]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %21 = tosa.reshape %19, %20 : (tensor<1x2x1x9xf32>, !tosa.shape<4>) -> tensor<1x2x3x3xf32>
    %22 = tosa.const_shape {values = dense<[0, 0, 0, 0, 1, 0, 0, 1]> : tensor<8xindex>} : () -> !tosa.shape<8>
    %23 = tosa.pad %21, %22, dense<0.0> : (tensor<1x2x3x3xf32>, !tosa.shape<8>, tensor<1xf32>) -> tensor<1x2x4x4xf32>
    %24 = tosa.add %16, %23 : (tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
    %25 = tosa.const_shape {values = dense<[0, 0, 3, 0]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %26 = tosa.const_shape {values = dense<[1, 2, 1, 9]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %27 = tosa.slice %1, %25, %26 : (tensor<1x2x4x9xf32>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x2x1x9xf32>
    %28 = tosa.const_shape {values = dense<[1, 2, 3, 3]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %29 = tosa.reshape %27, %28 : (tensor<1x2x1x9xf32>, !tosa.shape<4>) -> tensor<1x2x3x3xf32>
    %30 = tosa.const_shape {values = dense<[0, 0, 0, 0, 1, 0, 1, 0]> : tensor<8xindex>} : () -> !tosa.shape<8>
    %31 = tosa.pad %29, %30, dense<0.0> : (tensor<1x2x3x3xf32>, !tosa.shape<8>, tensor<1xf32>) -> tensor<1x2x4x4xf32>
    %y = tosa.add %24, %31 : (tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.operators.building import Builder, narrow, shape_of
from stepwell.translate.rewrites.tosa.operators.lowering import LowerToTosa, needs_floats

MOST_PLACES = 256
"""The most places of a kernel: each takes some five operators."""


@dataclass(frozen=True)
class AddColumns(LowerToTosa):
    """`col2im` to slices, PAD and ADD, in torch's order."""

    name: ClassVar[str] = "add-columns-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.Col2imDefault,)
    takes_symbols: ClassVar[bool] = False
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats in a batch, a kernel that is not too large."""
        if len(shape_of(op.operands[0])) != 3:
            return Refusal("the columns have no batch axis")
        height, width = op.arg("kernel_size")
        if height * width > MOST_PLACES:
            return Refusal(f"its kernel has {height * width} places, each an operator")
        return needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """The image with its padding, cut off at the end."""
        names = ("output_size", "kernel_size", "dilation", "padding", "stride")
        size, kernel, dilation, padding, stride = (list(op.arg(name)) for name in names)
        batch, channels, height, width = shape_of(op.results[0])
        windows = [
            (size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
            for i in range(2)
        ]
        columns = b.reshape(
            op.operands[0], (batch, channels, kernel[0] * kernel[1], windows[0] * windows[1])
        )
        whole = [size[i] + 2 * padding[i] for i in range(2)]
        image: SSAValue | None = None
        for place in range(kernel[0] * kernel[1]):
            values = narrow(columns, 2, place, 1, b)
            values = _apart(b.reshape(values, (batch, channels, *windows)), stride, b)
            at = divmod(place, kernel[1])
            pads = [0, 0, 0, 0]
            for i in range(2):
                before = at[i] * dilation[i]
                pads += [before, whole[i] - before - shape_of(values)[2 + i]]
            laid = _padded(values, pads, b)
            image = laid if image is None else b.binary(t.AddOp, image, laid)
        assert image is not None
        return narrow(narrow(image, 2, padding[0], height, b), 3, padding[1], width, b)


def _apart(x: SSAValue, stride: list[int], b: Builder) -> SSAValue:
    """Zeros between the elements, so that each stands `stride` behind the one before."""
    n, channels, *held = shape_of(x)
    for i, step in enumerate(stride):
        size = held[i]
        if step == 1 or size == 1:
            continue
        front, behind = (n, channels, *held[:i]), held[i + 1 :]
        alone = b.reshape(x, (*front, size, 1, *behind))
        pads = [0] * 2 * len(shape_of(alone))
        pads[2 * (len(front) + 1) + 1] = step - 1
        held[i] = size * step
        x = narrow(
            b.reshape(_padded(alone, pads, b), (n, channels, *held)),
            2 + i,
            0,
            held[i] - step + 1,
            b,
        )
        held[i] += 1 - step
    return x


def _padded(x: SSAValue, pads: list[int], b: Builder) -> SSAValue:
    if not any(pads):
        return x
    shape = [n + pads[2 * i] + pads[2 * i + 1] for i, n in enumerate(shape_of(x))]
    held = element(x.type)
    return b.op(t.PadOp, [x, b.sizes(pads), b.zero(held)], shape, held)
