"""Lowerings of functions of one quantized value, and comparisons: TABLE, GATHER and RESCALE.

A function of a single int8 value is a TABLE of the float ops' results, bit for bit; a chain of
casts only is a RESCALE. A 16-bit TABLE has 513 entries, one per 128 integers, and interpolates
linearly between them. Entries finer than the result's integers avoid the loss of rounding them. The
TABLE and the float graph are both evaluated on all 65536 integers: the TABLE is used if they are
within one unit everywhere. Otherwise (a reciprocal near zero, an exponential at a coarse scale) all
results are stored, 128 KiB, and GATHER reads them exactly.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.quant import DequantizeCast, StorageCast
from stepwell.dialects.quant.ops import dequantize
from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.dialects.tosa import generated as t
from stepwell.ir.core import weight_key
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.dtypes import i1, i8, i16, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound
from stepwell.ir.types import dims, is_static
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, no_refusal, refuse
from stepwell.translate.lowerings.tosa.integers.elementwise import ONE
from stepwell.translate.lowerings.tosa.integers.values import Integers, delivered, rescaled
from stepwell.translate.lowerings.tosa.values import Value
from stepwell.translate.quantized.functions import (
    Chain,
    byte_chain,
    chain_of,
    is_one_element,
    table_of,
)
from stepwell.translate.quantized.recognize import Activation, Use, activation, not_integers
from stepwell.translate.rewrites.tosa.integers.integers import (
    IN_UNITS,
    beyond_rescale,
    is_rescaled,
    requantized,
    stored,
    width,
)
from stepwell.translate.rewrites.tosa.operators.building import Builder, elements

BYTES = torch.arange(-128, 128, dtype=torch.int16).to(torch.int8)
"""Every int8."""


def looked_up(x: Value, entries: torch.Tensor, dtype: Any = i8) -> Value:
    """Insert a TABLE operator that looks up each element."""
    return x.made(t.TableOp, x.shape, x.b.constant(entries), dtype=dtype)


def _typed(y: Value, op: Any) -> Value:
    return Value(y.b.rw.insert(StorageCast(y.ssa, op.result.type)).results[0], y.b)


# -- between two casts -------------------------------------------------------------------------


@lowers(
    "quant.qcast",
    to="tosa",
    check="none",
    bound=IN_UNITS,
    unless=lambda op: not isinstance(op.input.owner, DequantizeCast),
    sample="""
        %a = quant.dcast %x : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
        %y = quant.qcast %a : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 1.0>>
    """,
    name="lower-int8-requantize",
)
def int8_requantize(x: Value, *, op: Any, b: Builder) -> Value:
    """Lower a change of quantization to one RESCALE."""
    found = no_refusal(activation(op.input, width(op.input)))
    result_quantization = quantization(op.result.type)
    assert result_quantization is not None
    reason = not_integers(result_quantization, 16 if result_quantization.bits == 16 else 8)
    if reason is not None:
        refuse(f"the result is quantized {reason}")
    factor = found.held.scale / result_quantization.scale
    no_refusal(beyond_rescale(factor, 1 << found.held.bits))
    y = requantized(stored(found.value, b), found.held, result_quantization, b)
    return _typed(Value(y, b), op)


@lowers(
    "quant.qcast",
    to="tosa",
    check="none",
    bound=EXACT,
    unless=lambda op: isinstance(op.input.owner, DequantizeCast),
    sample=ONE.format("tanh.default(%a)", 4, 4, 4),
    name="lower-int8-function",
)
def int8_function(x: Value, *, op: Any, b: Builder) -> Value | None:
    """Lower a chain of elementwise ops between casts to one TABLE."""
    chain = no_refusal(byte_chain(op))
    if chain is None:
        return None
    value = Value(stored(chain.source, b), b)
    return _typed(looked_up(value, table_of(chain, b.rw.program)), op)


STEP = 128
"""Integers between neighboring entries of a 16-bit TABLE."""


@lowers(
    "quant.qcast",
    to="tosa",
    check="none",
    takes_empty=False,
    bound=Bound(units=1, reason="lines between 513 entries, tried on every value"),
    sample="""
        %a = quant.dcast %x : tensor<4x!quant.uniform<i16:f32, 0.001>> to tensor<4xf32>
        %s = aten.sigmoid.default(%a) : (tensor<4xf32>) -> tensor<4xf32>
        %y = quant.qcast %s : tensor<4xf32> to tensor<4x!quant.uniform<i16:f32, 0.0001>>
    """,
    name="lower-int16-function",
)
def int16_function(x: Value, *, op: Any, b: Builder) -> Value | None:
    """Lower to a TABLE and a RESCALE if linear interpolation is accurate enough, else GATHER."""
    chain = chain_of(op)
    if chain is None or len(chain.ops) == 1 or dims(chain.source.type) != dims(op.result.type):
        return None
    if not is_static(op.result.type):
        refuse("a size is symbolic; TOSA's DIM takes no quantized tensor")
    for side in (chain.source, op.result):
        side_quantization = quantization(side.type)
        assert side_quantization is not None
        if reason := not_integers(side_quantization, 16):
            refuse(f"a value is quantized {reason}")
        if side_quantization.zero_point:
            refuse("TOSA takes zero points for 8-bit integers only")
    value = Value(stored(chain.source, b), b)
    wanted = every_result(chain, b.rw.program)
    fitted = entries_for(wanted)
    if fitted is None:
        return _typed(_gathered(value, wanted), op)
    entries, gain = fitted
    lines = looked_up(value, entries, i32)
    return _typed(rescaled(lines, 1.0 / (STEP * gain), 0, i16), op)


def every_result(chain: Chain, program: Program) -> torch.Tensor:
    """Return int64 [65536]: the results of the ops for -32768 … 32767."""
    rank = max(len(dims(chain.source.type)), 1)
    codes = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).reshape(*[1] * (rank - 1), -1)
    environment: dict[SSAValue, Any] = {chain.source: codes}
    interpreter = Interpreter(program.weights)
    with torch.no_grad():
        for op in (*chain.ops, chain.cast):
            interpreter.step(op, environment)
    return environment[chain.cast.result].reshape(-1).long()


def entries_for(wanted: torch.Tensor) -> tuple[torch.Tensor, int] | None:
    """Return a TABLE's entries and their scale relative to the result; None if it is inaccurate."""
    exact = wanted[::STEP].double()
    beyond = exact[-1] + (wanted[-1] - exact[-1]) * (STEP / (STEP - 1))
    exact = torch.cat([exact, beyond[None]])
    gain = 1
    while gain < STEP and float(exact.abs().max()) * 2 * gain < 1 << 15:
        gain *= 2
    entries = (exact * gain).round().clamp(-(1 << 15), (1 << 15) - 1).long()
    slopes = entries.diff()
    if int(slopes.abs().max()) >= 1 << 15:
        return None
    lines = entries[:-1, None] * STEP + slopes[:, None] * torch.arange(STEP)
    found = torch.floor(lines.reshape(-1) / (STEP * gain) + 0.5)
    return (entries.to(torch.int16), gain) if (found - wanted).abs().max() <= 1 else None


