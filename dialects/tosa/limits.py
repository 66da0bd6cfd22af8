"""The limits of a level: ranks, kernels, strides, scales, lists, nesting and sizes in bytes.

No tensor may be empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class LevelLimits:
    """The maximum values of a level.

    Source: TOSA 1.1, section 1.6 (levels); a tensor has less than `2 ** log2_size` bytes.
    """

    name: str
    rank: int
    kernel: int
    stride: int
    scale: int
    log2_size: int
    nesting: int
    list: int
    shape: int

    @property
    def bytes(self) -> int:
        """Return the maximum size of a tensor in bytes."""
        return (1 << self.log2_size) - 1


EIGHT_K = LevelLimits("8K", 6, 8192, 8192, 256, 31, 6, 64, 16)
NONE = LevelLimits("none", LARGEST_RANK, (1 << 31) - 1, (1 << 31) - 1, 2048, 63, 256, 256, 64)
"""The limits of an implementation that declares no level."""

_BOUNDED = {"kernel": "kernel", "stride": "stride", "pad": "kernel", "out_pad": "kernel"}
_CONVOLUTIONS = (t.Conv2dOp, t.DepthwiseConv2dOp, t.Conv3dOp, t.Conv2dBlockScaledOp)
_BYTES: dict[Attribute, int] = {f32: 4, f16: 2, bf16: 2}


def limits(op: Operation, level: LevelLimits = EIGHT_K) -> str | None:
    """Return why an operator exceeds the limits of a TOSA level, or None."""
    return next(_excesses(op, level), None)


def _excesses(op: Operation, level: LevelLimits) -> Iterator[str]:
    for value in (*op.operands, *op.results):
        if isinstance(value.type, TensorType):
            yield from tensor_limits(value.type, level)
        elif isinstance(value.type, ShapeType) and value.type.rank.data > level.shape:
            yield f"a shape of {value.type.rank.data} sizes is above {level.shape}"
    for name, what in _BOUNDED.items():
        numbers, most = _numbers(op, name), getattr(level, what)
        if numbers and max(numbers) > most:
            yield f"{name} {list(numbers)} is above {most}"
    if isinstance(op, _CONVOLUTIONS):
        yield from _dilated(op, level)
    elif isinstance(op, t.TransposeConv2dOp):
        kernel = dims(op.weight.type)[1:3]
        if any(isinstance(size, int) and size > level.kernel for size in kernel):
            yield f"a kernel of {list(kernel)} is above {level.kernel}"
    elif isinstance(op, t.FFT2dOp | t.RFFT2dOp):
        image = dims(op.operands[0].type)[1:]
        if any(isinstance(size, int) and size > level.kernel for size in image):
            yield f"a transform of {list(image)} is above {level.kernel}"
    elif isinstance(op, t.ResizeOp):
        scale = known_sizes(op.scale)
        if scale is not None and any(scale[i] > level.scale * scale[i + 1] for i in (0, 2)):
            yield f"scale {list(scale)} is above {level.scale}"
    elif isinstance(op, t.ConcatOp | t.ConcatShapeOp | s.CondIfOp | s.WhileLoopOp | t.CustomOp):
        yield from _lists(op, level)


def _numbers(op: Operation, name: str) -> Sequence[int] | None:
    """Return a list that an operator has as an attribute, or as an operand of constant sizes."""
    if name in op.properties:
        return ints(op.properties[name])
    value = getattr(op, name, None) if isinstance(op, _WITH_SHAPES) else None
    return None if value is None else known_sizes(value)


_WITH_SHAPES = (t.MaxPool2dAdaptiveOp, t.AvgPool2dAdaptiveOp, t.Conv2dBlockScaledOp)


def tensor_limits(type_: TensorType, level: LevelLimits) -> Iterator[str]:
    """Yield why a level does not support a tensor type."""
    shape = dims(type_)
    if len(shape) > level.rank:
        yield f"rank {len(shape)} is above {level.rank}"
    if 0 in shape:
        yield "TOSA has no empty tensors"
    count = prod(size for size in shape if isinstance(size, int))
    element_type = type_.element_type
    each = (
        -(-element_type.width.data // 8)
        if isinstance(element_type, IntegerType)
        else _BYTES.get(element_type, 1)
    )
    if count * each > level.bytes:
        yield f"a tensor of {count * each} bytes is above {level.bytes}"


def _dilated(op: Operation, level: LevelLimits) -> Iterator[str]:
    if isinstance(op, t.Conv2dBlockScaledOp):
        shape, dilation = dims(op.weight_data.type), known_sizes(op.dilation)
    else:
        shape, dilation = dims(op.operands[1].type), ints(op.properties["dilation"])
    spatial = shape[:2] if isinstance(op, t.DepthwiseConv2dOp) else shape[1:-1]
    for size, step in zip(spatial, dilation or (), strict=False):
        if isinstance(size, int) and size * step > level.kernel:
            yield f"a kernel of {size} with dilation {step} is above {level.kernel}"


def _lists(op: Operation, level: LevelLimits) -> Iterator[str]:
    for what, count in (("inputs", len(op.operands)), ("outputs", len(op.results))):
        held = count - 1 if what == "inputs" and isinstance(op, s.CondIfOp) else count
        if held > level.list:
            yield f"{held} {what} are above {level.list}"
    depth, outer = 0, op if op.regions else None
    while outer is not None:
        depth += isinstance(outer, s.CondIfOp | s.WhileLoopOp)
        outer = outer.parent_op()
    if depth >= level.nesting:
        yield f"{depth} graphs within each other are above {level.nesting - 1}"
