"""Canonicalization: remove copies and casts that change nothing.

A value of the IR is immutable, so its copy is the value itself. `clone`, `contiguous`, `detach`,
`alias` and `lift_fresh_copy` matter to eager PyTorch, where tensors are written to and have
strides. Here a value has elements in a shape, and the signature states the memory format of inputs
and outputs. A copy to another memory format is kept, and so is a copy whose strides `as_strided`
reads. Casts `x.to(x.dtype)` occur often in half-precision models and attention decompositions.

rule remove-copy
    A copy whose memory format asks for nothing new.
Before:
    %y = aten.$copy.default(%x, memory_format=$?m)
After:
    %y = %x
unless asks_for_layout($m)
unless strides_are_observed(%y)
for each $copy of clone, contiguous
for $m = "torch.contiguous_format"
not for %x = aten.t.default(%i); %r = aten.as_strided.default(%y, [6], [1])
not for %x = "tensor<2x3x4x5xf32>", $m = "torch.channels_last"

rule remove-alias
    A copy that has no memory format.
Before:
    %y = aten.$copy.default(%x)
After:
    %y = %x
unless strides_are_observed(%y)
for each $copy of detach, detach_copy, alias, alias_copy, lift_fresh_copy
not for %x = aten.t.default(%i); %r = aten.as_strided.default(%y, [6], [1])

rule remove-copy-over
    What is copied over a tensor of its type is what that tensor then holds.
Before:
    %y = aten.$copy.default(%d, %x, …)
After:
    %y = %x
for each $copy of copy

rule remove-noop-cast
    A cast to the dtype that the tensor has.
Before:
    %y = aten.$cast(%x, dtype=$?d, …, memory_format=$?m)
After:
    %y = %x
unless asks_for_layout($m)
for each $cast of to.dtype, to.dtype_layout, _to_copy.default
for $d = f32, $m = none
not for %x = "tensor<2x3x4x5xf32>", $m = "torch.channels_last"

rule remove-noop-move
    A cast to the device and the dtype that the tensor has.
Before:
    %y = aten.to.device(%x, $?w, $?d, …, memory_format=$?m)
After:
    %y = %x
unless asks_for_layout($m)
for $w = "cpu", $d = f32, $m = none
not for %x = "tensor<2x3x4x5xf32>", $m = "torch.channels_last"

rule move-to-copy
    A cast to the device that everything is on.
Before:
    %y = aten.to.device(%x, $?w, $d, …, memory_format=$?m)
After:
    %y = aten._to_copy.default(%x, dtype=$d)
unless asks_for_layout($m)
for $w = "cpu", $d = f16, $m = none
not for %x = "tensor<2x3x4x5xf32>", $m = "torch.channels_last"

rule remove-noop-cast-like
    A cast to the dtype of a tensor that has the same.
Before:
    %y = aten.to.other(%x, %z, …, memory_format=$?m)
After:
    %y = %x
unless asks_for_layout($m)
for $m = none
not for %x = "tensor<2x3x4x5xf32>", $m = "torch.channels_last"

rule remove-noop-type-as
    A cast to the dtype of a tensor that has the same.
Before:
    %y = aten.type_as.default(%x, %z)
After:
    %y = %x

rule type-as-to-copy
    Models in half precision compute their norms in float and come back by `x.type_as(input)`; what
    the other tensor holds has no say, and no target has a node for such a pair.
Before:
    %y = aten.type_as.default(%x, %z) : (…, tensor<$*Z x $E>) -> …
After:
    %y = aten._to_copy.default(%x, dtype=$E)
where not same_element(%x, %z) for cost
for $E = f16

rule cast-by-copy
    A cast under the name whose kernel the runtime has; PyTorch's own way from one to the other
    asks whether symbolic sizes are 1.
Before:
    %y = aten.to.dtype(%x, $d, …, memory_format=$?m) : (tensor<$*S x $E>) -> …
After:
    %y = aten._to_copy.default(%x, dtype=$d)
unless asks_for_layout($m)
for $d = f64, $m = none
not for %x = "tensor<2x3x4x5xf32>", $m = "torch.channels_last"
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.families import lays_out
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.translate.rules import read_rules

OBSERVERS = frozenset(("aten.as_strided.default", "aten.as_strided_copy.default"))
"""Ops whose result depends on the strides of their operand."""


KEPT = ("preserve_format", "contiguous_format", "0", "1")
"""Memory formats that request no change, by name and as schemas number them."""


def changes_layout(op: SchemaOp) -> Refusal | None:
    """Whether the op requests a memory format other than row-major or its operand's."""
    return (
        asks_for_layout(op.arg("memory_format")) if "memory_format" in op.SCHEMA.by_name else None
    )


def asks_for_layout(wanted: object) -> Refusal | None:
    """Refuse a requested memory format other than row-major or the operand's."""
    if wanted is None or str(wanted).rsplit(".", 1)[-1] in KEPT:
        return None
    return Refusal(f"the op requests memory format {wanted}")


def strides_are_observed(copy: SSAValue) -> Refusal | None:
    """Refuse a copy whose strides an `as_strided` reads, possibly through views."""
    stack = [copy]
    while stack:
        for use in stack.pop().uses:
            if use.operation.name in OBSERVERS:
                return Refusal(f"{use.operation.name} reads the strides of the copy")
            if lays_out(use.operation):
                stack.extend(use.operation.results)
    return None


RULES = read_rules(__doc__, globals())
