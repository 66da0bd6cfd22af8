"""Take the maximum after a RESCALE that exists already, instead of rescaling the maximum.

For `exp(row - max(row))`, row and maximum are rescaled to the difference's scale. RESCALE is
monotonic, so the maximum of the rescaled row needs no RESCALE of its own.

rule hoist-rescale-over-maximum
    `rescale(max(x))` beside `rescale(x)` to `max(rescale(x))`; common subexpressions share the twin.
Before:
    %g = $reduce of EXTREMES(%x, …)
    %y = tosa.rescale(%g, %m, %s, %z, %o, …) : (…) -> tensor<$*S x $E>
After:
    %r = tosa.rescale(%x, …) : … -> tensor<*shape_of(%x) x $E>
    %y = $reduce(%r, …)
where reads_once(%g) for cost else "another op reads the maximum as it is"
where is_rescaled_alike(%x, %y) else "nothing rescales the row by the same numbers"
where keeps_order(%m) else "its multiplier may be negative, which turns the order of rows"
for %r = tosa.rescale(%x, %m, %s, %z, %o, input_unsigned=false, output_unsigned=false,
    per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) : (…) -> $R
for %m = weight : tensor<1 x i32>
for %s = weight : tensor<1 x i8>
for %z = weight : tensor<1 x i8>
for %o = weight : tensor<1 x i32>
for %s = "s#ones", %z = "z", %o = "o#zeros", %x = "tensor<2x4xi8>", $R = "tensor<2x4xi32>"
for $reduce = "tosa.reduce_max", $axis = 1, $S = [2, 1], $E = i32, $per_channel = false, $scale32 = true
for $input_unsigned = false, $output_unsigned = false, $rounding_mode = "SINGLE_ROUND"
not for %m = "m#negative"
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.operators import building
from stepwell.translate.rules import read_rules

EXTREMES = (t.ReduceMaxOp, t.ReduceMinOp)


def is_rescaled_alike(value: SSAValue, like: SSAValue) -> bool:
    """Whether an op rescales a value by the same parameters, to the same type, as another op."""
    assert isinstance(like.owner, t.RescaleOp)
    return any(is_alike(use.operation, like.owner) for use in value.uses)


def is_alike(other: Operation, op: t.RescaleOp) -> bool:
    """Whether two RESCALE ops have the same parameters and type."""
    if not isinstance(other, t.RescaleOp):
        return False
    if other.properties != op.properties or element(other.output.type) != element(op.output.type):
        return False
    pairs = zip(other.operands[1:], op.operands[1:], strict=True)
    return all(is_same(a, b) for a, b in pairs)


def keeps_order(multiplier: SSAValue, program: Program) -> bool:
    """Whether the rescaling is monotonic: a greater value is rescaled to no smaller one."""
    key = weight_key(multiplier)
    if key is None:
        return False
    numbers = program.weights.get(key)
    return numbers.numel() == 1 and int(numbers) >= 0


def is_same(a: SSAValue, b: SSAValue) -> bool:
    """Whether two values are the same value, or equal constants."""
    key = weight_key(a)
    return a is b or (key is not None and key == weight_key(b))


(HoistRescaleOverMaximum,) = RULES = read_rules(__doc__, vars(building) | globals())
