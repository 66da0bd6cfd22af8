"""What the integer rewrites of TOSA leave alone, each with its reason; and what they give."""

from typing import Any

import pytest
from integer_texts import PRODUCT, SHORT, SOFTMAX, TANH, WIDE_NUMBER, computed

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.tosa.integers.elementwise import (
    int8_add,
    int8_extremum,
    int8_mul,
    int8_pad,
)
from stepwell.translate.lowerings.tosa.integers.functions import (
    int8_comparison,
    int8_function,
    int8_requantize,
    int16_function,
    int16_scale,
)
from stepwell.translate.lowerings.tosa.integers.layers import int8_linear
from stepwell.translate.lowerings.tosa.integers.reductions import (
    int8_cumsum,
    int8_pool,
    int8_reduction,
    int8_resize,
)
from stepwell.translate.lowerings.tosa.integers.softmax import int8_softmax, softmax_by_table
from stepwell.translate.rewrites.tosa.integers.choose_stored_integers import ChooseStoredIntegers
from stepwell.translate.rewrites.tosa.integers.compose_byte_functions import ComposeByteFunctions
from stepwell.translate.rewrites.tosa.integers.fold_quantized_constant import FoldQuantizedConstant
from stepwell.translate.rewrites.tosa.integers.hoist_rescale_over_maximum import (
    HoistRescaleOverMaximum,
)
from stepwell.translate.rewrites.tosa.layout.order import INTEGERS

Case = tuple[Any, tuple[str, ...], str]


def reduced(name: str, axes: str, x: str, y: str, **held: str) -> Any:
    line = f"%z = aten.{name}(%xr, {axes}, true) : (f32[{x}]) -> f32[{y}]"
    return computed(line, x, y, **held)


def between(held: str, made: str) -> Any:
    return (
        f"%x: {held}[4]",
        f"%z = quant.dcast %x : {held}[4] to f32[4]",
        f"%y = quant.qcast %z : f32[4] to {made}[4]",
    )


DCAST = "%{} = quant.dcast %{} : {} to f32[{}]"
EQUAL = "%w = aten.eq.Tensor(%a, %b) : (f32[{0}], f32[{0}]) -> i1[{0}]"
MAXIMUM = "%w = aten.maximum.default(%a, %b) : (f32[{0}], f32[{0}]) -> f32[{0}]"
HALVES = "tensor<4x!quant.uniform<i16:f16, 0.5>>"


def two(line: str, one: str, other: str, size: str = "4", made: str = "") -> Any:
    """`%w` of two values between casts; without a type of its result it is returned."""
    sides = (
        DCAST.format("a", "x", f"{one}[{size}]", size),
        DCAST.format("b", "z", f"{other}[{size}]", size),
    )
    last = f"%y = quant.qcast %w : f32[{size}] to {made}[{size}]"
    lines = (line.format(size), last) if made else (line.format(size).replace("%w", "%y"),)
    return (f"%x: {one}[{size}], %z: {other}[{size}]", *sides, *lines)


def layered(weight: str, x: str, y: str) -> Any:
    """A linear layer of bytes."""
    n = f'%n = stepwell.weight <"n"> "constant" : i8[{weight}]; %t = quant.scast %n : i8[{weight}] to i8<0.1>[{weight}]; %c = quant.dcast %t : i8<0.1>[{weight}] to f32[{weight}]'
    return computed(
        f"{n}; %z = aten.linear.default(%xr, %c) : (f32[{x}], f32[{weight}]) -> f32[{y}]", x, y
    )


