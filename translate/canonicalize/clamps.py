"""Canonicalize every op with bounds: to `aten.clamp` for numbers, and to extrema for tensors.

rule relu-to-clamp
    A clamp from 0.
Before:
    %y = aten.relu.default(%x)
After:
    %y = aten.clamp.default(%x, 0, none)

rule relu6-to-clamp
    A clamp from 0 to 6.
Before:
    %y = aten.relu6.default(%x)
After:
    %y = aten.clamp.default(%x, 0, 6)

rule hardtanh-to-clamp
    A clamp of both sides.
Before:
    %y = aten.hardtanh.default(%x, $?a, $?b)
After:
    %y = aten.clamp.default(%x, $a, $b)
unless promotes(%x, $a)
unless promotes(%x, $b)
for $a = 0.0, $b = 6.0

rule clip-to-clamp
    Another name.
Before:
    %y = aten.clip.default(%x, $?a, $?b)
After:
    %y = aten.clamp.default(%x, $a, $b)
where same_type(%x, %y) for target else "a bound promotes the tensor to another dtype"
for $a = none, $b = 5

rule clamp-min-to-clamp
    A clamp of one side.
Before:
    %y = aten.clamp_min.default(%x, $?a)
After:
    %y = aten.clamp.default(%x, $a, none)
where same_type(%x, %y) for target else "a bound promotes the tensor to another dtype"
for $a = 0

rule clamp-max-to-clamp
    A clamp of the other side.
Before:
    %y = aten.clamp_max.default(%x, $?b)
After:
    %y = aten.clamp.default(%x, none, $b)
where same_type(%x, %y) for target else "a bound promotes the tensor to another dtype"
for $b = 5

rule threshold-to-clamp
    A relu by another name.
Before:
    %y = aten.threshold.default(%x, $?t, $?v)
After:
    %y = aten.clamp.default(%x, 0, none)
where is_zero($t) else "a threshold other than 0 jumps"
where is_zero($v) else "a threshold other than 0 jumps"
proven clamp_keeps_nan(%x) else "a clamp of halves may lose a NaN"
bound 5e-324 absolute: "torch's threshold of −0 is +0"
for $t = 0, $v = 0

rule clamp-min-to-maximum
    With a tensor as its bound, a clamp is a maximum.
Before:
    %y = aten.clamp_min.Tensor(%x, %a)
After:
    %y = aten.maximum.default(%x, %a)
proven keeps_nans(%x, %a) else "a NaN may be lost beside a bound"
bound 5e-324 absolute: "which of two zeros is greater hangs on the kernel"

rule clamp-max-to-minimum
    With a tensor as its bound, a clamp is a minimum.
Before:
    %y = aten.clamp_max.Tensor(%x, %b)
After:
    %y = aten.minimum.default(%x, %b)
proven keeps_nans(%x, %b) else "a NaN may be lost beside a bound"
bound 5e-324 absolute: "which of two zeros is greater hangs on the kernel"

rule clamp-to-maximum
    A clamp from a tensor on.
Before:
    %y = aten.clamp.Tensor(%x, %a)
After:
    %y = aten.maximum.default(%x, %a)
where same_element(%y, %x, %a) for target else "a bound promotes the tensor to another dtype"
proven keeps_nans(%x, %a) else "a NaN may be lost beside a bound"
bound 5e-324 absolute: "which of two zeros is greater hangs on the kernel"

rule clamp-to-minimum
    A clamp up to a tensor.
Before:
    %y = aten.clamp.Tensor(%x, max=%b)
After:
    %y = aten.minimum.default(%x, %b)
where same_element(%y, %x, %b) for target else "a bound promotes the tensor to another dtype"
proven keeps_nans(%x, %b) else "a NaN may be lost beside a bound"
bound 5e-324 absolute: "which of two zeros is greater hangs on the kernel"

rule clamp-to-extrema
    A clamp between tensors: torch takes the maximum first. A NaN in any of them stays one.
Before:
    %y = aten.clamp.Tensor(%x, %a, %b)
After:
    %m = aten.maximum.default(%x, %a)
    %y = aten.minimum.default(%m, %b)
where same_element(%y, %x, %a, %b) for target
    else "a bound promotes the tensor to another dtype"
proven keeps_nans(%x, %a, %b) else "a NaN may be lost beside a bound"
bound 5e-324 absolute: "which of two zeros is greater hangs on the kernel"

rule merge-clamps
    A clamp of a clamp keeps within both ranges, or at the end of the outer one that is nearest.
Before:
    %m = aten.clamp.default(%x, $?a, $?b)
    %y = aten.clamp.default(%m, $?c, $?d)
After:
    %y = aten.clamp.default(%x, lower_of($a, $c, $d), upper_of($b, $c, $d))
where same_type(%x, %y) for target else "the types of the clamps are not the same"
where is_interval($a, $b) else "the bounds are not numbers in order"
where is_interval($c, $d) else "the bounds are not numbers in order"
where all_fit(%y, $a, $b, $c, $d) else "a negative bound of unsigned bytes wraps"
where keeps_zeros(%y, $a, $b, $c, $d) else "a zero may take the other sign"
for $a = 0, $b = 6, $c = 1, $d = 5
not for %x = "tensor<3xui8>", $a = -3, $b = 6, $c = 1, $d = 5
not for %x = "tensor<30xf32>", $a = 1, $b = 6, $c = none, $d = 0

rule wrap-clamp-bounds
    PyTorch converts a bound to the tensor's type: on unsigned bytes −1 is 255. Other libraries
    compare with −1 itself, and ExecuTorch's kernel refuses it at run time.
Before:
    %y = aten.clamp.default(%x, $?a, $?b) : (tensor<$*S x ui8>) -> tensor<$*S x ui8>
After:
    %y = aten.clamp.default(%x, as_byte($a), as_byte($b))
where any_wraps($a, $b) for termination
for $a = -1, $b = 3
"""