def _gathered(x: Value, wanted: torch.Tensor) -> Value:
    """Gather result x + 32768 from the table of all 65536 results."""
    count = elements(x.shape)
    rows = rescaled(x.reshape(1, count), 1.0) + (1 << 15)
    table = x.tensor(wanted.to(torch.int16).reshape(1, -1, 1))
    return table.made(t.GatherOp, (1, count, 1), rows).reshape(*x.shape)


# -- products and comparisons with numbers -----------------------------------------------------


@lowers(
    "aten.mul.Tensor",
    to="tosa",
    quantized_operands=2,
    takes_symbols=False,
    unless=lambda op: width(op.operands[0]) != 16,
    sample="""
        %n = stepwell.weight <"n#ones"> "constant" : tensor<1xi16>
        %t = quant.scast %n : tensor<1xi16> to tensor<1x!quant.uniform<i16:f32, 0.25>>
        %c = quant.dcast %t : tensor<1x!quant.uniform<i16:f32, 0.25>> to tensor<1xf32>
        %a = quant.dcast %x : tensor<4x!quant.uniform<i16:f32, 0.001>> to tensor<4xf32>
        %z = aten.mul.Tensor(%a, %c) : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
        %y = quant.qcast %z : tensor<4xf32> to tensor<4x!quant.uniform<i16:f32, 0.0001>>
    """,
)
def int16_scale(x: Integers, other: Integers, *, use: Use, out: Out) -> Value | None:
    """Lower a product of 16-bit integers with one positive number to one RESCALE.

    Examples are 1/n of a mean and attention's 1/√d. As a product they would be read, multiplied and
    rescaled.
    """
    value, number = (x, other) if is_one_element(other.ssa) else (other, x)
    if not is_one_element(number.ssa) or value.shape != out.shape:
        return None
    maker = number.ssa.owner
    assert isinstance(maker, Operation)
    key = weight_key(maker.operands[0])
    assert key is not None
    real = float(dequantize(x.b.rw.weights.get(key), number.held).reshape(()))
    factor = value.held.scale * real / use.held.scale
    if not (factor > 0 and is_rescaled(factor, 2.0**15)):
        refuse("the number is not positive, or outside RESCALE's range")
    return delivered(value.stored(), factor, use)


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    f"aten.{compare.__name__}.{form}": compare
    for form in ("Tensor", "Scalar")
    for compare in (operator.eq, operator.ne, operator.gt, operator.ge, operator.lt, operator.le)
}


