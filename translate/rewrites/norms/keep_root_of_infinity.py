"""Take the root of an infinity around XNNPACK's square root, which may give NaN for it.

Its kernels estimate a reciprocal root and multiply by the number: ∞ · 0 is NaN. The number is limited
to the largest finite one first, and what was cut off comes back: nothing, or all of an infinity. It
is subtracted as `limited − x`, which is +0 where nothing was cut off: −0 − (+0) is −0, as √−0 is, but
−0 + (+0) would be +0.
A norm of numbers beyond 10¹⁹ is infinite, and so `x / norm` zero; it would be NaN.

Before:
    %y = aten.sqrt.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
After:
    %0 = aten.clamp.default(%x, none, 3.4028234663852886e+38) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %1 = aten.sqrt.default(%0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %2 = aten.sub.Tensor(%0, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %y = aten.sub.Tensor(%1, %2) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.numerics import numerics_of
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.building import become, emit, put
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack
from stepwell.translate.values import interval


@dataclass(frozen=True)
class Root:
    """A square root of what may be infinite."""

    op: SchemaOp
    largest: float


@dataclass(frozen=True)
class KeepRootOfInfinity(Rewrite[Root]):
    """`sqrt(x)` to `sqrt(min(x, largest)) − (min(x, largest) − x)`."""

    even_if_finite: bool = True
    """Whether also for a user who says that activations are ordinary numbers."""
    name: ClassVar[str] = "keep-root-of-infinity"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.SqrtDefault,)

    def match(self, op: SchemaOp, program: Program) -> Root | Refusal | None:
        """Guards: XNNPACK's floats, not known to be finite."""
        x = op.operands[0]
        if isinstance(x.owner, xnnpack.Clamp) and "output_max" in x.owner.properties:
            return None  # What this rewrite put there, lowered already.
        if not self.even_if_finite and numerics_of(program.context) == "finite":
            return None
        refusal = not_for_xnnpack(op)
        if refusal is not None:
            return refusal
        largest = torch.finfo(torch_dtype(element(x.type))).max
        return None if interval(x, program).high <= largest else Root(op, largest)

    def build(self, match: Root, rw: Rewriter) -> None:
        """The limited number, its root, what was cut off, the difference."""
        x, result = match.op.operands[0], match.op.results[0]
        limited = put(rw, aten.ClampDefault, x, None, match.largest)
        root = emit(rw, aten.SqrtDefault.make(limited, result_types=[result.type]))
        rest = emit(rw, aten.SubTensor.make(limited, x, result_types=[result.type]))
        become(rw, match.op, aten.SubTensor, root, rest)
