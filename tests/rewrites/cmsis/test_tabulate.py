"""Tabulate: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.lowerings.cmsis import elementwise
from stepwell.translate.rewrites.cmsis.layout.merge_movement import RULES

test_tabulate = cases(
    elementwise,
    RULES,
    """
tabulate + compose-tables: a chain through a quantization within is one table -> cmsis.quantized_activation
    %xr = quant.dcast(%x: i8<0.5>[4]); %a = aten.tanh.default(%xr)
    %b = quant.qcast(%a) -> i8<0.01>[4]; %br = quant.dcast(%b); %z = aten.neg.default(%br)
    %y = quant.qcast(%z) -> i8<0.25>[4]
tabulate: above a value that cannot be followed the table begins there -> quant.qcast, cmsis.quantized_activation
    %x = quant.qcast(%f: f32[4]) -> i8<0.5>[4]; %xr = quant.dcast(%x); %z = aten.tanh.default(%xr)
    %y = quant.qcast(%z) -> i8<0.01>[4]
tabulate: a change of scale alone is a table -> cmsis.quantized_activation
    %xr = quant.dcast(%x: i8<0.5>[4]); %y = quant.qcast(%xr) -> i8<0.25>[4]
tabulate: a function of two values -> unchanged
    %xr = quant.dcast(%x: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5>[4])
    %z = aten.mul.Tensor(%xr, %br); %y = quant.qcast(%z) -> i8<0.25>[4]
tabulate: an op that is no function of one element -> unchanged
    %xr = quant.dcast(%x: i8<0.5>[4]); %z = aten.cumsum.default(%xr, 0)
    %y = quant.qcast(%z) -> i8<0.25>[4]
tabulate: a constant of many elements -> unchanged
    %xr = quant.dcast(%x: i8<0.5>[4]); %z = aten.mul.Tensor(%xr, %w: weight f32[4])
    %y = quant.qcast(%z) -> i8<0.25>[4]
tabulate: a result of another shape -> unchanged
    %xr = quant.dcast(%x: i8<0.5>[4]); %z = aten.mul.Tensor(%xr, %w: weight f32[1, 1])
    %y = quant.qcast(%z) -> i8<0.25>[1, 4]
tabulate: an int16 result -> refused: its result is quantized to int16
    %xr = quant.dcast(%x: i8<0.5>[4]); %z = aten.tanh.default(%xr)
    %y = quant.qcast(%z) -> i16<0.25>[4]
tabulate: an int16 source -> refused: its operand is quantized to int16
    %xr = quant.dcast(%x: i16<0.5>[4]); %z = aten.tanh.default(%xr)
    %y = quant.qcast(%z) -> i8<0.25>[4]
""",
)
