"""LowerPermute and LowerPad: beyond the documented example, and what they leave alone."""

from typing import Any

from rewrite_cases import cases

from stepwell.translate.lowerings.cmsis import borders
from stepwell.translate.rewrites.cmsis.layout.lower_permute import LowerPermute
from stepwell.translate.rewrites.quant import CANCEL_CASTS

test_lower_movement = cases(
    LowerPermute,
    borders,
    """
lower-permute: a permutation behind a view is still of quantized values -> quant.scast, aten.view.default, quant.scast, cmsis.transpose, quant.scast, quant.scast
    %r = quant.scast(%x: i8<0.5>[6]) -> i8[6]; %v = aten.view.default(%r, [2, 3])
    %t = aten.t.default(%v); %y = quant.scast(%t) -> i8<0.5>[3, 2]
lower-permute: five dimensions -> refused: takes 4 at most
    %r = quant.scast(%x: i8<0.5>[1, 2, 3, 2, 2]) -> i8[1, 2, 3, 2, 2]
    %t = aten.permute.default(%r, [1, 0, 2, 3, 4]); %y = quant.scast(%t) -> i8<0.5>[2, 1, 3, 2, 2]
lower-permute: other integers are left to the portable kernel -> unchanged
    %r = quant.scast(%x: i16<0.5>[2, 3]) -> i16[2, 3]; %t = aten.permute.default(%r, [1, 0])
    %y = quant.scast(%t) -> i16<0.5>[3, 2]
lower-permute: an input -> unchanged
    %n = aten.neg.default(%x: i8[2, 3])
    %y = aten.permute.default(%x, [1, 0])
lower-permute: a sum -> unchanged
    %n = aten.neg.default(%x: i8[2, 3])
    %y = aten.permute.default(%n, [1, 0])
lower-pad: a value that only the result rounds is padded with -> cmsis.pad
    %xr = quant.dcast(%x: i8<0.5:3>[2, 3]); %z = aten.constant_pad_nd.default(%xr, [0, 1], 0.6)
    %y = quant.qcast(%z) -> i8<0.5:3>[2, 4]
lower-pad: what the kernel does not do -> refused: its mode is replicate
    %xr = quant.dcast(%x: i8<0.5:3>[2, 3]); %z = aten.pad.default(%xr, [1, 1], "replicate")
    %y = quant.qcast(%z) -> i8<0.5:3>[2, 5]
lower-pad: rank 5 -> refused: rank 4 at most
    %xr = quant.dcast(%x: i8<0.5:3>[1, 1, 2, 2, 3]); %z = aten.constant_pad_nd.default(%xr, [0, 1])
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 1, 2, 2, 4]
lower-pad: what the kernel does not do -> refused: crops
    %xr = quant.dcast(%x: i8<0.5:3>[2, 3]); %z = aten.constant_pad_nd.default(%xr, [0, -1])
    %y = quant.qcast(%z) -> i8<0.5:3>[2, 2]
lower-pad: no such value -> refused: type does not represent
    %xr = quant.dcast(%x: i8<0.5:3>[2, 3]); %z = aten.constant_pad_nd.default(%xr, [0, 1], 0.6)
    %y = quant.qcast(%z) -> i8<0.25>[2, 4]
lower-pad: a shape known only at run time -> refused: rank 4 at most
    %xr = quant.dcast(%x: i8<0.5>[s0, 3])
    %z = aten.constant_pad_nd.default(%xr, [0, 1]) -> f32[s0, 4]
    %y = quant.qcast(%z) -> i8<0.5>[s0, 4]
""",
)


def test_the_identity_is_nothing(apply: Any):
    done = apply(
        """
        %r = quant.scast(%x: i8<0.5>[2, 3]) -> i8[2, 3]
        %t = aten.permute.default(%r, [0, 1])
        %y = quant.scast(%t) -> i8<0.5>[2, 3]
        """,
        LowerPermute(),
        *CANCEL_CASTS,
    )
    assert done.ops() == ["quant.scast", "quant.scast"] or not done.ops()
