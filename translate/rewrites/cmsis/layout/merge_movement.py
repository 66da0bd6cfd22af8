"""Canonicalization: cancel, merge or remove data movement ops.

rule compose-transposes
    Two transposes are one, or none.
Before:
    %a = cmsis.transpose(%x, perm=$first) : ($X) -> $A
    %y = cmsis.transpose(%a, perm=$second) : ($A) -> $Y
After:
    %y = transposed(%x, composed($first, $second))
for $first = [0, 2, 3, 1], $second = [0, 3, 1, 2]
for $X = "tensor<1x2x3x4xi8>", $A = "tensor<1x3x4x2xi8>", $Y = "tensor<1x2x3x4xi8>"

rule transpose-constant
    A transposed weight is a derived one.
Before:
    %w = weight : tensor<$*S x $E>
    %t = quant.scast(%w) : (…) -> tensor<$*S x $Q>
    %y = cmsis.transpose(%t, perm=$order) : (…) -> $T
After:
    %v = weight cmsis.permute(%w, permutation=$order)
    %y = quant.scast(%v)
for $S = [1, 2, 3, 4], $E = i8, $Q = "!quant.uniform<i8:f32, 0.5>", $order = [0, 2, 3, 1]
for $T = "tensor<1x3x4x2x!quant.uniform<i8:f32, 0.5>>"

rule transpose-to-view
    Where dimensions of size 1 move alone, the bytes lie as they lay.
Before:
    %y = cmsis.transpose(%x, perm=$order) : (tensor<$*S x $Q>) -> tensor<$*R x $Q>
After:
    %y = reshaped(%x, $R)
where is_quantized($Q)
where lies_the_same($S, $order)
for $S = [1, 1, 2, 3], $Q = "!quant.uniform<i8:f32, 0.5>", $order = [0, 2, 3, 1], $R = [1, 2, 3, 1]
not for $S = [1, 2, 3, 4], $R = [1, 3, 4, 2]

rule merge-views
    A view of a view of known sizes is one view.
Before:
    %a = $first of MOVEMENT(%x, …)
    %y = $second of MOVEMENT(%a, …) : (…) -> tensor<$*R x $E>
After:
    %y = aten.view.default(%x, listed($R))
where is_reshape(%a)
where is_view(%y)
for $first = "aten.squeeze.dims", $second = "aten.flatten.using_ints", $dim = [2, 3]
for %x = "tensor<1x8x1x1xi8>", $R = [8], $E = i8
not for $first = "aten.t.default", $second = "aten.view.default", %x = "tensor<2x3xi8>",
    $size = [6], $R = [6]

rule remove-view
    A view of the same sizes is none.
Before:
    %y = $view of MOVEMENT(%x, …) : ($T) -> $T
After:
    %y = %x
where is_view(%y)
for $view = "aten.view.default", $T = "tensor<2x3xi8>", $size = [2, 3]

rule compose-tables
    A table looked up with the result of a table is one table: chains of scalars and activations,
    each quantized on its own, and changes of scale between them.
Before:
    %s = weight : tensor<256 x $E>
    %t = weight : tensor<256 x $F>
    %a = cmsis.quantized_activation(%x, %s) : ($X) -> $A
    %y = cmsis.quantized_activation(%a, %t) : ($A) -> $Y
After:
    %u = weight cmsis.compose(%t, %s)
    %y = cmsis.quantized_activation(%x, %u)
where reads_once(%a) for cost
for $E = i8, $F = i8, $X = "tensor<4xi8>", $A = "tensor<4xi8>", $Y = "tensor<4xi8>"
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

import stepwell.dialects.quant.recipes  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects.aten.reshapes import only_reshapes
from stepwell.dialects.quant import UniformQuantizedType
from stepwell.ir.axes import maps as axes
from stepwell.ir.types import Dim, is_static
from stepwell.translate.rewrites.cmsis.layout import reshape
from stepwell.translate.rewrites.quant import movement
from stepwell.translate.rules import read_rules


def is_quantized(of: Attribute) -> bool:
    """Whether the element type is quantized."""
    return isinstance(of, UniformQuantizedType)


def is_reshape(value: SSAValue) -> bool:
    """Whether the op returns the elements that it reads in unchanged order."""
    return only_reshapes(value.owner)


def is_view(value: SSAValue) -> bool:
    """Whether the op returns the elements that it reads in unchanged order, with a static shape."""
    return is_reshape(value) and is_static(value.type)


def listed(shape: Sequence[Dim]) -> list[Dim]:
    """Return sizes as a list."""
    return list(shape)


RULES = read_rules(__doc__, vars(axes) | vars(reshape) | vars(movement) | globals())
