"""Canonicalization of normalizations to the operator that a model writes, with one result.

The `native` forms also return mean and reciprocal deviation, which only training reads. The axis of
a softmax is counted from the front, and a cast precedes it.

rule native-layer-norm-to-layer-norm
    The statistics are the tensor's own.
Before:
    %y, %m, %r = aten.native_layer_norm.default(%x, $?n, $w, $b, $?e)
After:
    %y = aten.layer_norm.default(%x, $n, $w, $b, $e)
where is_unread(%m, %r) else "the mean or deviation that it saves for training is used"
not of empty tensors
bound of roundings: "another kernel may sum in another order"
for $n = [3], $w = [3], $e = 1.0e-5

rule native-group-norm-to-group-norm
    Batch, channels and size stand in the type.
Before:
    %y, %m, %r = aten.native_group_norm.default(%x, $w, $b, $?n, $?c, $?s, $?g, $?e)
After:
    %y = aten.group_norm.default(%x, $g, $w, $b, $e)
where is_unread(%m, %r) else "the mean or deviation that it saves for training is used"
not of empty tensors
bound of roundings: "another kernel may sum in another order"
for $x = [2, 4, 6], $w = [4], $n = 2, $c = 4, $s = 6, $g = 2, $e = 1.0e-5

rule instance-norm-to-group-norm
    An instance norm over its own statistics is a group norm with one channel a group.
Before:
    %y = aten.instance_norm.default(%x, $w, $b, $m, $v, $?u, $?o, $?e, $?k)
After:
    %y = aten.group_norm.default(%x, channels(%x), $w, $b, $e)
where is_true($u) else "an instance norm over running statistics is a batch norm"
where has_known_channels(%x) else "the number of channels is symbolic"
where has_many_elements(%x)
    else "a channel has one element, whose deviation is rounding alone"
not of empty tensors
bound of roundings: "instance and group norm sum in another order"
loses REORDERED
for $x = [2, 4, 6], $u = true, $o = 0.1, $e = 1.0e-5, $k = false

rule instance-norm-to-batch-norm
    Over running statistics it is a batch norm in evaluation mode.
Before:
    %y = aten.instance_norm.default(%x, $w, $b, $m, $v, $?u, $?o, $?e, $?k)
After:
    %y = aten.batch_norm.default(%x, $w, $b, $m, $v, false, $o, $e, false)
where not is_true($u)
where are_of_channels(%x, $w, $b, $m, $v) for target
    else "its parameters are not one number for each channel"
where has_kernel(%x, $w, $b, $m, $v) else "PyTorch has no batch norm of these types"
for $x = [2, 3, 4], $m = [3], $v = [3], $u = false, $o = 0.1, $e = 1.0e-5, $k = false

rule inference-batch-norm-to-batch-norm
    Running statistics are given, not computed.
Before:
    %y, %a, %b = aten._native_batch_norm_legit_no_training.default(%x, $w, $b, %m, %v, $?o, $?e)
After:
    %y = aten.batch_norm.default(%x, $w, $b, %m, %v, false, $o, $e, false)
where is_unread(%a, %b) else "the mean or deviation that it saves for training is used"
where are_of_channels(%x, $w, $b, %m, %v)
    else "its parameters are not one number for each channel"
for $x = [2, 3, 4, 4], $w = [3], $b = [3], $m = [3], $v = [3], $o = 0.1, $e = 1.0e-5

rule fixed-batch-norm-to-batch-norm
    Running statistics are given, not computed.
Before:
    %y, %a, %b, %c = aten._batch_norm_no_update.default(%x, $w, $b, $m, $v, $?o, $?e)
After:
    %y = aten.batch_norm.default(%x, $w, $b, $m, $v, false, $o, $e, false)
where is_unread(%a, %b, %c) else "the mean or deviation that it saves for training is used"
where are_of_channels(%x, $w, $b, $m, $v)
    else "its parameters are not one number for each channel"
for $x = [2, 3, 4, 4], $w = [3], $b = [3], $m = [3], $v = [3], $o = 0.1, $e = 1.0e-5

rule native-batch-norm-to-batch-norm
    Running statistics are given, unless it trains.
Before:
    %y, %a, %b = aten.native_batch_norm.default(%x, $w, $b, $m, $v, $?t, $?o, $?e)
After:
    %y = aten.batch_norm.default(%x, $w, $b, $m, $v, false, $o, $e, false)
where is_unread(%a, %b) else "the mean or deviation that it saves for training is used"
where not is_true($t)
    else "exported in training mode: it normalizes by the batch; call model.eval()"
where are_of_channels(%x, $w, $b, $m, $v)
    else "its parameters are not one number for each channel"
for $x = [2, 3, 4, 4], $m = [3], $v = [3], $t = false, $o = 0.1, $e = 1.0e-5

rule fused-rms-norm-to-rms-norm
    Without the reciprocal root that training reads.
Before:
    %y, %r = aten._fused_rms_norm.default(%x, $?n, $w, $?e) : (tensor<$*S x $E>, …) -> …
After:
    %y = aten.rms_norm.default(%x, $n, $w, $e)
where is_unread(%r) else "the reciprocal root that it saves for training is used"
where normalizes_axes(%x, %y, $n) else "it normalizes no axis"
bound of roundings: "the mean may be summed in another order"
for $n = [3], $w = [3], $e = 1.0e-5

rule softmax-along-axis
    Without a dtype, or with the one that the tensor has.
Before:
    %y = aten.$form.int(%x, $d, $?t) : (tensor<$*S x $E>) -> …
After:
    %y = aten._$form.default(%x, from_front(%x, $d), false)
where keeps_element($t, $E)
for each $form of softmax, log_softmax
for $d = -1, $t = none

rule cast-before-softmax
    With a dtype, the cast comes first.
Before:
    %y = aten.$form.int(%x, $d, $?t) : (tensor<$*S x $E>) -> …
After:
    %c = aten._to_copy.default(%x, dtype=$t) : … -> tensor<$*S x $t>
    %y = aten._$form.default(%c, from_front(%x, $d), false)
where not keeps_element($t, $E)
for each $form of softmax, log_softmax
for $d = 1, $t = f64

rule softmax-axis-from-front
    An axis that is counted from the back.
Before:
    %y = aten._$form.default(%x, $d, $?h)
After:
    %y = aten._$form.default(%x, from_front(%x, $d), false)
where not is_true($h) else "half_to_float casts within the softmax, which only CUDA does"
where is_negative($d) for termination
for each $form of softmax, log_softmax
for $d = -1, $h = false
not for $h = true, %x = "tensor<2x3xf16>"
"""

