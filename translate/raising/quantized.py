"""Raising of nodes on quantized types to a float program between dequantize and quantize.

An XNNPACK node on integers computes on the reals that they represent and rounds once. It is
therefore raised to the same node on reals, its *twin*, between casts, as in PT2E's quantized
programs. A lowering recognizes this as the quantized node again; PyTorch's result differs by one or
two roundings.

Before:
    %y = xnnpack.add(%a, %b) : (tensor<2x!quant.uniform<i8:f32, 0.5>>, …) -> tensor<2x!quant…>
After:
    %x = quantized_decomposed.dequantize_per_tensor.default(%a, 0.5, 0, -128, 127, i8)
    …
    %s = aten.add.Tensor(%x, %z)
    %y = quantized_decomposed.quantize_per_tensor.default(%s, 0.25, 3, -128, 127, i8)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, cast

import torch
import torch.nn.functional as F
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.dialects.xnnpack import (
    Convolution2d,
    DepthwiseConvolution2d,
    FullyConnected,
    XnnpackOp,
)
from stepwell.dialects.xnnpack.datatypes import DynamicInt8Type
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import f32, i8
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import dims, element, with_element
from stepwell.translate.quantized.untyped import dequantized, quantized
from stepwell.translate.rewrites.quant.movement import moved, only_moves, permutation

_OF = "quantized_decomposed"
_INT8 = (-128, 127)
_EPS = 2.0**-23
Casts = dict[SSAValue, tuple[SSAValue, Quantization]]
"""Reals → the stored integers that they were dequantized from, and their quantization."""
Call = Callable[..., Any]
"""(overload, arguments) to the result of a call that is recorded as it is."""


def is_quantized(op: XnnpackOp) -> bool:
    """Whether a node reads or returns quantized integers."""
    return any(not _is_plain(value.type) for value in (*op.operands, *op.results))


def _is_plain(type_: Attribute) -> bool:
    return quantization(type_) is None and not isinstance(element(type_), DynamicInt8Type)


def real_type(type_: Attribute) -> Attribute:
    """Return the type of the reals that a quantized tensor represents."""
    type_quantization = quantization(type_)
    if type_quantization is not None:
        return with_element(type_, type_quantization.expressed)
    return type_ if _is_plain(type_) else with_element(type_, f32)


def twin(op: XnnpackOp, operands: Sequence[SSAValue]) -> XnnpackOp:
    """Return the equivalent node on reals; the caller drops its references."""
    types = [real_type(result.type) for result in op.results]
    return type(op).create(operands=operands, result_types=types, properties=dict(op.properties))


def spell_movements(program: Program, casts: Casts) -> None:
    """Quantize the results of data movement like its operands, as PT2E does, constants first.

    This changes no value: a real that is exactly represented is rounded to itself.
    """
    for op in list(program.module.walk()):
        if not only_moves(op) or any(value not in casts for _, value in moved(op)):
            continue
        stored, held = casts[op.operands[0]]
        order, key = permutation(op), weight_key(stored)
        rw = Rewriter(op, program)
        if key is not None and order is not None:
            derived = program.weights.derive("cmsis.permute", [key], permutation=list(order))
            blocks = tuple((order.index(axis), block) for axis, block in held.blocks)
            made = replace(held, blocks=blocks)
            value = dequantized(rw, rw.weight(derived), made)
            casts[value] = value, made
            rw.replace(op, [value])
        elif held.is_per_tensor and all(casts[value][1] == held for _, value in moved(op)):
            anchor = op.next_op
            assert anchor is not None, "a block must end in a terminator"
            for result in op.results:
                behind = Rewriter(anchor, program)
                integers = quantized(behind, result, held)
                value = dequantized(behind, integers, held)
                for made in (integers.owner, value.owner):
                    cast(Operation, made).location = op.location
                readers = [use for use in result.uses if use.operation is not integers.owner]
                for use in readers:
                    use.operation.operands[use.index] = value
                casts[value] = integers, held


def at_run_time(b: Rewriter, value: SSAValue, shared: int) -> SSAValue | str:
    """Quantize a float tensor dynamically; the last `shared` axes have one scale."""
    shape = dims(value.type)
    limits = (*_INT8, i8)
    if shared == 1:
        choose = op_class(f"{_OF}.choose_qparams_per_token_asymmetric.default")
        measured = b.insert(choose.make(value, i8)).results
        into, back = (
            op_class(f"{_OF}.{verb}_per_token.default") for verb in ("quantize", "dequantize")
        )
        stored = b.insert(into.make(value, *measured, *limits)).results[0]
        return b.insert(back.make(stored, *measured, *limits, f32)).results[0]
    if any(size != 1 for size in shape[: len(shape) - shared]):
        return "each image has a scale of its own"
    choose = op_class(f"{_OF}.choose_qparams.tensor")
    measured = b.insert(choose.make(value, *_INT8, _EPS, i8)).results
    into, back = (
        op_class(f"{_OF}.{verb}_per_tensor.tensor") for verb in ("quantize", "dequantize")
    )
    stored = b.insert(into.make(value, *measured, *limits)).results[0]
    return b.insert(back.make(stored, *measured, *limits)).results[0]


def bias_in_reals(b: Rewriter, op: XnnpackOp, operands: list[SSAValue]) -> None:
    """Convert a bias in units of the weight's scales, next to floats and a quantized weight."""
    held = quantization(op.operands[1].type) if len(op.operands) == 3 else None
    if held is None or not _is_plain(op.operands[0].type):
        return
    key = weight_key(operands[2])
    assert key is not None, "XNNPACK packs constants"
    bias = b.weights.get(key).double() * held.scale_values(torch.float64)
    operands[2] = b.constant(bias.float(), "bias")


