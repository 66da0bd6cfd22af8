"""Keep single precision where a value is rounded to bfloat16 and widened again at once.

The rewrite applies where one of the two casts belongs to an op that was widened (`widen-bfloat`).
If both casts are in the model itself, the rounding is intended and is kept.

rule cancel-narrowing
    `x.to(bfloat16).to(float32)` to `x`.
Before:
    %h = $narrow of CASTS(%x, …) : (tensor<$*X x f32>, …) -> tensor<$*H x bf16>
    %y = $widen of CASTS(%h, …) : (…) -> tensor<$*Y x f32>
After:
    %y = itself(%x)
where not are_of_the_model(%x, %h, %y) for choice else "the model rounds to bfloat16 and back itself"
unless changes_more(%y)
unless changes_more(%h)
bound of roundings: "a rounding to bfloat16 less"
loses BEYOND
for $narrow = "aten.type_as.default", %other = "tensor<4xbf16>"
for $widen = "aten._to_copy.default", $dtype = f32, $X = [4], $H = [4], $Y = [4]
not for $X = [2, 3, 4, 5], $H = [2, 3, 4, 5], $Y = [2, 3, 4, 5], %other = "tensor<2x3x4x5xbf16>",
    $memory_format = "torch.channels_last"
not for $X = [2, 3, 4, 5], $H = [2, 3, 4, 5], $Y = [2, 3, 4, 5], $narrow = "aten._to_copy.default",
    $dtype = bf16, $widen = "aten.type_as.default", %other = "tensor<2x3x4x5xf32>",
    $memory_format = "torch.channels_last"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.diagnostics import node_name
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.translate.canonicalize.copies import changes_layout
from stepwell.translate.rules import read_rules

CASTS = (aten._ToCopyDefault, aten.ToDtype, aten.ToDtypeLayout, aten.TypeAsDefault)
BEYOND = Deviation("a single beyond 3.39e38 stays finite between bfloat16s", True, everywhere=True)


def are_of_the_model(source: SSAValue, narrow: SSAValue, wide: SSAValue) -> bool:
    """Whether both of two consecutive casts are nodes of the model."""
    readers = [use.operation for use in wide.uses]
    return is_of_its_own(narrow, [source.owner]) and is_of_its_own(wide, readers)


def is_of_its_own(value: SSAValue, beside: Sequence[object]) -> bool:
    """Whether a cast is a node of the model; casts of a widened op have that op's node."""
    assert isinstance(value.owner, Operation)
    name = node_name(value.owner.location)
    if name is None:
        return False
    return all(node_name(op.location) != name for op in beside if isinstance(op, Operation))


def changes_more(value: SSAValue) -> Refusal | None:
    """Refuse a cast that also changes the memory format."""
    return changes_layout(cast(SchemaOp, value.owner))


(CancelNarrowing,) = RULES = read_rules(__doc__, globals())
