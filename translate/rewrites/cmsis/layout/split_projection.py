"""Splitting: a linear layer whose features are only read in parts becomes a layer for each part.

The projection of `nn.MultiheadAttention` is packed: queries, keys and values are one linear layer,
whose result is reshaped, transposed and selected from. The parts of a result cost copies at run
time, the parts of a weight do not. What a part reads is found by moving the numbers of the layer's
elements instead of the elements, through any ops that only move.

rule split-projection
    A part that holds some features of every row is the layer with those rows of its weight.
Before:
    %y = $part of PARTS(%v, …) : (…) -> tensor<$*S x $I>
After:
    %y = layer_of(%y, $features)
with $features = own_features(%y)
for %w = weight : tensor<6 x 4 x i8>
for %b = weight : tensor<6 x i32>
for %t = quant.scast(%w) : (…) -> $W
for %l = cmsis.quantized_linear(%x, %t, bias=%b, input_offset=-3, filter_offset=0, output_offset=-1,
    requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127,
    activation_min=-128) : (…) -> $L
for %v = quant.scast(%l) : (…) -> tensor<2 x 6 x i8>
for $W = "tensor<6x4x!quant.uniform<i8<-127:127>:f32, 0.25>>", $L = "tensor<2x6x!quant.uniform<i8:f32, 2.0:-1>>"
for %x = "tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>", $part = "aten.slice.Tensor"
for $dim = 1, $start = 2, $end = 4, $S = [2, 2], $I = i8
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.cmsis.ops import QuantizedLinear
from stepwell.dialects.quant import StorageCast
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims, element, is_static, tensor
from stepwell.ir.weights import WeightStore
from stepwell.translate.quantized.recognize import typed_weight
from stepwell.translate.rewrites.cmsis.layout.reshape import raw, reshaped
from stepwell.translate.rewrites.layers import split_linear
from stepwell.translate.rewrites.quant.movement import only_moves
from stepwell.translate.rules import read_rules

PARTS = (aten.SelectInt, aten.SliceTensor)
MOST = 1 << 20
"""The most elements of a layer's result whose places are followed."""


@dataclass(frozen=True)
class Features:
    """Features `start:stop` of every row of a layer."""

    layer: QuantizedLinear
    start: int
    stop: int


def own_features(part: SSAValue) -> Features | Refusal | None:
    """Return the features that a part reads, if every part of the layer's result reads its own."""
    found = features_of(part)
    if found is None or found.layer.kernel_sum is not None:
        return None
    if not all(map(_key, found.layer.operands[1:])):
        return Refusal("the weight or the bias is computed at run time")
    taken = [*_parts(found.layer.out)]
    if None in taken:
        return Refusal("another op reads the whole result of the layer")
    spans = sorted({(each.start, each.stop) for each in taken if each is not None})
    if any(stop > start for (_, stop), (start, _) in pairwise(spans)):
        return Refusal("parts overlap: their features would be computed twice")
    return found


def features_of(part: SSAValue) -> Features | None:
    """Return the features of a layer of which a value consists, row by row."""
    moves: list[Operation] = []
    value = part
    while isinstance(op := value.owner, StorageCast) or only_moves(op):
        if len(op.operands) != 1:
            return None
        moves.append(op)
        value = op.operands[0]
    layer = value.owner
    if not isinstance(layer, QuantizedLinear) or not is_static(value.type):
        return None
    shape = cast("tuple[int, ...]", dims(value.type))
    width, count = shape[-1], prod(shape)
    if not width < count <= MOST:  # Parts of a single row are runs of memory, which are free.
        return None
    numbers = torch.arange(count)
    places = {value: numbers.reshape(shape)}
    interpreter = Interpreter(WeightStore())
    for op in reversed(moves):
        interpreter.step(op, places)
    seen = places[part].reshape(-1)
    each, rest = divmod(seen.numel(), count // width)
    start = int(seen[0]) if seen.numel() else 0
    if rest or not 0 < each < width or start + each > width:
        return None
    own = numbers.reshape(-1, width)[:, start : start + each]
    return Features(layer, start, start + each) if torch.equal(own.reshape(-1), seen) else None


def _parts(value: SSAValue) -> Iterator[Features | None]:
    """Yield the features that each part of a layer's result consists of; None for another use."""
    for use in value.uses:
        op = use.operation
        moves = isinstance(op, StorageCast) or only_moves(op)
        if not moves or len(op.results) != 1 or len(op.operands) != 1:
            yield None
        elif isinstance(op, PARTS):
            yield features_of(op.results[0])
        else:
            yield from _parts(op.results[0])


def _key(constant: SSAValue) -> str | None:
    typed = constant.owner
    return weight_key(typed.input if isinstance(typed, StorageCast) else constant)


def layer_of(rw: Rewriter, part: SSAValue, features: Features) -> SSAValue:
    """Build the layer with some of its features, in the shape of a part."""
    layer, fields = features.layer, {"start": features.start, "stop": features.stop}
    count = features.stop - features.start
    held = layer.weights.type
    own = tensor((count, *dims(held)[1:]), element(held))
    weight, *bias = (
        rw.weights.derive(split_linear.ROWS, [cast(str, _key(value))], **fields)
        for value in layer.operands[1:]
    )
    operands = [layer.input, typed_weight(rw, weight, own), *map(rw.weight, bias)]
    new = QuantizedLinear.create(
        operands=operands,
        result_types=[tensor((*dims(layer.out.type)[:-1], count), element(layer.out.type))],
        properties=dict(layer.properties),
    )
    return raw(rw, reshaped(rw, rw.insert(new).results[0], dims(part.type)))


(SplitProjection,) = RULES = read_rules(__doc__, globals())
