"""What the integer rewrites of TOSA leave alone, each with its reason; and what they give."""

from typing import Any

import pytest

from stepwell.translate.rewrites.tosa.compose_byte_functions import ComposeByteFunctions
from stepwell.translate.rewrites.tosa.fold_quantised_constant import FoldQuantisedConstant
from stepwell.translate.rewrites.tosa.hoist_rescale_over_maximum import HoistRescaleOverMaximum
from stepwell.translate.rewrites.tosa.lower_int8 import INT8, LowerInt8Add, LowerInt8Mul
from stepwell.translate.rewrites.tosa.lower_int8_reduction import LowerInt8Reduction

Case = tuple[Any, tuple[str, ...], str]


def computed(line: str, x: str, y: str, held: str = "i8<0.5:3>", made: str = "i8<1.0>") -> Any:
    return (
        f"%x: {held}[{x}]",
        f"%xr = quant.dcast %x : {held}[{x}] to f32[{x}]",
        *line.split("; "),
        f"%y = quant.qcast %z : f32[{y}] to {made}[{y}]",
    )


def reduced(name: str, axes: str, x: str, y: str, **held: str) -> Any:
    line = f"%z = aten.{name}(%xr, {axes}, true) : (f32[{x}]) -> f32[{y}]"
    return computed(line, x, y, **held)


NUMBER = '%n = stepwell.weight <"n"> "constant" : i8[1]; %t = quant.scast %n : i8[1] to i8<0.1>[1]; %c = quant.dcast %t : i8<0.1>[1] to f32[1]'
PLAIN = "input_unsigned = false, output_unsigned = false, per_channel = {}, rounding_mode = SINGLE_ROUND, scale32 = true"


def constant(name: str, held: str, size: int = 1) -> str:
    return f'%{name} = stepwell.weight <"{name}#ones"> "constant" : {held}[{size}]'


def rescaled(y: str, x: str, shapes: tuple[str, str], numbers: str = "m s", kind: str = "") -> str:
    """`%y = rescale %x`, from and to the types of `shapes`, by the constants `numbers`."""
    m, s = numbers.split()
    size = 4 if kind == "true" else 1
    given, made = (shape.split("[")[0] for shape in shapes)
    return (
        f"%{y} = tosa.rescale %{x}, %{m}, %{s}, %z_{given}, %z_{made} {{{PLAIN.format(kind or 'false')}}} : "
        f"({shapes[0]}, i32[{size}], i8[{size}], {given}[1], {made}[1]) -> {shapes[1]}"
    )


NUMBERS = (
    constant("m", "i32"),
    constant("s", "i8"),
    *(f'%z_{held} = stepwell.weight <"z_{held}#zeros"> "constant" : {held}[1]' for held in ("i8", "i32")),
)  # fmt: skip
ROW, TOP, WIDE_ROW, WIDE_TOP = "i8[2, 4]", "i8[2, 1]", "i32[2, 4]", "i32[2, 1]"
GREATEST = f"%g = tosa.reduce_max %x {{axis = 1 : i32}} : ({ROW}) -> {TOP}"
DIFFERENCE = f"%y = tosa.sub %r, %q : ({WIDE_ROW}, {WIDE_TOP}) -> {WIDE_ROW}"
TABLE = f"%y = tosa.table %r, %t : ({ROW}, i8[256]) -> {ROW}"

