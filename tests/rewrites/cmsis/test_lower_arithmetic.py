"""LowerArithmetic: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.lowerings.cmsis import elementwise
from stepwell.translate.lowerings.lowering import step


def pair(
    words: Any,
    method: Any,
    op: str,
    *lines: str,
    first: str = "0.5",
    second: str = "0.5:2",
    out: str = "1.0",
    storage: str = "i8",
    rest: str = "",
) -> str:
    made = lines[-1].split("=")[0].strip(" %") if lines else "z"
    return method(
        f"%a: {words.typed('4', first, storage)}, %b: {words.typed('4', second, storage)}",
        words.dcast("a", "4", first, storage),
        words.dcast("b", "4", second, storage),
        words.call("z", op, f"%ar, %br{rest}", ("4", "4"), "4"),
        *lines,
        words.qcast(made, "4", out, storage),
        gives=words.typed("4", out, storage),
    )


@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_each_is_one_operator(apply: Any, method: Any, words: Any, op: str):
    done = apply(pair(words, method, f"aten.{op}.Tensor"), step(elementwise.arithmetic))
    assert done.ops() == [f"cmsis.quantized_{'mul' if op == 'mul' else 'add'}"]


test_lower_arithmetic = cases(
    elementwise,
    """
lower-arithmetic: a whole alpha folds into a multiplier -> cmsis.quantized_add
    %ar = quant.dcast(%a: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5:2>[4])
    %z = aten.add.Tensor(%ar, %br, alpha=3); %y = quant.qcast(%z) -> i8<2.0>[4]
lower-arithmetic: another alpha -> refused: an integer other than 0
    - %ar = quant.dcast(%a: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5:2>[4])
      %z = aten.add.Tensor(%ar, %br, alpha=1.5); %y = quant.qcast(%z) -> i8<1.0>[4]
    - %ar = quant.dcast(%a: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5:2>[4])
      %z = aten.add.Tensor(%ar, %br, alpha=0); %y = quant.qcast(%z) -> i8<1.0>[4]
lower-arithmetic: a sum far beyond its results scale -> refused: takes the requantization past int32
    %ar = quant.dcast(%a: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5:2>[4])
    %z = aten.sub.Tensor(%ar, %br); %y = quant.qcast(%z) -> i8<1.0e-08>[4]
lower-arithmetic: a product far beyond its results scale -> refused: takes the product past int32
    %ar = quant.dcast(%a: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5:2>[4])
    %z = aten.mul.Tensor(%ar, %br); %y = quant.qcast(%z) -> i8<1.0e-06>[4]
lower-arithmetic: a number as operand is a tables business -> unchanged
    %ar = quant.dcast(%a: i8<0.5>[4]); %n = sym.constant 2.000000e+00 : f64 : !stepwell.float<"2.0">
    %z = aten.add.Tensor(%ar, %n); %y = quant.qcast(%z) -> i8<0.25>[4]
lower-arithmetic: an int16 division is the librarys -> cmsis.quantized_div
    %ar = quant.dcast(%a: i16<0.01>[4]); %br = quant.dcast(%b: i16<0.01>[4])
    %z = aten.div.Tensor(%ar, %br); %y = quant.qcast(%z) -> i16<0.01>[4]
lower-arithmetic: a clamp behind an int16 division has no table -> refused: the tables that clamp hold int8
    %ar = quant.dcast(%a: i16<0.01>[4]); %br = quant.dcast(%b: i16<0.01>[4])
    %z = aten.div.Tensor(%ar, %br)
    %c = aten.relu.default(%z); %y = quant.qcast(%c) -> i16<0.01>[4]
""",
)