@lowers(
    COMPARISONS,
    to="tosa",
    check="none",
    bound=EXACT,
    unless=lambda op: not isinstance(op.operands[0].owner, DequantizeCast),
    sample="""
        %a = quant.dcast %x : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
        %y = aten.eq.Tensor(%a, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
    """,
    name="lower-int8-comparison",
)
def int8_comparison(
    x: Value, *, form: Callable[[Any, Any], Any], op: Any, out: Out, b: Builder
) -> Value:
    """Compare integers of two values of one scale, or compare with a number by a TABLE.

    For each of 256 inputs, the TABLE has the result of the float comparison, bit for bit.
    """
    bits = width(op.operands[0])
    first = no_refusal(activation(op.operands[0], bits))
    if not all(
        is_static(v.type) for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)
    ):
        refuse("the shape is symbolic")
    is_alone = len(op.operands) == 1
    number = op.arg("other") if is_alone else _number(op.operands[1], b.rw.program)
    if isinstance(number, int | float):
        if bits != 8:
            refuse("a TABLE of 16-bit integers interpolates: it returns no booleans")
        if x.shape != out.shape:
            refuse("the number has a shape to which the value is broadcast")
        answers = form(dequantize(BYTES, first.held), float(number)).to(torch.int8)
        return looked_up(Value(stored(first.value, b), b), answers).cast(i1)
    second = no_refusal(activation(op.operands[1], bits))
    if _meaning(first.held) != _meaning(second.held):
        refuse("the operands have several scales, whose integers have no common order")
    return _compared(form, first, second, out, b)


def _compared(form: Any, first: Activation, second: Activation, out: Out, b: Builder) -> Value:
    sides = [rescaled(Value(stored(x.value, b), b), 1.0) for x in (first, second)]
    if form in (operator.lt, operator.le):
        sides.reverse()
    cls = {operator.eq: t.EqualOp, operator.ne: t.EqualOp}.get(
        form, t.GreaterOp if form in (operator.gt, operator.lt) else t.GreaterEqualOp
    )
    one, another = (side.of_rank(len(out.shape)) for side in sides)
    y = one.made(cls, out.shape, another, dtype=i1)
    return ~y if form is operator.ne else y


def _meaning(parameters: Quantization) -> tuple[object, ...]:
    return parameters.scales, parameters.zero_points, parameters.bits, parameters.signed


def _number(value: SSAValue, program: Program) -> float | None:
    """Return the real value of a constant of one element, quantized or not."""
    maker = value.owner
    held = quantization(maker.input.type) if isinstance(maker, DequantizeCast) else None
    if isinstance(maker, DequantizeCast) and isinstance(maker.input.owner, StorageCast):
        key = weight_key(maker.input.owner.input)
    else:
        key = weight_key(value)
    if key is None:
        return None
    constant = program.weights.get(key)
    if constant.numel() != 1:
        return None
    return float((constant if held is None else dequantize(constant, held)).reshape(()))


RULES = lowerings_of(__name__)
