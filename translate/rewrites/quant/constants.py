"""Constant folding: quantize weights and apply data movement to them at compile time.

Graphs converted without folding quantize their weights at run time; `W.t()` and reshaped weights
reach an op through data movement. Both become derived weights: a recipe over the program's tensor.

rule store-constant
    A quantized weight is its stored integers.
Before:
    %w = weight : tensor<$*S x $E>
    %y = quant.qcast(%w) : (…) -> tensor<$*S x $T>
After:
    %v = weight quant.store(%w, stored_as($T))
    %y = quant.scast(%v)
where expresses_single($T) for target else "only float32 weights are quantized ahead of time"
for $S = [4, 2], $T = "!quant.uniform<i8:f32, 0.5>", %w = "w"

rule store-constant-anew
    A stored weight in another quantization is stored in that one.
Before:
    %w = weight : tensor<$*S x $I>
    %t = quant.scast(%w) : (…) -> tensor<$*S x $G>
    %r = quant.dcast(%t) : (…) -> tensor<$*S x $R>
    %y = quant.qcast(%r) : (…) -> tensor<$*S x $T>
After:
    %o = weight quant.reals(%w, stored_as($G))
    %v = weight quant.store(%o, stored_as($T))
    %y = quant.scast(%v)
where expresses_single($T) for target else "only float32 weights are quantized ahead of time"
for $S = [4], $I = i8, $R = f32, $G = "!quant.uniform<i8:f32, 0.5>", $T = "!quant.uniform<i8:f32, 0.25>"
not for $R = f16, $G = "!quant.uniform<i8:f16, 0.5>", $T = "!quant.uniform<i8:f16, 0.25>"

rule permute-constant
    A permuted weight of known sizes is a derived one.
Before:
    %w = weight
    %y = $move of MOVEMENT(%w, …)
After:
    %y = weight cmsis.permute(%w, permutation=$o)
with $o = order_of(%y)
for $move = "aten.t.default", %w = "w"

rule reshape-constant
    So is a reshaped one, or one that is copied.
Before:
    %w = weight
    %y = $move of MOVEMENT(%w, …) : (…) -> $T
After:
    %y = weight cmsis.reshape(%w, shape=$s)
where is_known(%y)
with $s = shape_of(%y)
for $move = "aten.view.default", %w = "w", $size = [3, 2], $T = "tensor<3x2xf32>"
not for %i = 'tensor<?xf32, #stepwell.shape<["n"]>>'; %n = aten.sym_size.int(%i, 0);
    %w = weight : tensor<10 x f32>; $size = [%n, -1],
    $T = 'tensor<?x?xf32, #stepwell.shape<["n", "10//n"]>>'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from xdsl.ir import Attribute, SSAValue

import stepwell.dialects.quant.recipes  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.reshapes import only_reshapes
from stepwell.dialects.quant import UniformQuantizedType
from stepwell.dialects.quant.recipes import store_parameters
from stepwell.ir.dtypes import f32
from stepwell.ir.types import Dim, dims, is_static
from stepwell.translate.rewrites.quant import movement
from stepwell.translate.rewrites.quant.movement import permutation
from stepwell.translate.rules import read_rules


def stored_as(attribute: Attribute) -> Mapping[str, Any]:
    """Return the parameters of a quantized element type in the form that recipes take."""
    assert isinstance(attribute, UniformQuantizedType)
    return store_parameters(attribute.data)


def is_known(value: SSAValue) -> bool:
    """Whether the tensor has static sizes."""
    return is_static(value.type)


def expresses_single(attribute: Attribute) -> bool:
    """Whether the quantized element type expresses f32."""
    return isinstance(attribute, UniformQuantizedType) and attribute.data.expressed == f32


def order_of(value: SSAValue) -> list[int] | None:
    """Return the axis order of a data movement op that only permutes."""
    order = permutation(cast(SchemaOp, value.owner))
    return None if order is None else list(order)


def shape_of(value: SSAValue) -> list[Dim] | None:
    """Return the shape of a data movement op that only reshapes."""
    return list(dims(value.type)) if only_reshapes(value.owner) else None


RULES = read_rules(__doc__, vars(movement) | globals())
