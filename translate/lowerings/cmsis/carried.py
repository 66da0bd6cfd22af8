"""Lower ops that only select or compare numbers to the same ops on the stored integers.

A nearest-neighbor resize, a selection by a mask, a look-up and a minimum return elements of their
operands unchanged. A comparison and an argmax have the same result for the integers, which have the
order of the reals. The library has none of these ops: ExecuTorch's portable kernels run them on
bytes without converting to floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from xdsl.ir import SSAValue

from stepwell.dialects.aten.interpretation import plan_of
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.level import COMPARING, EXTREMES
from stepwell.dialects.quant import StorageCast
from stepwell.dialects.quant.ops import dequantize
from stepwell.dialects.quant.types import Quantization
from stepwell.ir.rewriting.rewrite import EXACT, Refusal, Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.types import dims, element, with_element
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.cmsis.elementwise import requantized
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, no_refusal, refuse
from stepwell.translate.quantized.layers import Layer, Parts
from stepwell.translate.quantized.recognize import Activation, Use, activation, quantized_source
from stepwell.translate.rewrites.cmsis.layout.reshape import (
    moved_bytes,
    raw,
    reshaped,
    to_nchw,
    to_nhwc,
)
from stepwell.translate.rewrites.cmsis.operators.broadcast import EXPAND
from stepwell.translate.rewrites.cmsis.operators.convolution import not_fixed
from stepwell.translate.rewrites.cmsis.operators.rescale import rescaled

SELECT = op_class("aten.index_select.default")
PICKED: dict[str, slice] = {
    **dict.fromkeys(
        ("aten.gather.default", "aten.index.Tensor", "aten.embedding.default"), slice(1)
    ),
    **dict.fromkeys(EXTREMES, slice(1)),
    "aten.where.self": slice(1, 3),
}
"""Op → the slice of its operands that it selects from."""


def _quantized(op: SchemaOp, place: slice) -> Parts | Refusal | None:
    """Match quantized operands of static shape; return None if all operands are floats."""
    values = op.operands[place]
    if all(quantized_source(value) is None for value in values):
        return None
    return not_fixed(*values) or Parts(values)


@lowers(
    *PICKED,
    to="cmsis",
    quantized_operands=lambda op: _quantized(op, PICKED[op.name]),
    bound=EXACT,
    sample="""
        %a = quant.dcast %x : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xf32>
        %m = aten.amin.default(%a, [0], true) : (tensor<2x4xf32>) -> tensor<1x4xf32>
        %q = quant.qcast %m : tensor<1x4xf32> to tensor<1x4x!quant.uniform<i8:f32, 0.5:3>>
    """,
)
def pick(*given: Activation, op: SchemaOp, layer: Layer, b: Rewriter) -> Callable[[Use], SSAValue]:
    """Apply an op that selects elements to the stored integers, all of one quantization; add a
    table lookup if the result has another.
    """
    place, alike = PICKED[op.name], len({x.held for x in given}) == 1

    def of_use(use: Use) -> SSAValue:
        values = [x.value if alike else requantized(b, x.value, use) for x in given]
        operands = list(op.operands)
        operands[place] = [raw(b, value) for value in values]
        type_ = element(values[0].type)
        stored = with_element(op.results[0].type, element(operands[place][0].type))
        made = b.insert(remade(op, operands, [stored]))
        typed = b.insert(StorageCast(made.results[0], with_element(stored, type_))).results[0]
        return rescaled(b, typed, use)

    return of_use


# -- nearest-neighbor resizes -------------------------------------------------------------------


@lowers(
    *(
        f"aten.{name}{rank}d.{form}"
        for name in ("upsample_nearest", "_upsample_nearest_exact")
        for rank in (1, 2)
        for form in ("vec", "default")
    ),
    to="cmsis",
    quantized_operands=lambda op: _quantized(op, slice(1)),
    bound=EXACT,
    sample="""
        %a = quant.dcast %x : tensor<1x1x2x2x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x1x2x2xf32>
        %m = aten.upsample_nearest2d.default(%a, [4, 2]) : (tensor<1x1x2x2xf32>) -> tensor<1x1x4x2xf32>
        %q = quant.qcast %m : tensor<1x1x4x2xf32> to tensor<1x1x4x2x!quant.uniform<i8:f32, 0.5:3>>
    """,
)
def nearest(x: Activation, *, op: SchemaOp, layer: Layer, b: Rewriter) -> Callable[[Use], SSAValue]:
    """Repeat rows and columns of NHWC for integer factors; otherwise gather axis by axis."""
    places = _places(op)
    given = [torch.arange(size) for size in cast("tuple[int, ...]", dims(x.value.type)[2:])]
    factors = [len(at) // len(whole) for at, whole in zip(places, given, strict=True)]
    repeats = all(
        torch.equal(at, whole.repeat_interleave(factor))
        for at, whole, factor in zip(places, given, factors, strict=True)
    )
    value = x.value
    if repeats and len(places) == 2:
        value = _repeated(b, value, (factors[0], factors[1]))
    else:
        for axis, (at, whole) in enumerate(zip(places, given, strict=True), 2):
            if not torch.equal(at, whole):
                shape = [*dims(value.type)]
                shape[axis] = len(at)
                index = b.constant(at, "places")
                value = moved_bytes(b, value, SELECT, shape, dim=axis, index=index)
    return lambda use: rescaled(b, value, use)


def _places(op: SchemaOp) -> list[torch.Tensor]:
    """Return PyTorch's source index of each result index, for each axis of an image."""
    sides = cast("tuple[int, ...]", dims(op.operands[0].type)[2:])
    tensors: list[torch.Tensor] = []
    overload, count = plan_of(type(op)).overload, len(sides)
    for axis, size in enumerate(sides):
        line = torch.arange(size, dtype=torch.float32)
        image = line.reshape(*(size if at == axis else 1 for at in range(-2, count))).expand(
            1, 1, *sides
        )
        made = overload(image, *(op.arg(a.name) for a in op.SCHEMA.arguments[1:]))
        tensors.append(made[0, 0].movedim(axis, 0).reshape(made.shape[2 + axis], -1)[:, 0].long())
    return tensors


