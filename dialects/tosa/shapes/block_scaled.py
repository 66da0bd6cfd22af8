"""Shape rules of operators with data and scales as two tensors."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.codes import e8m0, payload_of_element
from stepwell.dialects.tosa.meaning.values import element_of
from stepwell.dialects.tosa.shapes.layout import repeated, reshaped
from stepwell.dialects.tosa.shapes.rules import (
    Expected,
    Shape,
    counts,
    need,
    ranked,
    same,
    shape_of,
    shaped,
    sizes_of,
)
from stepwell.dialects.tosa.shapes.windows import output_size
from stepwell.ir.dtypes import bf16, f16, f32
from stepwell.ir.sizes.size import UNKNOWN, Size
from stepwell.ir.types import Dim

BLOCK = 32


def scales_of(shape: Shape) -> Shape:
    """Return the shape of the scales for a shape of data."""
    if shape is None:
        return None
    need(bool(shape), "a scalar has no blocks")
    last = shape[-1]
    if isinstance(last, Size):
        return (*shape[:-1], UNKNOWN)
    need(last % BLOCK == 0, f"the last size is {last}, not a multiple of {BLOCK}")
    return (*shape[:-1], last // BLOCK)


def _block_of_32(op: object) -> None:
    case = op.block_size.data  # pyright: ignore
    need(case == "BLOCK_SIZE_32", f"the block size is {case}, not BLOCK_SIZE_32")


def _pair(data: SSAValue, scale: SSAValue, rank: int | None = None) -> Shape:
    """Check data and scales against each other, and return the data's shape."""
    shape = shape_of(data) if rank is None else ranked(data, rank, "the data")
    element = element_of(data)
    need(payload_of_element(element) is not None, f"{element} is not a block-scaled payload")
    need(element_of(scale) == e8m0, f"the scales are {element_of(scale)}, not {e8m0}")
    due, scale_shape = scales_of(shape), shape_of(scale)
    if due is not None and scale_shape is not None:
        fits = len(due) == len(scale_shape) and all(
            same(a, b) for a, b in zip(due, scale_shape, strict=True)
        )
        need(fits, f"the scales are {list(scale_shape)}, expected {list(due)}")
    return shape


@shaped(t.CastToBlockScaledOp)
def _cast_to(op: t.CastToBlockScaledOp) -> Sequence[Expected]:
    _block_of_32(op)
    shape = shape_of(op.input_data)
    element, given = element_of(op.output_data), element_of(op.input_data)
    need(given in (f32, bf16, f16), f"{given} is not a float that can be scaled in blocks")
    need(payload_of_element(element) is not None, f"{element} is not a block-scaled payload")
    return [(shape, None), (scales_of(shape), e8m0)]


@shaped(t.CastFromBlockScaledOp)
def _cast_from(op: t.CastFromBlockScaledOp) -> Sequence[Expected]:
    _block_of_32(op)
    return [(_pair(op.input_data, op.input_scale), None)]


@shaped(t.MatMulTBlockScaledOp)
def _matmul_t(op: t.MatMulTBlockScaledOp) -> Sequence[Expected]:
    _block_of_32(op)
    left = _pair(op.a_data, op.a_scale, 3)
    right = _pair(op.b_data, op.b_scale, 3)
    a, b = element_of(op.a_data), element_of(op.b_data)
    need(a == b, f"the payloads {a} and {b} differ; block-scaled types can be mixed")
    assert left is not None and right is not None
    need(same(left[2], right[2]), f"the contracted sizes {left[2]} and {right[2]} differ")
    need(same(left[0], right[0]) or right[0] == 1, f"the batches {left[0]} and {right[0]} differ")
    return [((left[0], left[1], right[1]), f32)]


@shaped(t.Conv2dBlockScaledOp)
def _conv2d(op: t.Conv2dBlockScaledOp) -> Sequence[Expected]:
    _block_of_32(op)
    image = _pair(op.input_data, op.input_scale, 4)
    weight = _pair(op.weight_data, op.weight_scale, 4)
    a, b = element_of(op.input_data), element_of(op.weight_data)
    need(a == b, f"the payloads {a} and {b} differ; block-scaled types can be mixed")
    need(payload_of_element(a) != "mxint8", "CONV2D_BLOCK_SCALED has no mxint8")
    assert image is not None and weight is not None
    need(same(image[3], weight[3]), f"the input has {image[3]} channels, the weight {weight[3]}")
    (size,) = ranked(op.bias, 1, "the bias")
    need(
        size == 1 or same(size, weight[0]), f"the bias has {size} elements for {weight[0]} channels"
    )
    pad = sizes_of(op.pad, "pad", 4)
    stride, dilation = sizes_of(op.stride, "stride", 2), sizes_of(op.dilation, "dilation", 2)
    dims: list[Dim] = [UNKNOWN, UNKNOWN]
    if pad is not None and stride is not None and dilation is not None:
        need(min(pad) >= 0, f"pad {list(pad)} has a negative element")
        dims = [
            output_size(
                image[i + 1], weight[i + 1], pad[2 * i] + pad[2 * i + 1], stride[i], dilation[i]
            )
            for i in range(2)
        ]
    return [((image[0], *dims, weight[0]), f32)]


@shaped(t.ReshapeBlockScaledOp)
def _reshape(op: t.ReshapeBlockScaledOp) -> Sequence[Expected]:
    scaled = op.block_size.data == "BLOCK_SIZE_32"
    counts(op, 3 if scaled else 2, 2 if scaled else 1)
    shape = _pair(op.operands[0], op.operands[1]) if scaled else shape_of(op.operands[0])
    sizes = sizes_of(op.operands[-1], "the shape")
    need(sizes is None or not scaled or bool(sizes), "a scalar has no blocks")
    result = reshaped(shape, sizes)
    expected: list[Expected] = [(result, element_of(op.operands[0]))]
    if scaled:
        expected.append((scales_of(result), e8m0))
    return expected


@shaped(t.RowGatherBlockScaledOp)
def _row_gather(op: t.RowGatherBlockScaledOp) -> Sequence[Expected]:
    scaled = op.block_size.data == "BLOCK_SIZE_32"
    counts(op, 4 if scaled else 3, 2 if scaled else 1)
    if scaled:
        _pair(op.operands[0], op.operands[1], 3)
    batch, _, channels = ranked(op.operands[0], 3, "the values")
    indices = ranked(op.operands[-2], 2, "the indices")
    need(same(indices[0], batch), f"the batches {batch} and {indices[0]} differ")
    rows = repeated(indices[1], op.operands[-1])
    expected: list[Expected] = [((batch, rows, channels), element_of(op.operands[0]))]
    if scaled:
        expected.append((scales_of((batch, rows, channels)), e8m0))
    return expected