def _fully_connected(op: XnnpackOp, args: Sequence[Any], call: Call) -> Any:
    given, weight, *bias = args
    if op.flag("transpose_weights"):
        weight = weight.permute(1, 0)
    return _clamped(op, call(torch.ops.aten.linear.default, given, weight, *bias))


def _convolution(
    op: Convolution2d | DepthwiseConvolution2d, args: Sequence[Any], call: Call
) -> Any:
    image, filter_, *bias = args
    if isinstance(op, DepthwiseConvolution2d):
        filter_, groups = filter_.permute(3, 0, 1, 2), image.shape[3]
    else:
        filter_, groups = filter_.permute(0, 3, 1, 2), op.integer("groups", 1)
    image = image.permute(0, 3, 1, 2)
    top, right, bottom, left = op.paddings
    if (top, left) != (bottom, right):
        image, top, left = F.pad(image, (left, right, top, bottom)), 0, 0
    window = (list(op.pair("stride")), [top, left], list(op.pair("dilation")))
    made = call(
        torch.ops.aten.convolution.default,
        *(image, filter_, bias[0] if bias else None, *window, False, [0, 0], groups),
    )
    return _clamped(op, made).permute(0, 2, 3, 1)


def _clamped(op: XnnpackOp, value: Any) -> Any:
    """Return a layer's result within the node's bounds, in the form that models use."""
    low, high = op.output_range or (-inf, inf)
    if (low, high) == (0.0, inf):
        return value.relu()
    if (low, high) == (-inf, inf):
        return value
    return value.clamp(None if low == -inf else low, None if high == inf else high)


def whole(op: XnnpackOp) -> Callable[[Any, Sequence[Any], Call], Any] | None:
    """Return a function that computes a float layer by one operator, which lowerings recognize.

    The interpreter's rules would add a bias separately, and PyTorch would decompose a `linear`.
    """
    held = element(op.output.type)
    if held != f32 or any(element(value.type) != f32 for value in op.operands):
        return None  # Sums of halves are accumulated in single precision, as in the rules.
    return _WHOLE.get(type(op))


_WHOLE: dict[type[XnnpackOp], Callable[[Any, Sequence[Any], Call], Any]] = {
    Convolution2d: _convolution,
    DepthwiseConvolution2d: _convolution,
    FullyConnected: _fully_connected,
}
