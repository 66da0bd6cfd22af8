"""A gelu of halves is computed in single precision: for halves XNNPACK has no kernel of vectors.

It takes them one by one, 40 nanoseconds each, where a gelu in float32 takes 0.15 and each convert
beside it 0.1 (`bench/kernel_atlas.py`): in a transformer of halves that is most of the time.

Before:
    %y = xnnpack.gelu(%x) : (tensor<2x4xf16>) -> tensor<2x4xf16>
After:
    %0 = xnnpack.convert(%x) : (tensor<2x4xf16>) -> tensor<2x4xf32>
    %1 = xnnpack.gelu(%0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %y = xnnpack.convert(%1) : (tensor<2x4xf32>) -> tensor<2x4xf16>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import xnnpack
from stepwell.ir.dtypes import f16, f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.xnnpack.widen_halves import ONCE


@dataclass(frozen=True)
class WidenGelu(Rewrite[xnnpack.Gelu]):
    """`gelu` of float16 between two converts."""

    name: ClassVar[str] = "widen-gelu"
    anchors: ClassVar[tuple[type[Operation], ...]] = (xnnpack.Gelu,)
    bound: ClassVar[Bound] = ONCE

    def match(self, op: xnnpack.Gelu, program: Program) -> xnnpack.Gelu | None:
        """Guard: halves."""
        return op if element(op.input.type) == f16 else None

    def build(self, match: xnnpack.Gelu, rw: Rewriter) -> None:
        """Three nodes."""
        wide = rw.insert(xnnpack.Convert.make(match.input, element=f32)).results[0]
        made = rw.insert(xnnpack.Gelu.make(wide)).results[0]
        narrow = xnnpack.Convert.make(made, result=match.output.type)
        rw.replace(match, [rw.insert(narrow).results[0]])
