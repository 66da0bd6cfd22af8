"""Remove ops that return their operand: reshapes, slices, pools and dropout without effect.

The result must have exactly the operand's type, which the driver checks; a `where` states further
conditions. A slice of unchanged type keeps every element. A permutation must be the identity; equal
types prove nothing, because `[4, 4]` may be transposed.

rule remove-noop-view
    A reshape to the shape its operand has.
Before:
    %y = aten.$view.default(%x, $?s)
After:
    %y = %x
for each $view of view, view_copy, _unsafe_view, reshape
for $s = [2, 3]

rule remove-noop-flatten
    One axis that is flattened.
Before:
    %y = aten.flatten.using_ints(%x, $?a, $?b)
After:
    %y = %x
for $a = 1, $b = -1

rule remove-noop-squeeze
    No axis has size 1.
Before:
    %y = aten.squeeze.default(%x)
After:
    %y = %x

rule remove-noop-squeeze-of-axis
    The axis has not size 1.
Before:
    %y = aten.squeeze.dim(%x, $?d)
After:
    %y = %x
for $d = 0

rule remove-noop-squeeze-of-axes
    None of the axes has size 1.
Before:
    %y = aten.squeeze.dims(%x, $?d)
After:
    %y = %x
for $d = [0, 1]

rule remove-noop-permute
    Every axis stays where it is.
Before:
    %y = aten.$permute.default(%x, $d)
After:
    %y = %x
where is_identity($d)
for each $permute of permute, permute_copy
for $d = [0, -1]

rule remove-noop-slice
    The whole axis.
Before:
    %y = aten.$slice.Tensor(%x, …)
After:
    %y = %x
for each $slice of slice, slice_copy

rule remove-noop-repeat
    Once along every axis.
Before:
    %y = aten.repeat.default(%x, $?n)
After:
    %y = %x
for $n = [1, 1]

rule remove-noop-pad
    Nothing is added, and nothing is cut off at one end for what is added at the other.
Before:
    %y = aten.constant_pad_nd.default(%x, $?p, …)
After:
    %y = %x
where are_zeros($p)
for $p = [0, 0]

rule remove-noop-roll
    By no place.
Before:
    %y = aten.roll.default(%x, $?s, …)
After:
    %y = %x
where are_zeros($s)
for $s = [0]

rule remove-noop-flip
    Along no axis.
Before:
    %y = aten.flip.default(%x, [])
After:
    %y = %x

rule remove-dropout
    Dropout that does not drop: in evaluation mode, or with probability 0.
Before:
    %y = aten.$dropout.default(%x, $?p, $?t)
After:
    %y = %x
where drops_nothing($p, $t)
    else "exported in training mode: it draws random numbers; call model.eval()"
for each $dropout of dropout, feature_dropout, alpha_dropout, feature_alpha_dropout
for $p = 0.5, $t = false

rule remove-native-dropout
    The same with its mask, which only training reads.
Before:
    %y, %m = aten.native_dropout.default(%x, $?p, $?t)
After:
    %y = %x
where drops_nothing($p, $t)
    else "exported in training mode: it draws random numbers; call model.eval()"
where is_unread(%m) else "the dropout mask is used"
for $p = 0.5, $t = false

rule remove-unit-max-pooling
    Windows that hold one element each and touch every one: a stride that leaves elements out shows
    in the type, and padding is at most half a window. XNNPACK refuses such windows, and ExecuTorch
    has no kernel for `aten.max_pool2d.default`.
Before:
    %y = aten.max_pool2d.default(%x, $k, …)
After:
    %y = %x
where are_ones($k)
for $k = [1, 1], $x = [1, 2, 4, 4]
not for $k = [3, 3], $stride = [1, 1], $padding = [1, 1]

rule remove-unit-average-pooling
    The average of one element.
Before:
    %y = aten.avg_pool2d.default(%x, $k, …, divisor_override=$?d)
After:
    %y = %x
where are_ones($k)
where divides_by_one($d) else "the element is divided by another number"
bound 5e-324 absolute: "avg_pool2d adds to zero: −0 becomes +0"
for $k = [1, 1], $d = none, $x = [1, 2, 4, 4]
not for $k = [3, 3], $stride = [1, 1], $padding = [1, 1]
not for $d = 2
"""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.translate.rewrites.building import axis
from stepwell.translate.rules import read_rules


def is_identity(order: Sequence[int]) -> bool:
    """Whether the permutation moves no axis."""
    return all(axis(at, len(order)) == index for index, at in enumerate(order))


def drops_nothing(share: object, training: object) -> bool:
    """Whether dropout is in evaluation mode, or drops no element."""
    return training is False or share == 0


def divides_by_one(divisor: object) -> bool:
    """Whether the average is of one element and its divisor is 1."""
    return divisor is None or divisor == 1


RULES = read_rules(__doc__, globals())