from __future__ import annotations

from xdsl.ir import Attribute, SSAValue

from stepwell.ir.declared.numerics import REORDERED as REORDERED
from stepwell.ir.dtypes import bf16, f16, f32
from stepwell.ir.types import dims, element
from stepwell.translate.decompositions.norms import normalizes_axes as normalizes_axes
from stepwell.translate.rules import read_rules


def are_of_channels(value: SSAValue, *parameters: SSAValue | None) -> bool:
    """Whether the parameters that are present have one number per channel of `[N, C, …]`."""
    channels = dims(value.type)[1:2]
    return all(
        dims(parameter.type) == channels for parameter in parameters if parameter is not None
    )


def has_kernel(value: SSAValue, *parameters: SSAValue | None) -> bool:
    """Whether all tensors have one type, or the data are halves and parameters float32."""
    of = element(value.type)
    elements = {element(parameter.type) for parameter in parameters if parameter is not None}
    return elements <= {of} or (of in (f16, bf16) and elements == {f32})


def has_many_elements(value: SSAValue) -> bool:
    """Whether the value is a batch `[N, C, …]` with several elements per channel."""
    return any(size != 1 for size in dims(value.type)[2:])


def has_known_channels(value: SSAValue) -> bool:
    """Whether the value is a batch `[N, C, …]` with static C."""
    return isinstance(dims(value.type)[1], int)


def channels(value: SSAValue) -> int:
    """Return the size C of a batch `[N, C, …]`."""
    size = dims(value.type)[1]
    assert isinstance(size, int)
    return size


def keeps_element(wanted: Attribute | None, attribute: Attribute) -> bool:
    """Whether no element type is requested, or the operand has it already."""
    return wanted is None or wanted == attribute


RULES = read_rules(__doc__, globals())
