"""Elementwise ops, pooling, movements and casts of int8: where they stay with floats."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import quantized_nodes
from stepwell.translate.rewrites.xnnpack.quantized.leftover_casts import (
    CONVERT,
    UNTYPE,
    FoldDequantizedConstant,
)
from stepwell.translate.rewrites.xnnpack.quantized.widen_quantized_cast import RULES as WIDENED

FOLD, UNTYPED = FoldDequantizedConstant(), UNTYPE[1]()


def between(
    line: str,
    *,
    sizes: str = "2, 4",
    becomes: str = "",
    one: str = "i8<0.5:3>",
    other: str = "i8<0.5:3>",
    made: str = "i8<0.5:3>",
) -> str:
    """q(line of %a and %b), of which both are dequantized; `%f` is of floats, `%c` a constant."""
    return f"""
        %t = quant.scast(%w: weight i8[{sizes}]) -> i8<0.5:3>[{sizes}]; %c = quant.dcast(%t)
        %a = quant.dcast(%p: {one}[{sizes}]); %b = quant.dcast(%q: {other}[{sizes}])
        %f: f32[{sizes}]; %l = aten.{line}; %y = quant.qcast(%l) -> {made}[{becomes or sizes}]
    """


ADD, CLAMP = "add.Tensor(%a, %b)", "hardtanh.default(%a, -0.5, 2.0)"
PART = "i8<-100:127; 0.5:3>"
IMAGE = {"sizes": "1, 2, 6, 6", "becomes": "1, 2, 3, 3"}
INT16 = {"one": "i16<0.5>", "made": "i16<0.5>"}
ELEMENTWISE: dict[str, tuple[str, dict[str, str], str]] = {
    "a float operand": ("add.Tensor(%a, %f)", {}, "comes from an input and is not quantized"),
    "a sum times alpha": ("add.Tensor(%a, %b, alpha=2)", {}, "alpha is 2"),
    "int16": (ADD, {"one": "i16<0.5>"}, "not int8 or uint8"),
    "a result in a part of int8": (ADD, {"made": PART}, "the whole range"),
    "signed and unsigned": (ADD, {"one": "!quant.uniform<u8:f32, 0.5:3>"}, "int8 and uint8"),
    "constants": ("add.Tensor(%c, %c)", {}, "one that is computed"),
    "a scale far above the result's": (ADD, {"made": "i8<0.001>"}, "2⁻¹⁰ to 2⁸"),
    "a scale far below the result's": (ADD, {"one": "i8<1.0e-04>"}, "2⁻¹⁰ to 2⁸"),
    "a clamp to another scale": (CLAMP, {"made": "i8<0.25>"}, "merges a clamp"),
    "a clamp of int16": (CLAMP, INT16, "not int8 or uint8"),
    "a clamp of a float": ("hardtanh.default(%f, -0.5, 2.0)", {}, ""),
    "an op without a kernel": ("erf.default(%a)", {}, ""),
    "pooling of floats": ("max_pool2d.default(%f, [2, 2])", IMAGE, ""),
    "pooling that floats have not": (
        "max_pool2d.default(%a, [1, 1], [2, 2])",
        IMAGE,
        "one element",
    ),
    "pooling of int16": ("max_pool2d.default(%a, [2, 2])", IMAGE | INT16, "not int8 or uint8"),
    "averages of windows": ("avg_pool2d.default(%a, [2, 2])", IMAGE, "windows of floats only"),
    "pooling to another scale": (
        "max_pool2d.default(%a, [2, 2])",
        {**IMAGE, "made": "i8<0.25>"},
        "without changing the scale",
    ),
}
MOVES: dict[str, tuple[str, dict[str, str], str]] = {
    "no movement": ("abs.default(%a)", {}, ""),
    "floats": ("permute.default(%f, [1, 0])", {"becomes": "4, 2"}, ""),
    "floats among integers": ("cat.default([%a, %f])", {"becomes": "4, 4"}, "is not quantized"),
    "another scale": (
        "view.default(%a, [8])",
        {"becomes": "8", "made": "i8<0.25>"},
        "different scales",
    ),
    "another scale of a part": (
        "cat.default([%a, %b])",
        {"becomes": "4, 4", "other": "i8<0.25>"},
        "different scales",
    ),
    "a part of int8": (
        "view.default(%a, [8])",
        {"becomes": "8", "one": PART, "made": PART},
        "the whole range",
    ),
    "a slice with a step": ("slice.Tensor(%a, 1, 0, 4, 2)", {"becomes": "2, 2"}, "step 1"),
    "six parts": ("cat.default([%a, %a, %a, %a, %a, %a])", {"becomes": "12, 4"}, "two to five"),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_op_without_int8_node_computes_floats(name: str, refused: Any):
    line, changes, reason = ELEMENTWISE[name]
    refused(between(line, **changes), step(quantized_nodes.quantized_elementwise), reason)


@pytest.mark.parametrize("name", MOVES)
def test_movement_without_int8_node_moves_floats(name: str, refused: Any):
    line, changes, reason = MOVES[name]
    refused(between(line, **changes), step(quantized_nodes.quantized_movement), reason)


test_lower_quantized_ops = cases(quantized_nodes, CONVERT, UNTYPE, WIDENED, FOLD)("""
lower-quantized-elementwise: it computes int8 -> applied once
    - %t = quant.scast(%w: weight i8[2, 4]) -> i8<0.5:3>[2, 4]; %c = quant.dcast(%t)
      %a = quant.dcast(%p: i8<0.5:3>[2, 4]); %b = quant.dcast(%q: i8<0.5:3>[2, 4])
      %l = aten.add.Tensor(%a, %b); %y = quant.qcast(%l) -> i8<0.5:3>[2, 4]
    - %t = quant.scast(%w: weight i8[2, 4]) -> i8<0.5:3>[2, 4]; %c = quant.dcast(%t)
      %a = quant.dcast(%p: i8<0.5:3>[2, 4]); %b = quant.dcast(%q: i8<0.25>[2, 4])
      %l = aten.add.Tensor(%a, %b); %y = quant.qcast(%l) -> i8<0.5:3>[2, 4]
    - %t = quant.scast(%w: weight i8[2, 4]) -> i8<0.5:3>[2, 4]; %c = quant.dcast(%t)
      %a = quant.dcast(%p: i8<0.5:3>[2, 4]); %b = quant.dcast(%q: i8<0.5:3>[2, 4])
      %l = aten.hardtanh.default(%a, -0.5, 2.0); %y = quant.qcast(%l) -> i8<0.5:3>[2, 4]
    - %t = quant.scast(%w: weight i8[1, 2, 6, 6]) -> i8<0.5:3>[1, 2, 6, 6]; %c = quant.dcast(%t)
      %a = quant.dcast(%p: i8<0.5:3>[1, 2, 6, 6]); %b = quant.dcast(%q: i8<0.5:3>[1, 2, 6, 6])
      %l = aten.max_pool2d.default(%a, [2, 2]); %y = quant.qcast(%l) -> i8<0.5:3>[1, 2, 3, 3]
    - %t = quant.scast(%w: weight i8[1, 2, 6, 6]) -> i8<0.5:3>[1, 2, 6, 6]; %c = quant.dcast(%t)
      %a = quant.dcast(%p: i8<0.5:3>[1, 2, 6, 6]); %b = quant.dcast(%q: i8<0.5:3>[1, 2, 6, 6])
      %l = aten.mean.dim(%a, [2, 3], true); %y = quant.qcast(%l) -> i8<0.25>[1, 2, 1, 1]