from __future__ import annotations

from math import copysign, isnan

from xdsl.ir import SSAValue

from stepwell.ir.declared.numerics import Proof, all_of, loses_nans
from stepwell.ir.dtypes import f16, is_float, ui8
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import element
from stepwell.translate.range_analysis import is_never_nan
from stepwell.translate.rewrites import building
from stepwell.translate.rules import read_rules

Limit = int | float | None
SMALLEST = 2.0**-25
"""A number that rounds to zero in float16, the type with the fewest small numbers."""


def promotes(value: SSAValue, bound: object) -> Refusal | None:
    """Whether a float bound would promote integers."""
    return building.promotes(bound, element(value.type))


def keeps_nans(*values: SSAValue | Program) -> Proof | None:
    """Whether the target's extrema keep a NaN, as the runtime's clamp does, or there is no NaN."""
    *tensors, program = values
    assert isinstance(program, Program)
    if not loses_nans(program.context):
        return Proof("the target's maxima keep a NaN")
    return all_of(*(is_never_nan(v, program) for v in tensors if isinstance(v, SSAValue)))


def clamp_keeps_nan(value: SSAValue, program: Program) -> Proof | None:
    """Whether the target's clamp keeps a NaN (for halves it may not), or there is no NaN."""
    if element(value.type) != f16:
        return Proof("the target's clamp keeps a NaN")
    return keeps_nans(value, program)


def is_interval(low: object, high: object) -> bool:
    """Whether two bounds are plain numbers or absent, and the lower is not above the upper."""
    limits = [limit for limit in (low, high) if limit is not None]
    plain = [limit for limit in limits if isinstance(limit, int | float) and not isnan(limit)]
    return len(plain) == len(limits) and plain == sorted(plain)


def keeps_zeros(value: SSAValue, low: Limit, high: Limit, least: Limit, most: Limit) -> bool:
    """Whether merging two clamps keeps the sign of zeros: no bound is −0, and no zero is skipped.

    If the inner range excludes zero and the outer range ends at zero, both clamps give that end,
    whereas a single clamp keeps a −0. A number that a narrow type may round to zero counts as zero.
    """
    ends = [end for end in (low, high, least, most) if end is not None and abs(end) <= SMALLEST]
    has_zero = (low is None or low <= 0) and (high is None or high >= 0)
    is_kept = not any(copysign(1, end) < 0 for end in ends) and (has_zero or not ends)
    return is_kept or not is_float(element(value.type))


def wraps(bound: object) -> bool:
    """Whether an unsigned byte represents a bound as another number."""
    return isinstance(bound, int) and bound < 0


def any_wraps(*bounds: object) -> bool:
    """Whether unsigned bytes represent some bound as another number."""
    return any(map(wraps, bounds))


def as_byte(bound: Limit) -> Limit:
    """Return the number that an unsigned byte holds for a bound."""
    return bound % 256 if bound is not None and wraps(bound) else bound


def all_fit(value: SSAValue, *bounds: Limit) -> bool:
    """Whether unsigned bytes represent every bound exactly."""
    return element(value.type) != ui8 or not any(wraps(bound) for bound in bounds)


def lower_of(limit: Limit, lowest: Limit, highest: Limit) -> Limit:
    """Return the merged lower bound of a clamp of a clamp."""
    return lowest if limit is None else _moved(limit, lowest, highest)


def upper_of(limit: Limit, lowest: Limit, highest: Limit) -> Limit:
    """Return the merged upper bound of a clamp of a clamp."""
    return highest if limit is None else _moved(limit, lowest, highest)


def _moved(limit: float, lowest: Limit, highest: Limit) -> Limit:
    if lowest is not None and limit < lowest:
        return lowest
    return highest if highest is not None and limit > highest else limit


RULES = read_rules(__doc__, globals())
