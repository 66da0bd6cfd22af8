"""Any function of one int8 value becomes a table of 256 entries, exactly.

Activations (sigmoid, gelu, hardswish, …), arithmetic with a scalar (`x * 0.5`, `1 - x`), chains of
both, and a change of scale and zero point alone: the ops themselves are evaluated on all 256 stored
values, so that the table holds what the float graph computes, bit for bit.  Numbers may stand in the
graph as reals or as quantised constants of one element.

Before:
    %r = quant.dcast %x : tensor<4x!quant.uniform<i8:f32, 0.5>> to tensor<4xf32>
    %t = aten.tanh.default(%r) : (tensor<4xf32>) -> tensor<4xf32>
    %q = quant.qcast %t : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.25>>
After:
    %t = stepwell.weight <"table"> "constant" : tensor<256xi8>
    %q = cmsis.quantized_activation(%x, %t)
        : (tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<256xi8>)
        -> tensor<4x!quant.uniform<i8:f32, 0.25>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects.cmsis.ops import QuantizedActivation
from stepwell.dialects.quant import QuantizeCast
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.quantised.functions import Chain, byte_chain, table_of


@dataclass(frozen=True)
class Tabulate(Rewrite[Chain]):
    """q(f(dq(x))) → table lookup."""

    name: ClassVar[str] = "tabulate"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast,)

    def match(self, op: QuantizeCast, program: Program) -> Chain | Refusal | None:
        """The result must be a function of one int8 value, of the same shape."""
        return byte_chain(op)

    def build(self, match: Chain, rw: Rewriter) -> None:
        """Evaluate the chain on every stored value."""
        table = rw.constant(table_of(match, rw.program), "table")
        made = QuantizedActivation.make(match.source, table, result=match.cast.result.type)
        rw.replace(match.cast, rw.insert(made).results)
