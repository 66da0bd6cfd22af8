"""What the lowerings to TOSA leave alone, each with its reason."""

from typing import Any, cast

import pytest

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.tosa import (
    block_scaled,
    casts,
    elementwise,
    movement,
    pooling,
    products,
)
from stepwell.translate.lowerings.tosa.indexed import indices
from stepwell.translate.lowerings.tosa.integers.elementwise import int8_add, int8_clamp
from stepwell.translate.lowerings.tosa.integers.functions import int8_function, int8_requantize
from stepwell.translate.lowerings.tosa.integers.layers import int8_convolution, int8_linear
from stepwell.translate.lowerings.tosa.integers.reductions import int8_pool

NUMBER = '%n = sym.constant 2.0 : f64 : !stepwell.float<"2.0">'
SIZE = '%n = aten.sym_size.int(%x, 0) : (f32[s0, 3]) -> !stepwell.int<"s0">'
ROWS = '(f32[s0, 3], !stepwell.int<"s0">)'

Case = tuple[Any, tuple[str, ...], str]
CASES: dict[str, Case] = {
    # --- tensors that TOSA does not have -------------------------------------------------
    "a number of run time": (
        elementwise,
        (
            "%x: f32[3]",
            NUMBER,
            '%y = aten.mul.Scalar(%x, %n) : (f32[3], !stepwell.float<"2.0">) -> f32[3]',
        ),
        "takes or gives",
    ),
    "doubles": (
        elementwise,
        ("%x: f64[3]", "%y = aten.exp.default(%x) : (f64[3]) -> f64[3]"),
        "no element type float64",
    ),
    "symbols where none are taken": (
        block_scaled,
        (
            "%x: f32[s0, 32]",
            '%y = stepwell_mx.quantize_dequantize.default(%x, "fp4e2m1") : (f32[s0, 32]) -> f32[s0, 32]',
        ),
        "is symbolic",
    ),
    "a symbol that no input has": (
        elementwise,
        ("%x: f32[2*s0]", "%y = aten.exp.default(%x) : (f32[2*s0]) -> f32[2*s0]"),
        "the size s0 is not a dimension of an input",
    ),
    "an unknown size": (
        elementwise,
        ("%x: f32[?, 3]", "%y = aten.exp.default(%x) : (f32[?, 3]) -> f32[?, 3]"),
        "not even as an expression",
    ),
    "rank 7": (
        elementwise,
        (
            "%x: f32[1, 1, 1, 1, 1, 1, 2]",
            "%y = aten.exp.default(%x) : (f32[1, 1, 1, 1, 1, 1, 2]) -> f32[1, 1, 1, 1, 1, 1, 2]",
        ),
        "rank 7 is above TOSA's limit",
    ),
    "nothing": (
        elementwise,
        ("%x: f32[0, 3]", "%y = aten.exp.default(%x) : (f32[0, 3]) -> f32[0, 3]"),
        "no empty tensors",
    ),
    # --- element by element ----------------------------------------------------------------
    "a scaled sum": (
        elementwise,
        ("%x: f32[3]", "%y = aten.add.Tensor(%x, %x, alpha=2) : (f32[3], f32[3]) -> f32[3]"),
        "alpha is 2",
    ),
    "a factor that is a size": (
        elementwise,
        ("%x: f32[s0, 3]", SIZE, f"%y = aten.mul.Scalar(%x, %n) : {ROWS} -> f32[s0, 3]"),
        "other is known only at run time",
    ),
    "two element types": (
        elementwise,
        ("%x: f32[3], %z: f16[3]", "%y = aten.mul.Tensor(%x, %z) : (f32[3], f16[3]) -> f32[3]"),
        "several dtypes",
    ),
    "bits of integers": (
        elementwise,
        ("%x: i32[3]", "%y = aten.bitwise_and.Tensor(%x, %x) : (i32[3], i32[3]) -> i32[3]"),
        "tosa.logical_and does not take int32",
    ),
    "a sum of truth values": (
        elementwise,
        ("%x: i1[3]", "%y = aten.add.Tensor(%x, %x) : (i1[3], i1[3]) -> i1[3]"),
        "tosa.add does not take bool",
    ),
    "a sum of bytes": (
        elementwise,
        ("%x: i8[3]", "%y = aten.add.Tensor(%x, %x) : (i8[3], i8[3]) -> i8[3]"),
        "tosa.add does not take int8",
    ),
    "a function of integers": (
        elementwise,
        ("%x: i32[3]", "%y = aten.exp.default(%x) : (i32[3]) -> f32[3]"),
        "tosa.exp does not take int32",
    ),
    "integers and a fraction": (
        elementwise,
        ("%x: i32[3]", "%y = aten.add.Scalar(%x, 0.5) : (i32[3]) -> f32[3]"),
        "its operands are integers",
    ),
    "integers and a number past their bits": (
        elementwise,
        ("%x: i32[3]", "%y = aten.add.Scalar(%x, 1099511627776) : (i32[3]) -> i32[3]"),
        "1099511627776 does not fit 32 bits",
    ),
    "integers beside a fraction": (
        elementwise,
        ("%x: i32[3]", "%y = aten.gt.Scalar(%x, 0.5) : (i32[3]) -> i1[3]"),
        "compared with a fraction",
    ),
    "a divisor that is a size": (
        elementwise,
        ("%x: f32[s0, 3]", SIZE, f"%y = aten.div.Scalar(%x, %n) : {ROWS} -> f32[s0, 3]"),
        "known only at run time",
    ),
    "a quotient of integers": (
        elementwise,
        ("%x: i32[3]", "%y = aten.div.Scalar(%x, 2) : (i32[3]) -> f32[3]"),
        "integer division",
    ),
    "a bound that is a size": (
        elementwise,
        ("%x: f32[s0, 3]", SIZE, f"%y = aten.clamp.default(%x, %n) : {ROWS} -> f32[s0, 3]"),
        "a bound is known only at run time",
    ),
    "a clamp of integers": (
        elementwise,
        ("%x: i16[3]", "%y = aten.clamp.default(%x, 0, 1) : (i16[3]) -> i16[3]"),
        "TOSA has no operator for",
    ),
    "a choice of two types": (
        elementwise,
        (
            "%m: i1[3], %x: f32[3], %z: f16[3]",
            "%y = aten.where.self(%m, %x, %z) : (i1[3], f32[3], f16[3]) -> f32[3]",
        ),
        "the operands have several dtypes",
    ),
    "a truth of small integers": (
        casts,
        ("%x: i8[4]", "%y = aten.to.dtype(%x, i1) : (i8[4]) -> i1[4]"),
        "TOSA compares no int8",
    ),
    "a cast to integers without a sign": (
        casts,
        ("%x: f32[4]", "%y = aten.to.dtype(%x, ui8) : (f32[4]) -> ui8[4]"),
        "TOSA has no element type uint8",
    ),
    # --- indices -----------------------------------------------------------------------------
    "indexed axes apart": (
        indices,
        (
            "%x: f32[4, 2, 4], %i: i64[3]",
            "%y = aten.index.Tensor(%x, [%i, none, %i]) : (f32[4, 2, 4], i64[3], i64[3]) -> f32[3, 2]",
        ),
        "are not adjacent",
    ),
    "a mask": (
        indices,
        (
            "%x: f32[4, 2], %i: i1[4], %z: f32[2]",
            "%y = aten.index_put.default(%x, [%i], %z) : (f32[4, 2], i1[4], f32[2]) -> f32[4, 2]",
        ),
        "how many they name is not known",
    ),
    "rows of run time": (
        indices,
        (
            "%x: f32[s0, 3], %i: i64[2]",
            "%y = aten.index.Tensor(%x, [%i]) : (f32[s0, 3], i64[2]) -> f32[2, 3]",
        ),
        "an indexed axis of size ['s0'] is symbolic",
    ),
    "added rows": (
        indices,
        (
            "%x: f32[4, 3], %i: i64[2], %z: f32[2, 3]",
            "%y = aten.index_put.default(%x, [%i], %z, true) : (f32[4, 3], i64[2], f32[2, 3]) -> f32[4, 3]",
        ),
        "it does not add",
    ),
    "the largest integer": (
        indices,
        ("%x: i16[4]", "%y = aten.argmax.default(%x, 0) : (i16[4]) -> i64[]"),
        "TOSA has no operator for",
    ),
    # --- layout ------------------------------------------------------------------------------
    "every other row": (
        movement,
        ("%x: f32[6, 3]", "%y = aten.slice.Tensor(%x, 0, 0, 6, 2) : (f32[6, 3]) -> f32[3, 3]"),
        "SLICE has none",
    ),
    "rows from a row of run time": (
        movement,
        (
            "%x: f32[s0, 3], %v: f32[s0 + 4, 3]",
            SIZE,
            '%y = aten.slice.Tensor(%v, 0, %n) : (f32[s0 + 4, 3], !stepwell.int<"s0">) -> f32[4, 3]',
        ),
        "the start is known only at run time",
    ),
    "rows of two types": (
        movement,
        (
            "%x: f32[2, 3], %z: f16[2, 3]",
            "%y = aten.cat.default([%x, %z], 0) : (f32[2, 3], f16[2, 3]) -> f32[4, 3]",
        ),
        "several dtypes",
    ),
    "a crop": (
        movement,
        (
            "%x: f32[2, 3]",
            "%y = aten.constant_pad_nd.default(%x, [0, -1], 0.0) : (f32[2, 3]) -> f32[2, 2]",
        ),
        "the padding is negative",
    ),
    # --- products ----------------------------------------------------------------------------
    "a product of vectors": (
        products,
        ("%x: f32[4]", "%y = aten.matmul.default(%x, %x) : (f32[4], f32[4]) -> f32[]"),
        "two of equal batches",
    ),
    "a product with a vector": (
        products,
        (
            "%x: f32[2, 4], %z: f32[4]",
            "%y = aten.matmul.default(%x, %z) : (f32[2, 4], f32[4]) -> f32[2]",
        ),
        "two of equal batches",
    ),
    "batches that broadcast": (
        products,
        (
            "%x: f32[1, 2, 4], %z: f32[3, 4, 2]",
            "%y = aten.matmul.default(%x, %z) : (f32[1, 2, 4], f32[3, 4, 2]) -> f32[3, 2, 2]",
        ),
        "two of equal batches",
    ),
    "a transposed volume": (
        products,
        (
            "%x: f32[1, 2, 3, 3, 3], %w: f32[2, 2, 1, 1, 1]",
            "%y = aten.convolution.default(%x, %w, none, [1, 1, 1], [0, 0, 0], [1, 1, 1], true, [0, 0, 0], 1) : "
            "(f32[1, 2, 3, 3, 3], f32[2, 2, 1, 1, 1]) -> f32[1, 2, 3, 3, 3]",
        ),
        "no transposed convolution of three axes",
    ),
    "transposed and dilated": (
        products,
        (
            "%x: f32[1, 2, 3, 3], %w: f32[2, 2, 2, 2]",
            "%y = aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [2, 2], true, [0, 0], 1) : "
            "(f32[1, 2, 3, 3], f32[2, 2, 2, 2]) -> f32[1, 2, 5, 5]",
        ),
        "dilation is not 1",
    ),
    # --- reductions --------------------------------------------------------------------------
    "a pool without a batch": (
        pooling,
        (
            "%x: f32[2, 4, 4]",
            "%y = aten.max_pool2d.default(%x, [2, 2], [2, 2]) : (f32[2, 4, 4]) -> f32[2, 2, 2]",
        ),
        "the input is not a batch of images",
    ),
    "a dilated pool of run time": (
        pooling,
        (
            "%x: f32[1, 2, s0, 4]",
            "%y = aten.max_pool2d.default(%x, [1, 2], [1, 1], [0, 0], [1, 2]) : (f32[1, 2, s0, 4]) -> f32[1, 2, s0, 2]",
        ),
        "dilated windows of a plane of size",
    ),
    "a dilated window around an image": (
        pooling,
        (
            "%x: f32[1, 2, 3, 5]",
            "%y = aten.max_pool2d.default(%x, [2, 1], [1, 1], [1, 0], [4, 1]) : (f32[1, 2, 3, 5]) -> f32[1, 2, 1, 5]",
        ),
        "is entirely in the padding",
    ),
    "another divisor": (
        pooling,
        (
            "%x: f32[1, 2, 4, 4]",
            "%y = aten.avg_pool2d.default(%x, [2, 2], [2, 2], [0, 0], false, true, 3) : (f32[1, 2, 4, 4]) -> f32[1, 2, 2, 2]",
        ),
        "the number of elements",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_tosa_has_no_operators_for_keeps_its_reason(
    refused: Any, written: Any, name: str
) -> None:
    rewrite, lines, reason = CASES[name]
    refused(written(*lines), rewrite, reason)


def dequantized(name: str, numbers: str, shape: str, storage: str = "i8") -> str:
    return f"%{name}r = quant.dcast %{name} : {storage}<{numbers}>[{shape}] to f32[{shape}]"


def stored(name: str, numbers: str, shape: str) -> tuple[str, ...]:
    return (
        f'%{name}s = stepwell.weight <"{name}"> "parameter" : i8[{shape}]',
        f"%{name} = quant.scast %{name}s : i8[{shape}] to i8<{numbers}>[{shape}]",
        dequantized(name, numbers, shape),
    )


def layer(
    numbers: str = "0.25", rows: str = "2", held: str = "0.5:3", storage: str = "i8"
) -> tuple[str, ...]:
    return (
        f"%x: {storage}<{held}>[{rows}, 4]",
        *stored("w", numbers, "3, 4"),
        dequantized("x", held, f"{rows}, 4", storage),
        f"%z = aten.linear.default(%xr, %wr) : (f32[{rows}, 4], f32[3, 4]) -> f32[{rows}, 3]",
        f"%y = quant.qcast %z : f32[{rows}, 3] to {storage}<{'1.0' if storage == 'i16' else '2.0'}>[{rows}, 3]",
    )


def convolved(x: str, w: str, y: str, rest: str, scale: str = "0.25") -> tuple[str, ...]:
    return (
        f"%x: i8<0.5>[{x}]",
        *stored("w", scale, w),
        dequantized("x", "0.5", x),
        f"%z = aten.convolution.default(%xr, %wr, none, {rest}) : (f32[{x}], f32[{w}]) -> f32[{y}]",
        f"%y = quant.qcast %z : f32[{y}] to i8<2.0>[{y}]",
    )


def computed(line: str, x: str = "4", y: str = "4") -> tuple[str, ...]:
    return (
        f"%x: i8<0.5>[{x}]",
        dequantized("x", "0.5", x),
        *line.split("; "),
        f"%y = quant.qcast %z : f32[{y}] to i8<1.0>[{y}]",
    )


INT8: dict[str, Case] = {
    "a zero point of 16 bits": (
        step(int8_linear),
        layer(held="0.5:3", storage="i16"),
        "TOSA takes zero points for 8-bit",
    ),
    "a weight's zero point": (step(int8_linear), layer("0.25:1"), "its weight has a zero point"),
    "a scale for each input": (
        step(int8_linear),
        layer(":1, {0.1, 0.2, 0.3, 0.4}"),
        "a scale for each input",
    ),
    "a dilated transposed convolution": (
        step(int8_convolution),
        convolved(
            "1, 2, 3, 3", "2, 2, 2, 2", "1, 2, 5, 5", "[1, 1], [0, 0], [2, 2], true, [0, 0], 1"
        ),
        "dilation is not 1",
    ),
    "a transposed convolution with a scale for each input": (
        step(int8_convolution),
        convolved(
            "1, 2, 3, 3",
            "2, 3, 1, 1",
            "1, 3, 3, 3",
            "[1, 1], [0, 0], [1, 1], true, [0, 0], 1",
            ":0, {0.25, 0.5}",
        ),
        "a scale for each input",
    ),
    "a transposed volume": (
        step(int8_convolution),
        convolved(
            "1, 2, 3, 3, 3",
            "2, 2, 1, 1, 1",
            "1, 2, 3, 3, 3",
            "[1, 1, 1], [0, 0, 0], [1, 1, 1], true, [0, 0, 0], 1",
        ),
        "no transposed convolution of three axes",
    ),
    "a scaled sum": (
        step(int8_add),
        computed("%z = aten.add.Tensor(%xr, %xr, alpha=2) : (f32[4], f32[4]) -> f32[4]"),
        "alpha is 2",
    ),
    "a mean of rows": (
        step(int8_pool),
        computed("%z = aten.mean.dim(%xr, [1]) : (f32[2, 4]) -> f32[2]", "2, 4", "2"),
        "the mean is not over the height and width of images that a pool holds",
    ),
    "a dilated pool": (
        step(int8_pool),
        computed(
            "%z = aten.max_pool2d.default(%xr, [2, 2], [1, 1], [0, 0], [2, 2]) : (f32[1, 2, 5, 5]) -> f32[1, 2, 3, 3]",
            "1, 2, 5, 5",
            "1, 2, 3, 3",
        ),
        "dilation is not 1",
    ),
    "counted padding": (
        step(int8_pool),
        computed(
            "%z = aten.avg_pool2d.default(%xr, [2, 2], [2, 2], [1, 1]) : (f32[1, 2, 4, 4]) -> f32[1, 2, 3, 3]",
            "1, 2, 4, 4",
            "1, 2, 3, 3",
        ),
        "the padding counts",
    ),
    "rows no window reads": (
        step(int8_pool),
        computed(
            "%z = aten.max_pool2d.default(%xr, [3, 3], [2, 2]) : (f32[1, 2, 8, 8]) -> f32[1, 2, 3, 3]",
            "1, 2, 8, 8",
            "1, 2, 3, 3",
        ),
        "belong to no window",
    ),
    "a bound of run time": (
        step(int8_clamp),
        computed(
            f'{NUMBER}; %z = aten.clamp.default(%xr, %n) : (f32[4], !stepwell.float<"2.0">) -> f32[4]'
        ),
        "a bound is computed at run time",
    ),
    "a byte without a sign": (
        step(int8_requantize),
        (
            "%x: i8<0.5>[4]",
            dequantized("x", "0.5", "4"),
            "%y = quant.qcast %xr : f32[4] to ui8<1.0>[4]",
        ),
        "its result is quantized to uint8",
    ),
    "what no cast gave": (
        step(int8_requantize),
        ("%x: f32[4]", "%y = quant.qcast %x : f32[4] to i8<1.0>[4]"),
        "",
    ),
    "casts alone": (
        step(int8_function),
        (
            "%x: i8<0.5>[4]",
            dequantized("x", "0.5", "4"),
            "%y = quant.qcast %xr : f32[4] to i8<1.0>[4]",
        ),
        "",
    ),
}


@pytest.mark.parametrize("name", INT8)
def test_what_has_no_integer_form_keeps_its_reason(refused: Any, written: Any, name: str) -> None:
    rewrite, lines, reason = INT8[name]
    refused(written(*lines).replace("ui8:f32", "u8:f32"), rewrite, reason)


def test_an_index_of_no_axis_is_left(programs: Any, written: Any) -> None:
    """torch has types for it, and no numbers."""
    text = written("%x: f32[4]", "%y = aten.index.Tensor(%x, [none]) : (f32[4]) -> f32[4]")
    program, _ = programs(text)
    op = next(op for op in program.method().walk() if op.name == "aten.index.Tensor")
    (rule,) = (rule for rule in indices.RULES if rule.name == "lower-index-to-tosa")
    found: Any = rule().match(cast(Any, op), program)
    assert "are not adjacent" in found.reason
