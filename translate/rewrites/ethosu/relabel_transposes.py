"""Layout: an NPU takes a channels-last image as it lies, and returns it so.

The TOSA of a convolution transposes its image from NCHW to NHWC. Where the model declares that its
input or output lies in that order (`channels_last` in PyTorch), the runtime would copy the image to
row-major order and the NPU would transpose it back: 12 300 cycles on a U55-128 for 96 by 96 pixels.

rule relabel-transposed-input
    The transpose of an input is its bytes with permuted axes.
Before:
    %y = tosa.transpose(%x, perms=$order) : (…) -> $Y
After:
    %y = cmsis.relabel(%x, perm=$order) : … -> $Y
where enters_in(%x, $order)
for $order = [0, 2, 3, 1], %x = "tensor<1x2x3x4xi8>", $Y = "tensor<1x3x4x2xi8>"
for %x lies as [0, 2, 3, 1]
not for $order = [0, 3, 1, 2], $Y = "tensor<1x4x2x3xi8>"

rule relabel-transposed-output
    The transpose before an output is left to the output's order.
Before:
    %y = tosa.transpose(%x, perms=$order) : (…) -> $Y
After:
    %y = cmsis.relabel(%x, perm=$order) : … -> $Y
where leaves_in(%y, $order)
for $order = [0, 3, 1, 2], %x = "tensor<1x3x4x2xi8>", $Y = "tensor<1x2x3x4xi8>"
for %y lies as [0, 2, 3, 1]
not for $order = [0, 2, 3, 1], $Y = "tensor<1x4x2x3xi8>"
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from stepwell.ir.axes.maps import inverse
from stepwell.translate.rewrites.cmsis.layout.relabel_ports import input_order, output_order
from stepwell.translate.rules import read_rules


def enters_in(value: SSAValue, order: Sequence[int]) -> bool:
    """Whether a value is an input whose axes lie in this order."""
    return input_order(value) == tuple(order)


def leaves_in(value: SSAValue, order: Sequence[int]) -> bool:
    """Whether a value is only an output, which a permutation brings into the order it lies in."""
    stated = output_order(value)
    return stated is not None and inverse(stated) == tuple(order)


RULES = read_rules(__doc__, globals())