CASES: dict[str, Case] = {
    # --- reductions ------------------------------------------------------------------------
    "a mean of images": (
        LowerInt8Reduction(),
        reduced("mean.dim", "[2, 3]", "1, 2, 3, 3", "1, 2, 1, 1"),
        "the mean of images is a pool",
    ),
    "a sum past int32": (
        LowerInt8Reduction(),
        reduced("sum.dim_IntList", "[0, 1]", "2, 4194305", "1, 1"),
        "can pass int32",
    ),
    "a sum of 16 bits past int32": (
        LowerInt8Reduction(),
        reduced("sum.dim_IntList", "[0]", "32769", "1", held="i16<0.5>", made="i16<1.0>"),
        "can pass int32",
    ),
    # --- functions of one value --------------------------------------------------------------
    "a square": (
        LowerInt8Mul(),
        computed("%z = aten.mul.Tensor(%xr, %xr) : (f32[4], f32[4]) -> f32[4]", "4", "4"),
        "a function of one value is a TABLE",
    ),
    "a sum with a number": (
        LowerInt8Add(),
        computed(f"{NUMBER}; %z = aten.add.Tensor(%xr, %c) : (f32[4], f32[1]) -> f32[4]", "4", "4"),
        "a function of one value is a TABLE",
    ),
    "a constant that is computed of an input": (
        FoldQuantisedConstant(),
        computed("%z = aten.neg.default(%xr) : (f32[4]) -> f32[4]", "4", "4"),
        "",
    ),
    # --- tables -------------------------------------------------------------------------------
    "a table of what was rescaled from 32 bits": (
        ComposeByteFunctions(),
        (f"%x: {WIDE_ROW}", *NUMBERS, constant("t", "i8", 256), rescaled("r", "x", (WIDE_ROW, ROW)), TABLE),
        "",
    ),
    "a rescale to 32 bits of a table": (
        ComposeByteFunctions(),
        (
            f"%x: {ROW}", *NUMBERS, constant("t", "i8", 256),
            f"%r = tosa.table %x, %t : ({ROW}, i8[256]) -> {ROW}",
            rescaled("y", "r", (ROW, WIDE_ROW)),
        ),
        "",
    ),
    "a scale for each channel": (
        ComposeByteFunctions(),
        (
            f"%x: {ROW}", *NUMBERS, constant("t", "i8", 256), constant("mm", "i32", 4),
            constant("ss", "i8", 4), rescaled("r", "x", (ROW, ROW), "mm ss", "true"), TABLE,
        ),
        "",
    ),
    "a table of run time": (
        ComposeByteFunctions(),
        (f"%x: {ROW}, %t: i8[256]", *NUMBERS, rescaled("r", "x", (ROW, ROW)), TABLE),
        "",
    ),
    # --- maxima -------------------------------------------------------------------------------
    "a maximum that is rescaled otherwise": (
        HoistRescaleOverMaximum(),
        (
            f"%x: {ROW}", *NUMBERS, constant("k", "i32", 1).replace("#ones", "#zeros"), GREATEST,
            rescaled("r", "x", (ROW, WIDE_ROW)), rescaled("q", "g", (TOP, WIDE_TOP), "k s"), DIFFERENCE,
        ),
        "nothing rescales the row by the same numbers",
    ),
    "a row that is rescaled to other bits": (
        HoistRescaleOverMaximum(),
        (
            f"%x: {ROW}", *NUMBERS, '%z_i16 = stepwell.weight <"z16#zeros"> "constant" : i16[1]',
            GREATEST, rescaled("h", "x", (ROW, "i16[2, 4]")), rescaled("q", "g", (TOP, WIDE_TOP)),
            f"%r = tosa.cast %h : (i16[2, 4]) -> {WIDE_ROW}", DIFFERENCE,
        ),
        "nothing rescales the row by the same numbers",
    ),
    "a row that is rounded otherwise": (
        HoistRescaleOverMaximum(),
        (
            f"%x: {ROW}", *NUMBERS, GREATEST, rescaled("q", "g", (TOP, WIDE_TOP)),
            rescaled("r", "x", (ROW, WIDE_ROW)).replace("SINGLE", "DOUBLE"), DIFFERENCE,
        ),
        "nothing rescales the row by the same numbers",
    ),
    "a row that only moves": (
        HoistRescaleOverMaximum(),
        (
            f"%x: {ROW}", *NUMBERS, GREATEST, rescaled("q", "g", (TOP, WIDE_TOP)),
            f"%r = tosa.cast %x : ({ROW}) -> {WIDE_ROW}", DIFFERENCE,
        ),
        "nothing rescales the row by the same numbers",
    ),
    "factors of run time": (
        HoistRescaleOverMaximum(),
        (
            f"%x: {ROW}, %k: i32[1], %l: i32[1]", *NUMBERS, GREATEST,
            rescaled("r", "x", (ROW, WIDE_ROW), "k s"), rescaled("q", "g", (TOP, WIDE_TOP), "l s"),
            DIFFERENCE,
        ),
        "nothing rescales the row by the same numbers",
    ),
    "a maximum that is read as it is": (
        HoistRescaleOverMaximum(),
        (
            f"%x: {ROW}", *NUMBERS, GREATEST, rescaled("r", "x", (ROW, WIDE_ROW)),
            rescaled("q", "g", (TOP, WIDE_TOP)), rescaled("p", "g", (TOP, TOP)),
            f"%f = tosa.sub %r, %q : ({WIDE_ROW}, {WIDE_TOP}) -> {WIDE_ROW}",
            f"%y = tosa.concat %p, %g {{axis = 1 : i32}} : ({TOP}, {TOP}) -> i8[2, 2]",
        ),
        "another op reads the maximum as it is",
    ),
    "a rescale of no maximum": (
        HoistRescaleOverMaximum(),
        (f"%x: {ROW}", *NUMBERS, rescaled("y", "x", (ROW, WIDE_ROW))),
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_has_no_such_form_keeps_its_reason(refused: Any, written: Any, name: str) -> None:
    rewrite, lines, reason = CASES[name]
    refused(written(*lines), rewrite, reason)


SAME, OTHER = {"made": "i8<0.5:3>"}, {"made": "i8<0.25:-7>"}
REDUCED: dict[str, tuple[Any, list[str]]] = {
    "a sum": (reduced("sum.dim_IntList", "[1]", "3, 4", "3, 1"), ["rescale", "reduce_sum", "rescale"]),
    "a mean of two axes": (
        reduced("mean.dim", "[0, 1]", "3, 4", "1, 1"),
        ["rescale", "reduce_sum", "reduce_sum", "rescale"],
    ),
    "a maximum": (reduced("amax.default", "[1]", "3, 4", "3, 1", **SAME), ["reduce_max"]),
    "a minimum at another scale": (
        reduced("amin.default", "[-2]", "3, 4", "1, 4", **OTHER),
        ["reduce_min", "rescale"],
    ),
    "a sum of 16 bits": (
        reduced("sum.dim_IntList", "[1]", "3, 4", "3, 1", held="i16<0.5>", made="i16<0.75>"),
        ["rescale", "reduce_sum", "rescale"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCED)
def test_a_reduction_is_within_a_unit_of_the_floats(apply: Any, written: Any, name: str) -> None:
    lines, operators = REDUCED[name]
    done = apply(written(*lines), LowerInt8Reduction())
    assert [op.removeprefix("tosa.") for op in done.ops() if "scast" not in op] == operators


@pytest.mark.parametrize("function", ["mul.Tensor", "sub.Tensor"])
def test_a_function_of_one_value_and_numbers_is_one_table(
    apply: Any, written: Any, function: str
) -> None:
    line = f"{NUMBER}; %z = aten.{function}(%xr, %c) : (f32[4], f32[1]) -> f32[4]"
    done = apply(written(*computed(line, "4", "4")), *INT8)
    assert [op for op in done.ops() if "scast" not in op] == ["tosa.table"]


def test_a_constant_operand_is_rescaled_ahead_of_time(apply: Any, written: Any) -> None:
    weights = (
        NUMBER.replace("i8[1]", "i8[4]")
        .replace("f32[1]", "f32[4]")
        .replace("i8<0.1>[1]", "i8<0.1>[4]")
    )
    line = f"{weights}; %z = aten.add.Tensor(%xr, %c) : (f32[2, 4], f32[4]) -> f32[2, 4]"
    done = apply(written(*computed(line, "2, 4", "2, 4")), *INT8)
    assert [op for op in done.ops() if "scast" not in op] == ["tosa.rescale", "tosa.add", "tosa.rescale"]  # fmt: skip