def put(line: str, new: str, more: str = "", end: str = "") -> Any:
    """Two elements put among four."""
    sides = (DCAST.format("a", "x", "i8<0.5>[4]", "4"), DCAST.format("b", "z", f"{new}[2]", "2"))
    call = line.format(f"aten.index_put.default(%a, [%i], %b{more})", "(f32[4], i64[2], f32[2])")
    return (f"%x: i8<0.5>[4], %z: {new}[2], %i: i64[2]", *sides, call, *([end] if end else []))


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
        step(int8_reduction),
        reduced("mean.dim", "[2, 3]", "1, 2, 3, 3", "1, 2, 1, 1"),
        "which a pool computes",
    ),
    "a sum past int32": (
        step(int8_reduction),
        reduced("sum.dim_IntList", "[0, 1]", "2, 4194305", "1, 1"),
        "can exceed RESCALE's range",
    ),
    "a sum of 16 bits past int32": (
        step(int8_reduction),
        reduced("sum.dim_IntList", "[0]", "32769", "1", held="i16<0.5>", made="i16<1.0>"),
        "can exceed RESCALE's range",
    ),
    "a sum at a fine scale": (
        step(int8_reduction),
        reduced("sum.dim_IntList", "[0]", "128", "1", made="i8<0.000001>"),
        "can exceed RESCALE's range",
    ),
    # --- softmax ------------------------------------------------------------------------------
    "a softmax of 16 bits": (
        step(int8_softmax),
        computed(SOFTMAX.format("2, 4"), "2, 4", "2, 4", "i16<0.001>", "i16<0.0001>"),
        "interpolates",
    ),
    "a softmax of a long row": (
        step(int8_softmax),
        computed(SOFTMAX.format("1, 4096"), "1, 4096", "1, 4096", made="i8<0.00390625:-128>"),
        "needs more than 32 bits",
    ),
    "a softmax at a fine scale": (
        step(int8_softmax),
        computed(SOFTMAX.format("2, 4"), "2, 4", "2, 4", made="i8<0.0001>"),
        "needs more than 32 bits",
    ),
    "a softmax whose result stays a float": (
        step(int8_softmax),
        ("%x: i8<0.5:3>[2, 4]", "%xr = quant.dcast %x : i8<0.5:3>[2, 4] to f32[2, 4]", SOFTMAX.format("2, 4").replace("%z", "%y")),
        "as a float by",
    ),
    # --- casts and functions of bytes ---------------------------------------------------------
    "a cast past the reach of RESCALE": (step(int8_requantize), between("i8<0.5:3>", "i8<0.000000000001>"), "beyond what RESCALE reaches"),
    "a cast of four bits": (step(int8_requantize), between("i4<0.5>", "i8<1.0>"), "quantized to int4"),
    "a cast of a float": (step(int8_function), ("%x: f32[4]", "%y = quant.qcast %x : f32[4] to i8<1.0>[4]"), ""),
    "a function of bytes to 16 bits": (step(int8_function), computed(TANH, "4", "4", "i8<0.5>", "i16<0.001>"), "its result is quantized to int16"),
    "a function of 16 bits of any length": (step(int16_function), computed(TANH.replace("4", "s0"), "s0", "s0", *SHORT), "a size is symbolic"),
    # --- comparisons --------------------------------------------------------------------------
    "a comparison of four bits": (step(int8_comparison), two(EQUAL, "i4<0.5>", "i4<0.5>"), "quantized to int4"),
    "four bits beside a number": (step(int8_comparison), ("%x: i4<0.5>[4]", "%a = quant.dcast %x : i4<0.5>[4] to f32[4]", "%y = aten.eq.Scalar(%a, 2.0) : (f32[4]) -> i1[4]"), "quantized to int4"),
    "a comparison of any length": (step(int8_comparison), two(EQUAL, "i8<0.5>", "i8<0.5>", "s0"), "symbolic"),
    "16 bits beside a number": (step(int8_comparison), ("%x: i16<0.5>[4]", DCAST.format("a", "x", "i16<0.5>[4]", "4"), "%y = aten.eq.Scalar(%a, 2.0) : (f32[4]) -> i1[4]"), "interpolates"),
    "bytes beside a number that adds an axis": (
        step(int8_comparison),
        ("%x: i8<0.5>[4]", DCAST.format("a", "x", "i8<0.5>[4]", "4"), *NUMBER.replace("[1]", "[1, 1]").split("; "), "%y = aten.eq.Tensor(%a, %c) : (f32[4], f32[1, 1]) -> i1[1, 4]"),
        "a shape that the value takes on",
    ),
    "bytes beside several numbers": (
        step(int8_comparison),
        ("%x: i8<0.5>[4]", DCAST.format("a", "x", "i8<0.5>[4]", "4"), *NUMBER.replace("[1]", "[4]").split("; "), "%y = aten.eq.Tensor(%a, %c) : (f32[4], f32[4]) -> i1[4]"),
        "several scales",
    ),
    "bytes beside floats": (
        step(int8_comparison),
        ("%x: i8<0.5>[4], %b: f32[4]", DCAST.format("a", "x", "i8<0.5>[4]", "4"), EQUAL.format("4").replace("%w", "%y")),
        "is not quantized",
    ),
    "bytes of two scales": (step(int8_comparison), two(EQUAL, "i8<0.5>", "i8<0.25>"), "several scales"),
    # --- scales -------------------------------------------------------------------------------
    "a maximum past 14 bits": (step(int8_extremum), two(MAXIMUM, "i8<0.5>", "i8<0.25>", made="i8<0.00001>"), "a factor of 50000 is beyond"),
    "a maximum past the reach of RESCALE": (step(int8_extremum), two(MAXIMUM, "i8<0.5>", "i8<0.25>", made="i8<0.000000000001>"), "beyond what RESCALE reaches"),
    "a product past the reach of RESCALE": (step(int8_mul), two(MAXIMUM.replace("maximum.default", "mul.Tensor"), "i8<0.5>", "i8<0.25>", made="i8<0.000000000001>"), "beyond what RESCALE reaches"),
    "16 bits of halves": (
        step(int8_add),
        (f"%x: {HALVES}, %z: {HALVES}", f"%a = quant.dcast %x : {HALVES} to f16[4]", f"%b = quant.dcast %z : {HALVES} to f16[4]", "%w = aten.add.Tensor(%a, %b) : (f16[4], f16[4]) -> f16[4]", f"%y = quant.qcast %w : f16[4] to {HALVES}"),
        "coarser than 16-bit integers",
    ),
    "a padding that cuts": (step(int8_pad), computed("%z = aten.constant_pad_nd.default(%xr, [-1, 0]) : (f32[4]) -> f32[3]", "4", "3"), "the padding is negative"),
    # --- layers and rows ----------------------------------------------------------------------
    "a layer of one row": (step(int8_linear), layered("4", "2, 4", "2"), "its weight is one row"),
    "a sum without its axes": (step(int8_reduction), computed("%z = aten.sum.dim_IntList(%xr, [1], false) : (f32[2, 4]) -> f32[2]", "2, 4", "2"), "its axes are not kept"),
    "a running sum of one byte": (step(int8_cumsum), computed("%z = aten.cumsum.default(%xr, 0) : (f32[]) -> f32[]", "", ""), "a scalar"),
    "an image of bytes by another scale": (
        step(int8_resize),
        computed("%z = aten.upsample_nearest2d.default(%xr, [6, 6], 1.0, 2.0) : (f32[1, 2, 3, 3]) -> f32[1, 2, 6, 6]", "1, 2, 3, 3", "1, 2, 6, 6"),
        "3 elements by a scale of 1.0 are not 6",
    ),
    "a row whose exponentials pass 32 bits": (step(softmax_by_table), computed(SOFTMAX.format("1, 40000"), "1, 40000", "1, 40000"), "needs more than 32 bits"),
    "a maximum of one image": (
        step(int8_pool),
        computed("%z = aten.max_pool2d.default(%xr, [2, 2]) : (f32[1, 4, 4]) -> f32[1, 2, 2]", "1, 4, 4", "1, 2, 2"),
        "not a batch of images",
    ),
    "an average beside padding of an image of any width": (
        step(int8_pool),
        computed("%z = aten.avg_pool2d.default(%xr, [3, 3], [1, 1], [1, 1], false, false) : (f32[1, 1, 6, s0]) -> f32[1, 1, 6, s0]", "1, 1, 6, s0", "1, 1, 6, s0", made="i8<0.01>"),
        "a symbolic size decides",
    ),
    # --- choices ------------------------------------------------------------------------------
    "bytes that are added in places": (ChooseStoredIntegers(), put("%y = {} : {} -> f32[4]", "i8<0.5>", ", true"), "adds to existing elements"),
    "bytes of two scales put into floats": (ChooseStoredIntegers(), put("%y = {} : {} -> f32[4]", "i8<0.25>"), "as a float by"),
    "bytes put past 14 bits": (ChooseStoredIntegers(), put("%w = {} : {} -> f32[4]", "i8<0.25>", end="%y = quant.qcast %w : f32[4] to i8<0.00001>[4]"), "a factor of 50000 is beyond"),
    # --- functions of 16 bits -----------------------------------------------------------------
    "a function of two values of 16 bits": (
        step(int16_function),
        computed("%z = aten.cumsum.default(%xr, 0) : (f32[4]) -> f32[4]", "4", "4", *SHORT),
        "",
    ),
    "casts of 16 bits alone": (
        step(int16_function),
        ("%x: i16<0.5>[4]", "%z = quant.dcast %x : i16<0.5>[4] to f32[4]", "%y = quant.qcast %z : f32[4] to i16<1.0>[4]"),
        "",
    ),
    "a function of 16 bits that adds an axis": (
        step(int16_function),
        computed(f"{WIDE_NUMBER.replace('[1]', '[1, 1]')}; %z = aten.add.Tensor(%xr, %c) : (f32[4], f32[1, 1]) -> f32[1, 4]", "4", "1, 4", *SHORT),
        "",
    ),
    "a function of 8 bits to 16": (
        step(int16_function),
        computed(TANH, "4", "4", "i8<0.5>", "i16<0.001>"),
        "a value is quantized to",
    ),
    "a function of 16 bits to 8": (
        step(int16_function),
        computed(TANH, "4", "4", "i16<0.001>", "i8<0.5>"),
        "a value is quantized to",
    ),
    "a function of 16 bits with a zero point": (
        step(int16_function),
        computed(TANH, "4", "4", "i16<0.001>", "i16<0.001:3>"),
        "zero point",
    ),
    "a product of 8 bits with a number": (
        step(int16_scale),
        computed(f"{NUMBER}; {PRODUCT}", "4", "4"),
        "",
    ),
    "a product of two values of 16 bits": (
        step(int16_scale),
        computed("%z = aten.mul.Tensor(%xr, %xr) : (f32[4], f32[4]) -> f32[4]", "4", "4", *SHORT),
        "",
    ),
    "a product with a number that adds an axis": (
        step(int16_scale),
        computed(f"{WIDE_NUMBER.replace('[1]', '[1, 1]')}; %z = aten.mul.Tensor(%xr, %c) : (f32[4], f32[1, 1]) -> f32[1, 4]", "4", "1, 4", *SHORT),
        "",
    ),
    "a product of 16 bits with zero": (
        step(int16_scale),
        computed(f"{WIDE_NUMBER.replace('#ones', '#zeros')}; {PRODUCT}", "4", "4", *SHORT),
        "is not positive",
    ),
    "a product of 16 bits past the reach of RESCALE": (
        step(int16_scale),
        computed(f"{WIDE_NUMBER}; {PRODUCT}", "4", "4", "i16<0.5>", "i16<0.000001>"),
        "outside RESCALE's range",
    ),
    "a product of 16 bits that stays a float": (
        step(int16_scale),
        (*computed(f"{WIDE_NUMBER}; {PRODUCT.replace('%z', '%y')}", "4", "4", *SHORT)[:-1],),
        "as a float by",
    ),
    # --- functions of one value --------------------------------------------------------------
    "a square": (
        step(int8_mul),
        computed("%z = aten.mul.Tensor(%xr, %xr) : (f32[4], f32[4]) -> f32[4]", "4", "4"),
        "which a TABLE computes",
    ),
    "a sum with a number": (
        step(int8_add),
        computed(f"{NUMBER}; %z = aten.add.Tensor(%xr, %c) : (f32[4], f32[1]) -> f32[4]", "4", "4"),
        "which a TABLE computes",
    ),
    "a constant that is computed of an input": (
        FoldQuantizedConstant(),
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
    done = apply(written(*lines), step(int8_reduction))
    assert [op.removeprefix("tosa.") for op in done.ops() if "scast" not in op] == operators


@pytest.mark.parametrize("function", ["mul.Tensor", "sub.Tensor"])
def test_a_function_of_one_value_and_numbers_is_one_table(
    apply: Any, written: Any, function: str
) -> None:
    line = f"{NUMBER}; %z = aten.{function}(%xr, %c) : (f32[4], f32[1]) -> f32[4]"
    done = apply(written(*computed(line, "4", "4")), *INTEGERS)
    assert [op for op in done.ops() if "scast" not in op] == ["tosa.table"]


def test_a_constant_operand_is_rescaled_ahead_of_time(apply: Any, written: Any) -> None:
    weights = (
        NUMBER.replace("i8[1]", "i8[4]")
        .replace("f32[1]", "f32[4]")
        .replace("i8<0.1>[1]", "i8<0.1>[4]")
    )
    line = f"{weights}; %z = aten.add.Tensor(%xr, %c) : (f32[2, 4], f32[4]) -> f32[2, 4]"
    done = apply(written(*computed(line, "2, 4", "2, 4")), *INTEGERS)
    assert [op for op in done.ops() if "scast" not in op] == ["tosa.rescale", "tosa.add", "tosa.rescale"]  # fmt: skip


AVERAGES = {
    "an average of windows whose sizes have no small multiple": ("1, 1, 12, 12", "1, 1, 12, 12", 13, 6, "i8<0.5:3>"),
    "an average of 16 bits": ("1, 1, 6, 6", "1, 1, 5, 5", 2, 0, "i16<0.5>"),
}  # fmt: skip


@pytest.mark.parametrize("name", AVERAGES)
def test_what_is_not_summed_in_bytes_is_a_pool(apply: Any, written: Any, name: str) -> None:
    x, y, kernel, pad, held = AVERAGES[name]
    line = f"%z = aten.avg_pool2d.default(%xr, [{kernel}, {kernel}], [1, 1], [{pad}, {pad}], false, false) : (f32[{x}]) -> f32[{y}]"
    made = held.replace("0.5", "0.01")
    done = apply(written(*computed(line, x, y, held, made)), step(int8_pool))
    assert "tosa.avg_pool2d" in done.ops()


def test_an_average_of_an_image_of_any_width_rounds_once(apply: Any, written: Any) -> None:
    line = "%z = aten.avg_pool2d.default(%xr, [2, 2], [1, 1]) : (f32[1, 1, 6, s0]) -> f32[1, 1, 5, s0 - 1]"
    lines = computed(line, "1, 1, 6, s0", "1, 1, 5, s0 - 1", "i8<0.5>", "i8<0.01>")
    assert "tosa.depthwise_conv2d" in apply(written(*lines), step(int8_pool)).ops()


def test_a_layer_of_rows_of_no_stated_number_is_left(left: Any, written: Any) -> None:
    left(written(*layered("3, 4", "?, 4", "?, 3")), step(int8_linear), "not even as an expression")


def test_rows_chosen_of_no_stated_number_are_left(left: Any, written: Any) -> None:
    text = written(
        "%x: i8<0.5>[s0, 4], %i: i64[?, 2]",
        DCAST.format("a", "x", "i8<0.5>[s0, 4]", "s0, 4"),
        "%y = aten.gather.default(%a, 0, %i) : (f32[s0, 4], i64[?, 2]) -> f32[?, 2]",
    )
    left(text, ChooseStoredIntegers(), "not even as an expression")
