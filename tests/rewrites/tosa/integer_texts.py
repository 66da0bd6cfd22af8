"""Lines of a method that computes with the numbers that integers stand for."""

from typing import Any

SHORT = ("i16<0.001>", "i16<0.0005>")
SOFTMAX = "%z = aten._softmax.default(%xr, 1, false) : (f32[{0}]) -> f32[{0}]"
TANH = "%z = aten.tanh.default(%xr) : (f32[4]) -> f32[4]"
PRODUCT = "%z = aten.mul.Tensor(%xr, %c) : (f32[4], f32[1]) -> f32[4]"
WIDE_NUMBER = '%n = stepwell.weight <"n#ones"> "constant" : i16[1]; %t = quant.scast %n : i16[1] to i16<0.1>[1]; %c = quant.dcast %t : i16<0.1>[1] to f32[1]'


def computed(line: str, x: str, y: str, held: str = "i8<0.5:3>", made: str = "i8<1.0>") -> Any:
    """What a line makes of `%x`, held in one type and made in another."""
    return (
        f"%x: {held}[{x}]",
        f"%xr = quant.dcast %x : {held}[{x}] to f32[{x}]",
        *line.split("; "),
        f"%y = quant.qcast %z : f32[{y}] to {made}[{y}]",
    )