lower-quantized-movement: it moves integers -> applied once
    - %t = quant.scast(%w: weight i8[2, 4]) -> i8<0.5:3>[2, 4]; %c = quant.dcast(%t)
      %a = quant.dcast(%p: i8<0.5:3>[2, 4]); %b = quant.dcast(%q: i8<0.5:3>[2, 4])
      %l = aten.cat.default([%a, %b]); %y = quant.qcast(%l) -> i8<0.5:3>[4, 4]
    - %t = quant.scast(%w: weight i8[2, 4]) -> i8<0.5:3>[2, 4]; %c = quant.dcast(%t)
      %a = quant.dcast(%p: i8<0.5:3>[2, 4]); %b = quant.dcast(%q: i8<0.5:3>[2, 4])
      %l = aten.slice.Tensor(%a, 1, 0, 2); %y = quant.qcast(%l) -> i8<0.5:3>[2, 2]
    - %t = quant.scast(%w: weight i8[2, 4]) -> i8<0.5:3>[2, 4]; %c = quant.dcast(%t)
      %a = quant.dcast(%p: i8<0.5:3>[2, 4]); %b = quant.dcast(%q: i8<0.5:3>[2, 4])
      %l = aten.permute.default(%a, [1, 0]); %y = quant.qcast(%l) -> i8<0.5:3>[4, 2]
lower-quantized-movement: what is moved and read as floats too -> refused: used as a float by func.return
    %t = quant.scast(%w: weight i8[2, 4]) -> i8<0.5:3>[2, 4]; %c = quant.dcast(%t)
    %a = quant.dcast(%p: i8<0.5:3>[2, 4]); %b = quant.dcast(%q: i8<0.5:3>[2, 4])
    %l = aten.view.default(%a, [8]); %y = quant.qcast(%l) -> i8<0.5:3>[8]; return %y, %l
lower-dequantization: int16 by a node -> refused: no static int8
    %y = quant.dcast(%x: i16<0.5>[2, 4])
lower-dequantization: channels by a node -> refused: no static int8
    %y = quant.dcast(%x: i8<:0, {0.5, 0.25}>[2, 4])
lower-quantization: a part of int8 by a node -> refused: the whole range
    %y = quant.qcast(%x: f32[2, 4]) -> i8<-100:127; 0.5:3>[2, 4]
untype-dequantization: groups by an operator -> refused: groups of an axis
    %y = quant.dcast(%x: i8<:{0:1, 1:2}, {{1.0, 2.0}, {1.0, 2.0}}>[2, 4])
untype-dequantization: halves by an operator -> refused: float32 values
    %y = quant.dcast(%x: !quant.uniform<i8:f16, 0.5>[2, 4])
widen-quantized-cast: floats as halves -> unchanged
    %y = quant.qcast(%x: f32[2, 4]) -> i8<0.5:3>[2, 4]
fold-dequantized-constant: an argument ahead of time -> unchanged
    %y = quant.dcast(%x: i8<0.5:3>[2, 4])
fold-dequantized-constant: a constant of halves is not folded -> refused: only float32
    %t = quant.scast(%w: weight i8[2, 4]) -> !quant.uniform<i8:f16, 0.5>[2, 4]; %c = quant.dcast(%t)
    %y = aten.add.Tensor(%c, %x: f16[2, 4])
fold-dequantized-constant: integers that a cast names are no weight -> unchanged
    # Stored integers that come in at run time: a type is put on them, but they are computed.
    %t = quant.scast(%x: i8[2, 4]) -> i8<0.5:3>[2, 4]; %y = quant.dcast(%t)
""")
