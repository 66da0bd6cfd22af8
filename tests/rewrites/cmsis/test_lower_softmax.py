"""LowerSoftmax: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.lowerings.cmsis import elementwise

test_lower_softmax = cases(
    elementwise,
    """
lower-softmax: another dimension is transposed to be the last -> cmsis.transpose, cmsis.softmax, cmsis.transpose
    %xr = quant.dcast(%x: i8<0.5>[2, 3, 4]); %z = aten.softmax.int(%xr, 1)
    %y = quant.qcast(%z) -> i8<0.00390625:-128>[2, 3, 4]
lower-softmax: a coarser result is a table behind it -> cmsis.softmax, cmsis.quantized_activation
    %xr = quant.dcast(%x: i8<0.5>[2, 8]); %z = aten.softmax.int(%xr, -1)
    %y = quant.qcast(%z) -> i8<0.01:-128>[2, 8]
lower-softmax: the longest row that cannot overflow lowers -> applied once
    %xr = quant.dcast(%x: i8<0.5>[1, 511]); %z = aten.softmax.int(%xr, -1)
    %y = quant.qcast(%z) -> i8<0.00390625:-128>[1, 511]
lower-softmax: a longer row -> refused: 511 is the longest safe one
    %xr = quant.dcast(%x: i8<0.5>[1, 512]); %z = aten.softmax.int(%xr, -1)
    %y = quant.qcast(%z) -> i8<0.00390625:-128>[1, 512]
lower-softmax: a finer result -> refused: finer
    %xr = quant.dcast(%x: i8<0.5>[2, 8]); %z = aten.softmax.int(%xr, -1)
    %y = quant.qcast(%z) -> i8<0.003:-128>[2, 8]
lower-softmax: a dimension within five cannot be turned -> refused: 4
    %xr = quant.dcast(%x: i8<0.5>[1, 2, 2, 3, 2]); %z = aten.softmax.int(%xr, 3)
    %y = quant.qcast(%z) -> i8<0.00390625:-128>[1, 2, 2, 3, 2]
lower-softmax: a row of unknown length -> refused: run time
    %xr = quant.dcast(%x: i8<0.5>[s0]); %z = aten.softmax.int(%xr, -1)
    %y = quant.qcast(%z) -> i8<0.00390625:-128>[s0]
""",
)
