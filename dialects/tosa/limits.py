"""What level 8K bounds: ranks, kernels, strides, scales, lists, nesting and sizes in bytes; no
tensor may be empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from xdsl.dialects.builtin import IntegerType, TensorType
from xdsl.ir import Attribute, Operation

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa import structural as s
from stepwell.dialects.tosa.attributes import ShapeType
from stepwell.dialects.tosa.meaning.values import ints
from stepwell.dialects.tosa.shapes.rules import LARGEST_RANK, known_sizes
from stepwell.ir.dtypes import bf16, f16, f32
from stepwell.ir.types import dims

LARGEST_KERNEL, LARGEST_STRIDE, LARGEST_SCALE = 8192, 8192, 256
LONGEST_LIST, LONGEST_SHAPE, DEEPEST, LARGEST_BYTES = 64, 16, 6, (1 << 31) - 1

_BOUNDED = {
    "kernel": LARGEST_KERNEL,
    "stride": LARGEST_STRIDE,
    "pad": LARGEST_KERNEL,
    "out_pad": LARGEST_KERNEL,
}
_CONVOLUTIONS = (t.Conv2dOp, t.DepthwiseConv2dOp, t.Conv3dOp, t.Conv2dBlockScaledOp)
_BYTES: dict[Attribute, int] = {f32: 4, f16: 2, bf16: 2}


def limits(op: Operation) -> str | None:
    """Why an operator exceeds level 8K, or None."""
    return next(_excesses(op), None)


def _excesses(op: Operation) -> Iterator[str]:
    for value in (*op.operands, *op.results):
        if isinstance(value.type, TensorType):
            yield from _tensor(value.type)
        elif isinstance(value.type, ShapeType) and value.type.rank.data > LONGEST_SHAPE:
            yield f"a shape of {value.type.rank.data} sizes is above {LONGEST_SHAPE}"
    for name, most in _BOUNDED.items():
        found = _numbers(op, name)
        if found and max(found) > most:
            yield f"{name} {list(found)} is above {most}"
    if isinstance(op, _CONVOLUTIONS):
        yield from _dilated(op)
    elif isinstance(op, t.TransposeConv2dOp):
        kernel = dims(op.weight.type)[1:3]
        if any(isinstance(size, int) and size > LARGEST_KERNEL for size in kernel):
            yield f"a kernel of {list(kernel)} is above {LARGEST_KERNEL}"
    elif isinstance(op, t.FFT2dOp | t.RFFT2dOp):
        image = dims(op.operands[0].type)[1:]
        if any(isinstance(size, int) and size > LARGEST_KERNEL for size in image):
            yield f"a transform of {list(image)} is above {LARGEST_KERNEL}"
    elif isinstance(op, t.ResizeOp):
        scale = known_sizes(op.scale)
        if scale is not None and any(scale[i] > LARGEST_SCALE * scale[i + 1] for i in (0, 2)):
            yield f"scale {list(scale)} is above {LARGEST_SCALE}"
    elif isinstance(op, t.ConcatOp | t.ConcatShapeOp | s.CondIfOp | s.WhileLoopOp | t.CustomOp):
        yield from _lists(op)


def _numbers(op: Operation, name: str) -> Sequence[int] | None:
    """A list that an operator has as an attribute, or as an operand of known sizes."""
    if name in op.properties:
        return ints(op.properties[name])
    value = getattr(op, name, None) if isinstance(op, _WITH_SHAPES) else None
    return None if value is None else known_sizes(value)


_WITH_SHAPES = (t.MaxPool2dAdaptiveOp, t.AvgPool2dAdaptiveOp, t.Conv2dBlockScaledOp)


def _tensor(type_: TensorType) -> Iterator[str]:
    shape = dims(type_)
    if len(shape) > LARGEST_RANK:
        yield f"rank {len(shape)} is above {LARGEST_RANK}"
    if 0 in shape:
        yield "TOSA has no empty tensors"
    count = prod(size for size in shape if isinstance(size, int))
    held = type_.element_type
    each = -(-held.width.data // 8) if isinstance(held, IntegerType) else _BYTES.get(held, 1)
    if count * each > LARGEST_BYTES:
        yield f"a tensor of {count * each} bytes is above {LARGEST_BYTES}"


def _dilated(op: Operation) -> Iterator[str]:
    if isinstance(op, t.Conv2dBlockScaledOp):
        shape, dilation = dims(op.weight_data.type), known_sizes(op.dilation)
    else:
        shape, dilation = dims(op.operands[1].type), ints(op.properties["dilation"])
    spatial = shape[:2] if isinstance(op, t.DepthwiseConv2dOp) else shape[1:-1]
    for size, step in zip(spatial, dilation or (), strict=False):
        if isinstance(size, int) and size * step > LARGEST_KERNEL:
            yield f"a kernel of {size} with dilation {step} is above {LARGEST_KERNEL}"


def _lists(op: Operation) -> Iterator[str]:
    for what, count in (("inputs", len(op.operands)), ("outputs", len(op.results))):
        held = count - 1 if what == "inputs" and isinstance(op, s.CondIfOp) else count
        if held > LONGEST_LIST:
            yield f"{held} {what} are above {LONGEST_LIST}"
    depth, outer = 0, op if op.regions else None
    while outer is not None:
        depth += isinstance(outer, s.CondIfOp | s.WhileLoopOp)
        outer = outer.parent_op()
    if depth >= DEEPEST:
        yield f"{depth} graphs within each other are above {DEEPEST - 1}"
