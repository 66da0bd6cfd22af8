"""A table looked up with the result of a table is one table.

Chains of scalars and activations, each quantised on its own, and changes of scale between them.

Before:
    %s = stepwell.weight <"s"> "constant" : tensor<256xi8>
    %t = stepwell.weight <"t"> "constant" : tensor<256xi8>
    %a = cmsis.quantized_activation(%x, %s) : (tensor<4xi8>, tensor<256xi8>) -> tensor<4xi8>
    %b = cmsis.quantized_activation(%a, %t) : (tensor<4xi8>, tensor<256xi8>) -> tensor<4xi8>
After:
    %u = stepwell.weight <"t#cmsis.compose"> "constant" : tensor<256xi8>
    %b = cmsis.quantized_activation(%x, %u) : (tensor<4xi8>, tensor<256xi8>) -> tensor<4xi8>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

import stepwell.dialects.cmsis.recipes  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects.cmsis.ops import QuantizedActivation
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter


@dataclass(frozen=True)
class Tables:
    """Two look-ups, one behind the other, and the keys of their tables."""

    outer: QuantizedActivation
    inner: QuantizedActivation
    outer_key: str
    inner_key: str


@dataclass(frozen=True)
class ComposeTables(Rewrite[Tables]):
    """t[s[x]] → u[x]."""

    name: ClassVar[str] = "compose-tables"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizedActivation,)

    def match(self, op: QuantizedActivation, program: Program) -> Tables | Refusal | None:
        """Both tables are constants, and nothing else reads what is between them."""
        inner = op.input.owner
        if not isinstance(inner, QuantizedActivation) or not inner.out.has_one_use():
            return None
        outer_key, inner_key = weight_key(op.lut), weight_key(inner.lut)
        if outer_key is None or inner_key is None:
            return None
        return Tables(op, inner, outer_key, inner_key)

    def build(self, match: Tables, rw: Rewriter) -> None:
        """One look-up in the outer table read at the inner one's entries."""
        key = rw.weights.derive("cmsis.compose", [match.outer_key, match.inner_key])
        type_ = match.outer.out.type
        made = QuantizedActivation.make(match.inner.input, rw.weight(key), result=type_)
        rw.replace(match.outer, rw.insert(made).results)
