"""A function of one int16 value: a TABLE that interpolates where that is good enough, or GATHER.

TABLE of 16 bits holds 513 entries, one for each 128 integers, and draws lines between them; finer
entries than the result's integers keep what rounding them would lose.  Both it and the float graph
are evaluated on all 65536 integers: where they are within one unit everywhere the TABLE serves.
Otherwise (a reciprocal near zero, an exponential at a coarse scale) every result is stored, 128 KiB
of them, and GATHER reads them exactly.

Before:
    %a = quant.dcast %x : tensor<4x!quant.uniform<i16:f32, 0.001>> to tensor<4xf32>
    %s = aten.sigmoid.default(%a) : (tensor<4xf32>) -> tensor<4xf32>
    %y = quant.qcast %s : tensor<4xf32> to tensor<4x!quant.uniform<i16:f32, 0.0001>>
After:
    %0 = quant.scast %x : tensor<4x!quant.uniform<i16:f32, 0.001>> to tensor<4xi16>
    %1 = tosa.const_shape {values = dense<[1, 4]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %2 = tosa.reshape %0, %1 : (tensor<4xi16>, !tosa.shape<2>) -> tensor<1x4xi16>
    %3 = tosa.rescale %2, dense<1073741824>, dense<30>, dense<0>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x4xi16>, tensor<1xi32>, tensor<1xi8>, tensor<1xi16>, tensor<1xi32>) -> tensor<1x4xi32>
    %4 = tosa.add %3, dense<32768> : (tensor<1x4xi32>, tensor<1x1xi32>) -> tensor<1x4xi32>
    %5 = stepwell.weight <"constant#28c582169f45"> "constant" : tensor<1x65536x1xi16>
    %6 = tosa.gather %5, %4 : (tensor<1x65536x1xi16>, tensor<1x4xi32>) -> tensor<1x4x1xi16>
    %7 = tosa.const_shape {values = dense<4> : tensor<1xindex>} : () -> !tosa.shape<1>
    %8 = tosa.reshape %6, %7 : (tensor<1x4x1xi16>, !tosa.shape<1>) -> tensor<4xi16>
    %y = quant.scast %8 : tensor<4xi16> to tensor<4x!quant.uniform<i16:f32, 0.0001>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.quant import QuantizeCast, StorageCast
from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import i16, i32
from stepwell.ir.interpretation import Interpreter
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, is_static
from stepwell.translate.quantised.functions import Chain, chain_of
from stepwell.translate.quantised.recognise import not_integers
from stepwell.translate.rewrites.tosa.integers.integers import rescale, stored
from stepwell.translate.rewrites.tosa.operators.building import Builder, elements, shape_of

STEP = 128
"""Integers from one entry of a TABLE to the next."""


@dataclass(frozen=True)
class Wide:
    """A chain of ops between two 16-bit quantisations."""

    chain: Chain


@dataclass(frozen=True)
class LowerInt16Function(Rewrite[Wide]):
    """q(f(dq(x))) of 16 bits to TABLE and RESCALE, or to GATHER."""

    name: ClassVar[str] = "lower-int16-function"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast,)
    bound: ClassVar[Bound] = Bound(
        units=1, reason="lines between 513 entries, tried on every value"
    )

    def match(self, op: QuantizeCast, program: Program) -> Wide | Refusal | None:
        """A function of one value, both of 16 bits without zero points."""
        chain = chain_of(op)
        if chain is None or len(chain.ops) == 1 or dims(chain.source.type) != dims(op.result.type):
            return None
        if not is_static(op.result.type):
            return Refusal("a size is symbolic; TOSA's DIM takes no quantised tensor")
        for value in (chain.source, op.result):
            held = quantization(value.type)
            assert held is not None
            refusal = not_wide(held)
            if refusal is not None:
                return refusal
        return Wide(chain)

    def build(self, match: Wide, rw: Rewriter) -> None:
        """The operators for what the function is on every integer."""
        b, cast = Builder(rw), match.chain.cast
        value = stored(match.chain.source, b)
        wanted = every_result(match.chain, rw.program)
        fitted = entries_for(wanted)
        if fitted is None:
            made = gathered(value, wanted, b)
        else:
            entries, gain = fitted
            lines = b.op(t.TableOp, [value, b.constant(entries)], shape_of(value), i32)
            made = rescale(lines, [1.0 / (STEP * gain)], i16, 0, 0, b)
        rw.replace(cast, rw.insert(StorageCast(made, cast.result.type)).results)


def not_wide(held: Quantization) -> Refusal | None:
    """Why integers are not those of 16 bits that TOSA's tables take, or None."""
    reason = not_integers(held, 16)
    if reason is not None:
        return Refusal(f"a value is quantised {reason}")
    return Refusal("TOSA takes zero points for 8-bit integers only") if held.zero_point else None


def every_result(chain: Chain, program: Program) -> torch.Tensor:
    """int64 [65536]: what the ops make of -32768 … 32767."""
    rank = max(len(dims(chain.source.type)), 1)
    codes = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).reshape(*[1] * (rank - 1), -1)
    environment: dict[SSAValue, Any] = {chain.source: codes}
    interpreter = Interpreter(program.weights)
    with torch.no_grad():
        for op in (*chain.ops, chain.cast):
            interpreter.step(op, environment)
    return environment[chain.cast.result].reshape(-1).long()


def entries_for(wanted: torch.Tensor) -> tuple[torch.Tensor, int] | None:
    """Entries of a TABLE and how much finer than the result they are; None if none are near."""
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


def gathered(value: SSAValue, wanted: torch.Tensor, b: Builder) -> SSAValue:
    """Row x + 32768 of all results."""
    shape = shape_of(value)
    count = elements(shape)
    wide = rescale(b.reshape(value, (1, count)), [1.0], i32, 0, 0, b)
    rows = b.scalar(t.AddOp, wide, 1 << 15)
    table = b.constant(wanted.to(torch.int16).reshape(1, -1, 1))
    return b.reshape(b.op(t.GatherOp, [table, rows], (1, count, 1), i16), shape)
