"""Dead-code elimination: remove assertions about a tensor that its type proves.

`torch.export` records `_assert_tensor_metadata` before casts. Types here are verified, so a dtype
that agrees needs no check at run time. The device is ignored, because the target defines it.

rule remove-proven-assert
    `_assert_tensor_metadata` of what the type says to nothing.
Before:
    aten._assert_tensor_metadata.default(%x, $size, $stride, $dtype, …)
After:
    nothing
unless asserts_another_dtype(%x, $dtype)
where has_sizes(%x, $size) else "it asserts sizes that the type does not prove"
where is_absent($stride) else "it asserts strides, which types do not have"
for $size = none, $stride = none, $dtype = f32
not for $size = [2, 4]
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import Dim, dims, element
from stepwell.translate.rules import read_rules


def asserts_another_dtype(value: SSAValue, dtype: Attribute | None) -> Refusal | None:
    """Refuse if the asserted dtype differs from the tensor's."""
    if dtype is None or dtype == element(value.type):
        return None
    return Refusal(
        f"the asserted dtype {dtype} is not that of {value.type}: the assertion fails at run time"
    )


def has_sizes(value: SSAValue, sizes: Sequence[Dim] | None) -> bool:
    """Whether the asserted sizes, if any, are those of the type."""
    return sizes is None or tuple(sizes) == dims(value.type)


def is_absent(argument: object) -> bool:
    """Whether the argument is absent."""
    return argument is None


(RemoveProvenAssert,) = RULES = read_rules(__doc__, globals())
