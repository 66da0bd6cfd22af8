"""Canonicalization: a transpose names only the axes that move.

Vela moves the elements of an image one by one where a transpose has an axis of size 1 between those
that change places: back from the row of a convolution of one dimension, 100 steps of 40 channels
took 5 500 cycles on a U55-128, 22 082 on a U65-256 and 15 625 on a U85-256. As two axes they take 1
500, 12 800 and 2 984. A reshape takes none. On a U55 it is also best to merge axes that stay
adjacent (16 channels of 24 by 24: 3 456 cycles instead of 6 912); on the others that is often
slower.

rule transpose-fewest-axes
    Two reshapes, which are free, around a transpose of the fewest axes.
Before:
    %y = tosa.transpose(%x, perms=$order)
After:
    %a = in_shape(%x, shape_in($fewer))
    %b = in_place(%a, order_in($fewer))
    %y = in_shape(%b, sizes_of(%y))
where is_spelled(%x) else "the shape is not known"
with $fewer = of_fewer_axes(%x, $order)
for %x = "tensor<1x2x3x4xi8>", $order = [0, 3, 1, 2]
not for %x = "tensor<1x?x3x4xi8>"

rule transpose-without-units
    Axes of size 1 are left to the reshapes.
Before:
    %y = tosa.transpose(%x, perms=$order)
After:
    %a = in_shape(%x, shape_in($fewer))
    %b = in_place(%a, order_in($fewer))
    %y = in_shape(%b, sizes_of(%y))
where is_spelled(%x) else "the shape is not known"
with $fewer = without_units(%x, $order)
for %x = "tensor<2x1x3x4xi8>", $order = [0, 3, 1, 2]
not for %x = "tensor<?x1x3x4xi8>"
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from stepwell.translate.rewrites.tosa.layout import merge_layout, simplify_transpose
from stepwell.translate.rewrites.tosa.layout.simplify_transpose import Simplest
from stepwell.translate.rewrites.tosa.operators import sizes
from stepwell.translate.rewrites.tosa.operators.building import shape_of
from stepwell.translate.rules import read_rules


def without_units(value: SSAValue, order: Sequence[int]) -> Simplest | None:
    """Return the same transpose without axes of size 1, if one of them follows another axis."""
    shape = shape_of(value)
    if 1 not in shape[1:]:
        return None
    kept = [axis for axis, size in enumerate(shape) if size != 1]
    places = tuple(kept.index(axis) for axis in order if axis in kept)
    return tuple(shape[axis] for axis in kept), places


FewestAxes, WithoutUnits = RULES = read_rules(
    __doc__, vars(sizes) | vars(merge_layout) | vars(simplify_transpose) | globals()
)
