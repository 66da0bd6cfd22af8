"""Quantises weights ahead of time, and moves constants ahead of time.

Graphs converted without folding quantise their weights at run time; `W.t()` and reshaped weights
reach an op through a movement. Both become derived weights: a recipe over the program's tensor.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<4x2xf32>
    %q = quant.qcast %w : tensor<4x2xf32> to tensor<4x2x!quant.uniform<i8:f32, 0.5>>
After:
    %w = stepwell.weight <"w#quant.store"> "constant" : tensor<4x2xi8>
    %q = quant.scast %w : tensor<4x2xi8> to tensor<4x2x!quant.uniform<i8:f32, 0.5>>
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.ir import Operation

import stepwell.dialects.cmsis.recipes  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.reshapes import only_reshapes
from stepwell.dialects.quant import (
    DequantizeCast,
    QuantizeCast,
    StorageCast,
    UniformQuantizedType,
)
from stepwell.dialects.quant.recipes import store_parameters
from stepwell.dialects.quant.types import quantization
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, is_static
from stepwell.translate.rewrites.quant.movement import MOVEMENT, permutation


@dataclass(frozen=True)
class Derive:
    """An op whose result is a recipe over one weight."""

    op: Operation
    recipe: str
    source: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class StoreConstant(Rewrite[Derive]):
    """A quantised weight is its stored integers."""

    name: ClassVar[str] = "store-constant"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast,)

    def match(self, op: QuantizeCast, program: Program) -> Derive | Refusal | None:
        """The operand must be a float32 weight, or a stored one with other parameters."""
        key = weight_key(op.input)
        maker = op.input.owner
        if isinstance(maker, DequantizeCast) and isinstance(maker.input.owner, StorageCast):
            stored = weight_key(maker.input.owner.input)
            given = quantization(maker.input.type)
            if stored is not None and given is not None and given.expressed == f32:
                parameters = store_parameters(given)
                key = program.weights.derive("quant.reals", [stored], **parameters)
        if key is None:
            return None
        held = element(op.result.type)
        assert isinstance(held, UniformQuantizedType)
        if held.data.expressed != f32:
            return Refusal("only float32 weights are quantised ahead of time")
        return Derive(op, "quant.store", key, store_parameters(held.data))

    def build(self, match: Derive, rw: Rewriter) -> None:
        """The stored integers under their type."""
        key = rw.weights.derive(match.recipe, [match.source], **match.parameters)
        typed = rw.insert(StorageCast(rw.weight(key), match.op.results[0].type))
        rw.replace(match.op, typed.results)


@dataclass(frozen=True)
class MoveConstant(Rewrite[Derive]):
    """A permuted, reshaped or expanded weight is a derived one."""

    name: ClassVar[str] = "move-constant"
    anchors: ClassVar[tuple[type[Operation], ...]] = MOVEMENT

    def match(self, op: SchemaOp, program: Program) -> Derive | Refusal | None:
        """What is moved must be a weight and the result's shape known."""
        key = weight_key(op.operands[0])
        made = op.results[0].type
        if key is None or not is_static(made):
            return None
        order = permutation(op)
        if order is not None:
            return Derive(op, "cmsis.permute", key, {"permutation": list(order)})
        if only_reshapes(op):
            return Derive(op, "cmsis.reshape", key, {"shape": list(dims(made))})
        return None

    def build(self, match: Derive, rw: Rewriter) -> None:
        """The derived weight."""
        key = rw.weights.derive(match.recipe, [match.source], **match.parameters)
        rw.replace(match.op, [rw.weight(key)])
