"""What the lowerings of resizing, ordering, scattering, … leave alone, each with its reason."""

from typing import Any

import pytest

from stepwell.translate.decompositions import promotions, slices
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.tosa import discrete, reductions, resizing
from stepwell.translate.lowerings.tosa.indexed import indices, orders, scatters
from stepwell.translate.lowerings.tosa.integers.reductions import int8_resize

SIZE = '%n = aten.sym_size.int(%s, 0) : (f32[s0]) -> !stepwell.int<"s0">'
INT = '!stepwell.int<"s0">'
RUN, SYMBOLIC = "known only at run time", "is symbolic"


def resized(storage: str, op: str, x: str, y: str) -> tuple[str, ...]:
    return (
        f"%x: {storage}<0.5>[{x}]",
        f"%r = quant.dcast %x : {storage}<0.5>[{x}] to f32[{x}]",
        f"%z = aten.{op} : (f32[{x}]) -> f32[{y}]",
        f"%y = quant.qcast %z : f32[{y}] to {storage}<1.0>[{y}]",
    )


def one(arguments: str, call: str, types: str, result: str) -> tuple[str, ...]:
    return arguments, f"%y = aten.{call} : ({types}) -> {result}"


CASES: dict[str, tuple[Any, tuple[str, ...], str]] = {
    # --- resizing ----------------------------------------------------------------------------
    "an image of integers": (
        resizing,
        one(
            "%x: ui8[1, 1, 2, 2]",
            "upsample_nearest2d.default(%x, [4, 4])",
            "ui8[1, 1, 2, 2]",
            "ui8[1, 1, 4, 4]",
        ),
        "uint8",
    ),
    "an image of run time": (
        resizing,
        one(
            "%x: f32[1, 1, s0, 2]",
            "upsample_nearest2d.default(%x, [4, 4])",
            "f32[1, 1, s0, 2]",
            "f32[1, 1, 4, 4]",
        ),
        "the plane of the image is symbolic",
    ),
    "a volume of int8": (
        step(int8_resize),
        resized(
            "i8", "upsample_nearest3d.default(%r, [2, 2, 2])", "1, 1, 1, 1, 1", "1, 1, 2, 2, 2"
        ),
        "RESIZE has two axes",
    ),
    "int8 that RESIZE has no numbers for": (
        step(int8_resize),
        resized("i8", "upsample_nearest2d.default(%r, [1, 1])", "1, 1, 20, 2", "1, 1, 1, 1"),
        "no numbers for these sizes",
    ),
    "int16 between pixels": (
        step(int8_resize),
        resized(
            "i16", "upsample_bilinear2d.default(%r, [4, 4], false)", "1, 1, 2, 2", "1, 1, 4, 4"
        ),
        "48 bits",
    ),
    # --- order and places --------------------------------------------------------------------
    "places of the largest integers": (
        reductions,
        (
            "%x: i32[2, 3]",
            "%v, %y = aten.max.dim(%x, 1) : (i32[2, 3]) -> (i32[2], i64[2])",
        ),
        "int32",
    ),
    "the largest byte": (
        reductions,
        one("%x: i8[3]", "max.default(%x)", "i8[3]", "i8[]"),
        "int8",
    ),
    "a single number in order": (
        orders,
        ("%x: f32[]", "%y, %i = aten.sort.default(%x) : (f32[]) -> (f32[], i64[])"),
        "a scalar",
    ),
    "a long row in order": (
        orders,
        ("%x: f32[257]", "%y, %i = aten.topk.default(%x, 33) : (f32[257]) -> (f32[33], i64[33])"),
        "33 of 257 in order",
    ),
    "integers in order": (
        orders,
        ("%x: i32[3]", "%y, %i = aten.sort.default(%x) : (i32[3]) -> (i32[3], i64[3])"),
        "int32",
    ),
    "elements of a number": (
        indices,
        (
            "%x: f32[]",
            '%i = stepwell.weight <"#zeros"> "constant" : i64[1]',
            "%y = aten.gather.default(%x, 0, %i) : (f32[], i64[1]) -> f32[1]",
        ),
        "the operand is a scalar",
    ),
    # --- scatters ----------------------------------------------------------------------------
    "many writes": (
        scatters,
        one(
            "%x: f32[4], %i: i64[33], %s: f32[33]",
            "scatter.src(%x, 0, %i, %s)",
            "f32[4], i64[33], f32[33]",
            "f32[4]",
        ),
        "33 writes to indices that may be equal",
    ),
    "many comparisons": (
        scatters,
        one(
            "%x: f32[5000], %i: i64[5000], %s: f32[5000]",
            "scatter_add.default(%x, 0, %i, %s)",
            "f32[5000], i64[5000], f32[5000]",
            "f32[5000]",
        ),
        "comparisons, above",
    ),
    "a sum of bytes": (
        scatters,
        one(
            "%x: i8[4], %i: i64[1], %s: i8[1]",
            "scatter_add.default(%x, 0, %i, %s)",
            "i8[4], i64[1], i8[1]",
            "i8[4]",
        ),
        "it writes into a scalar, or int8",
    ),
    "a scatter into a number": (
        scatters,
        (
            "%x: f32[]",
            '%i = stepwell.weight <"#zeros"> "constant" : i64[]',
            "%y = aten.scatter.value(%x, 0, %i, 3) : (f32[], i64[]) -> f32[]",
        ),
        "a scalar",
    ),
    "scaled rows": (
        scatters,
        one(
            "%x: f32[4], %i: i64[1], %s: f32[1]",
            "index_add.default(%x, 0, %i, %s, alpha=2)",
            "f32[4], i64[1], f32[1]",
            "f32[4]",
        ),
        "alpha is 2",
    ),
    "a part of another axis": (
        scatters,
        one(
            "%x: f32[2, 4], %i: i64[1, 1]",
            "scatter.value(%x, 1, %i, 3)",
            "f32[2, 4], i64[1, 1]",
            "f32[2, 4]",
        ),
        "a part of another axis",
    ),
    "a mean of what is written": (
        scatters,
        one(
            "%x: f32[4], %i: i64[1], %s: f32[1]",
            'scatter_reduce.two(%x, 0, %i, %s, "mean")',
            "f32[4], i64[1], f32[1]",
            "f32[4]",
        ),
        "reduces the written values by mean",
    ),
    "only what is written": (
        scatters,
        one(
            "%x: f32[4], %i: i64[1], %s: f32[1]",
            'scatter_reduce.two(%x, 0, %i, %s, "sum", include_self=false)',
            "f32[4], i64[1], f32[1]",
            "f32[4]",
        ),
        "must be ignored",
    ),
    "a shift of truth values": (
        discrete,
        one(
            "%x: i8[4], %s: i16[4]",
            "bitwise_left_shift.Tensor(%x, %s)",
            "i8[4], i16[4]",
            "i16[4]",
        ),
        "several dtypes",
    ),
    "a shift of 64 bits": (
        discrete,
        one("%x: i64[4]", "bitwise_left_shift.Tensor_Scalar(%x, 3)", "i64[4]", "i64[4]"),
        "8, 16 and 32 bits",
    ),
    "a slice of run time": (
        step(slices.write_slice_by_cat),
        (
            "%x: f32[9], %z: f32[s0], %s: f32[s0]",
            SIZE,
            f"%y = aten.slice_scatter.default(%x, %z, 0, 0, %n) : (f32[9], f32[s0], {INT}) -> f32[9]",
        ),
        RUN,
    ),
    "a row of run time": (
        step(slices.write_slice_by_cat),
        (
            "%x: f32[9], %z: f32[], %s: f32[s0]",
            SIZE,
            f"%y = aten.select_scatter.default(%x, %z, 0, %n) : (f32[9], f32[], {INT}) -> f32[9]",
        ),
        RUN,
    ),
    "rows of run time": (
        step(slices.write_slice_by_cat),
        one(
            "%x: f32[s0], %s: f32[]",
            "select_scatter.default(%x, %s, 0, 0)",
            "f32[s0], f32[]",
            "f32[s0]",
        ),
        SYMBOLIC,
    ),
    "a row of another type": (
        step(slices.write_slice_by_cat),
        one(
            "%x: f32[4], %s: f16[]",
            "select_scatter.default(%x, %s, 0, 0)",
            "f32[4], f16[]",
            "f32[4]",
        ),
        "several dtypes",
    ),
    # --- integers ----------------------------------------------------------------------------
    "bits of truth": (
        discrete,
        one("%x: i1[3]", "bitwise_not.default(%x)", "i1[3]", "i1[3]"),
        "",
    ),
    "bits of two widths": (
        discrete,
        one("%x: i32[4], %z: i8[4]", "bitwise_xor.Tensor(%x, %z)", "i32[4], i8[4]", "i32[4]"),
        "several dtypes",
    ),
    "bits and a size": (
        discrete,
        (
            "%x: i32[3], %s: f32[s0]",
            SIZE,
            f"%y = aten.bitwise_and.Scalar(%x, %n) : (i32[3], {INT}) -> i32[3]",
        ),
        RUN,
    ),
    "truth alone": (
        discrete,
        one("%x: i1[3]", "logical_not.default(%x)", "i1[3]", "i1[3]"),
        "",
    ),
    "a quotient that is not rounded": (
        discrete,
        one("%x: f32[3]", "div.Scalar_mode(%x, 2.0, rounding_mode=none)", "f32[3]", "f32[3]"),
        "not rounded",
    ),
    "integers by a fraction": (
        discrete,
        one("%x: i32[3]", 'div.Scalar_mode(%x, 0.5, rounding_mode="floor")', "i32[3]", "f32[3]"),
        "its operands are integers",
    ),
    "integers of two types": (
        discrete,
        (
            "%x: i64[3]",
            '%z = stepwell.weight <"#ones"> "constant" : i32[3]',
            '%y = aten.div.Tensor_mode(%x, %z, rounding_mode="floor") : (i64[3], i32[3]) -> i64[3]',
        ),
        "several dtypes",
    ),
    "a whole quotient of bytes": (
        discrete,
        one("%x: i8[3]", 'div.Scalar_mode(%x, 2, rounding_mode="floor")', "i8[3]", "i8[3]"),
        "no quotient of int8",
    ),
    "a whole quotient of floats": (
        discrete,
        one(
            "%x: f32[3], %z: f32[3]",
            'div.Tensor_mode(%x, %z, rounding_mode="floor")',
            "f32[3], f32[3]",
            "f32[3]",
        ),
        "its quotient rounds",
    ),
    "thirds": (
        discrete,
        one("%x: f32[3]", 'div.Scalar_mode(%x, 3.0, rounding_mode="floor")', "f32[3]", "f32[3]"),
        "no power of two",
    ),
    "a very large power": (
        discrete,
        one(
            "%x: f32[3]",
            'div.Scalar_mode(%x, 3.6893488147419103e+19, rounding_mode="floor")',
            "f32[3]",
            "f32[3]",
        ),
        "no power of two",
    ),
    "a whole quotient by a size": (
        discrete,
        (
            "%x: i32[3], %s: f32[s0]",
            SIZE,
            f"%y = aten.floor_divide.Scalar(%x, %n) : (i32[3], {INT}) -> i32[3]",
        ),
        RUN,
    ),
    "a quotient of rank 7": (
        discrete,
        one(
            "%x: i32[1, 1, 1, 1, 1, 1, 2]",
            "floor_divide.Scalar(%x, 3)",
            "i32[1, 1, 1, 1, 1, 1, 2]",
            "i32[1, 1, 1, 1, 1, 1, 2]",
        ),
        "rank 7 is above",
    ),
    "one type": (
        step(promotions.promote_operands),
        one("%x: f32[3]", "add.Tensor(%x, %x)", "f32[3], f32[3]", "f32[3]"),
        "",
    ),
    "a number for a tensor": (
        step(promotions.promote_operands),
        (
            "%x: f32[3], %s: f32[s0]",
            SIZE,
            f"%y = aten.add.Tensor(%x, %n) : (f32[3], {INT}) -> f32[3]",
        ),
        "",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_tosa_has_no_form_for_keeps_its_reason(refused: Any, written: Any, name: str) -> None:
    rewrite, lines, reason = CASES[name]
    gives = ""
    if " -> (" in lines[-1]:  # of several results the second one is returned as %y, or the first
        types = lines[-1].rsplit(" -> (", 1)[1].removesuffix(")")
        parts = types.split("], ")
        at = [r.strip() for r in lines[-1].split(" = ")[0].split(",")].index("%y")
        gives = parts[at] if parts[at].endswith("]") else parts[at] + "]"
    refused(written(*lines, gives=gives), rewrite, reason)