def _repeated(b: Rewriter, value: SSAValue, factors: tuple[int, int]) -> SSAValue:
    """Repeat rows and columns of an NHWC image, the layout between convolutions."""
    image = to_nhwc(b, value)
    n, h, w, c = cast("tuple[int, ...]", dims(image.type))
    down, across = factors
    apart, whole = reshaped(b, image, (n, h, 1, w, 1, c)), [n, h, down, w, across, c]
    spread = moved_bytes(b, apart, EXPAND, whole, size=whole)
    return to_nchw(b, reshaped(b, spread, (n, h * down, w * across, c)))


# -- order -------------------------------------------------------------------------------------


def _of_one_scale(op: SchemaOp) -> tuple[SSAValue, ...]:
    """Return the quantized operands of a comparison or selection; refuse operands whose integers
    are not ordered like the real numbers.
    """
    read = op.operands[: 2 if op.name.endswith(".Tensor") else 1]
    activations = [no_refusal(activation(value)) for value in read]
    if len({x.held for x in activations}) != 1:
        refuse("the operands have two scales, so that their integers do not compare")
    if dequantize(_CODES, activations[0].held).unique().numel() != len(_CODES):
        refuse(f"a scale of {activations[0].held.scale:g} maps different integers to equal reals")
    return tuple(x.value for x in activations)


_CODES = torch.arange(-128, 128, dtype=torch.int16).to(torch.int8)


@lowers(
    *COMPARING,
    to="cmsis",
    check="none",
    bound=EXACT,
    name="compare-integers",
    sample="""
        %a = quant.dcast %x : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xf32>
        %m = aten.argmax.default(%a, 1) : (tensor<2x4xf32>) -> tensor<2xi64>
    """,
)
def compare(*_: Any, op: SchemaOp, b: Rewriter) -> Value | None:
    """Compare the stored integers; a number in the comparison becomes an equivalent integer."""
    if quantized_source(op.operands[0]) is None:
        return None
    values = _of_one_scale(op)
    given = op.present()
    for name, value in zip(("self", "other"), values, strict=False):
        given[name] = raw(b, value)
    if op.name.endswith(".Scalar"):
        quantization = cast(Quantization, cast(Any, element(values[0].type)).data)
        given["other"] = _threshold(op, quantization)
    made = type(op).from_arguments(given, [op.results[0].type])
    return Value(b.insert(made).results[0], b)


def _threshold(op: SchemaOp, quantization: Quantization) -> int:
    """Return the integer that is equivalent to a number in a comparison, for all stored values."""
    number = op.arg("other")
    if not isinstance(number, int | float):
        refuse("the number in the comparison is known only at run time")
    overload = plan_of(type(op)).overload
    wanted = overload(dequantize(_CODES, quantization), number)
    codes = (code for code in range(-128, 128) if torch.equal(overload(_CODES, code), wanted))
    code = next(codes, None)
    if code is not None:
        return code
    return refuse(
        f"no integer compares with the operand's integers as {number:g} does with the reals"
    )


RULES = lowerings_of(__name__)
