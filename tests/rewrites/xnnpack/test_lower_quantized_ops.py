"""Elementwise ops, pooling, movements and casts of int8: where they stay with floats."""

from typing import Any

import pytest

from stepwell.ir.rewriting.rewrite import Rewrite
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import quantized_nodes
from stepwell.translate.rewrites.xnnpack.quantized.leftover_casts import (
    CONVERT,
    UNTYPE,
    FoldDequantizedConstant,
)
from stepwell.translate.rewrites.xnnpack.quantized.widen_quantized_cast import RULES as WIDENED

FOLD, UNTYPED = FoldDequantizedConstant(), UNTYPE[1]()
QUANTIZED, DEQUANTIZED = (rule() for rule in CONVERT)

INT8, OTHER = "!quant.uniform<i8:f32, 0.5:3>", "!quant.uniform<i8:f32, 0.25>"
UINT8, PART = "!quant.uniform<u8:f32, 0.5:3>", "!quant.uniform<i8<-100:127>:f32, 0.5:3>"


def cast(kind: str, given: str, made: str, sizes: str, one: str, other: str) -> str:
    return f"%{made} = quant.{kind} %{given} : tensor<{sizes}x{one}> to tensor<{sizes}x{other}>"


def between(
    method: Any,
    line: str,
    *,
    sizes: str = "2x4",
    becomes: str = "",
    one: str = INT8,
    other: str = INT8,
    made: str = INT8,
) -> str:
    """q(line of %a and %b), of which both are dequantized; `%f` and `%n` are floats."""
    becomes = becomes or sizes
    x = f"tensor<{sizes}xf32>"
    types = ", ".join([x] * (line.count("%") - line.count("%n")))
    return method(
        f"%p: tensor<{sizes}x{one}>, %q: tensor<{sizes}x{other}>, %f: {x}",
        f'%w = stepwell.weight <"w"> "parameter" : tensor<{sizes}xi8>',
        cast("scast", "w", "t", sizes, "i8", INT8),
        cast("dcast", "t", "c", sizes, INT8, "f32"),
        cast("dcast", "p", "a", sizes, one, "f32"),
        cast("dcast", "q", "b", sizes, other, "f32"),
        f"%l = aten.{line} : ({types}) -> tensor<{becomes}xf32>",
        cast("qcast", "l", "y", becomes, "f32", made),
        gives=f"tensor<{becomes}x{made}>",
    )


ADD, CLAMP = "add.Tensor(%a, %b)", "hardtanh.default(%a, -0.5, 2.0)"
IMAGE = {"sizes": "1x2x6x6", "becomes": "1x2x3x3"}
ELEMENTWISE: dict[str, tuple[str, dict[str, str], str]] = {
    "a float operand": ("add.Tensor(%a, %f)", {}, "its operand comes from an input and is not quantized"),
    "a sum times alpha": ("add.Tensor(%a, %b, alpha=2)", {}, "alpha is 2"),
    "int16": (ADD, {"one": "!quant.uniform<i16:f32, 0.5>"}, "not int8 or uint8"),
    "a result in a part of int8": (ADD, {"made": PART}, "the whole range"),
    "signed and unsigned": (ADD, {"one": UINT8}, "int8 and uint8"),
    "constants": ("add.Tensor(%c, %c)", {}, "one that is computed"),
    "a scale far above the result's": (
        ADD, {"made": "!quant.uniform<i8:f32, 0.001>"}, "2⁻¹⁰ to 2⁸",
    ),
    "a scale far below the result's": (
        ADD, {"one": "!quant.uniform<i8:f32, 1.0e-04>"}, "2⁻¹⁰ to 2⁸",
    ),
    "a clamp to another scale": (CLAMP, {"made": OTHER}, "merges a clamp"),
    "a clamp of int16": (
        CLAMP,
        {"one": "!quant.uniform<i16:f32, 0.5>", "made": "!quant.uniform<i16:f32, 0.5>"},
        "not int8 or uint8",
    ),
    "a clamp of a float": ("hardtanh.default(%f, -0.5, 2.0)", {}, ""),
    "an op without a kernel": ("erf.default(%a)", {}, ""),
    "pooling of floats": ("max_pool2d.default(%f, [2, 2])", IMAGE, ""),
    "pooling that floats have not": (
        "max_pool2d.default(%a, [1, 1], [2, 2])", IMAGE, "one element",
    ),
    "pooling of int16": (
        "max_pool2d.default(%a, [2, 2])",
        {**IMAGE, "one": "!quant.uniform<i16:f32, 0.5>", "made": "!quant.uniform<i16:f32, 0.5>"},
        "not int8 or uint8",
    ),
    "averages of windows": ("avg_pool2d.default(%a, [2, 2])", IMAGE, "windows of floats only"),
    "pooling to another scale": (
        "max_pool2d.default(%a, [2, 2])", {**IMAGE, "made": OTHER}, "without changing the scale",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_it_computes_floats(name: str, refused: Any, method: Any):
    line, changes, reason = ELEMENTWISE[name]
    refused(between(method, line, **changes), step(quantized_nodes.quantized_elementwise), reason)


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        (ADD, {}),
        (ADD, {"other": OTHER}),
        (CLAMP, {}),
        ("max_pool2d.default(%a, [2, 2])", IMAGE),
        ("mean.dim(%a, [2, 3], true)", {**IMAGE, "becomes": "1x2x1x1", "made": OTHER}),
    ],
)
def test_it_computes_int8(line: str, changes: dict[str, str], apply: Any, method: Any):
    assert (
        apply(between(method, line, **changes), step(quantized_nodes.quantized_elementwise)).count
        == 1
    )


MOVES: dict[str, tuple[str, dict[str, str], str]] = {
    "no movement": ("abs.default(%a)", {}, ""),
    "floats": ("permute.default(%f, [1, 0])", {"becomes": "4x2"}, ""),
    "floats among integers": ("cat.default([%a, %f])", {"becomes": "4x4"}, "is not quantized"),
    "another scale": ("view.default(%a, [8])", {"becomes": "8", "made": OTHER}, "different scales"),
    "another scale of a part": (
        "cat.default([%a, %b])", {"becomes": "4x4", "other": OTHER}, "different scales",
    ),
    "a part of int8": (
        "view.default(%a, [8])", {"becomes": "8", "one": PART, "made": PART}, "the whole range",
    ),
    "a slice with a step": (
        "slice.Tensor(%a, 1, 0, 4, 2)", {"becomes": "2x2"}, "step 1",
    ),
    "six parts": ("cat.default([%a, %a, %a, %a, %a, %a])", {"becomes": "12x4"}, "two to five"),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_it_moves_floats(name: str, refused: Any, method: Any):
    line, changes, reason = MOVES[name]
    refused(between(method, line, **changes), step(quantized_nodes.quantized_movement), reason)


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("cat.default([%a, %b])", "4x4"),
        ("slice.Tensor(%a, 1, 0, 2)", "2x2"),
        ("permute.default(%a, [1, 0])", "4x2"),
    ],
)
def test_it_moves_integers(line: str, becomes: str, apply: Any, method: Any):
    assert (
        apply(
            between(method, line, becomes=becomes), step(quantized_nodes.quantized_movement)
        ).count
        == 1
    )


def test_what_is_moved_and_read_as_floats_too_stays(refused: Any, method: Any):
    text = between(method, "view.default(%a, [8])", becomes="8")
    text = text.replace(f"-> tensor<8x{INT8}> {{", f"-> (tensor<8x{INT8}>, tensor<8xf32>) {{")
    text = text.replace(
        f"return %y : tensor<8x{INT8}>", f"return %y, %l : tensor<8x{INT8}>, tensor<8xf32>"
    )
    refused(text, step(quantized_nodes.quantized_movement), "used as a float by func.return")


def casts(method: Any, held: str, kind: str, real: str = "f32") -> str:
    one, other = (held, real) if kind == "dcast" else (real, held)
    return method(
        f"%x: tensor<2x4x{one}>",
        cast(kind, "x", "y", "2x4", one, other),
        gives=f"tensor<2x4x{other}>",
    )


GROUPS = "!quant.uniform<i8:f32:{0:1, 1:2}, {{1.0, 2.0}, {1.0, 2.0}}>"
HALVES = "!quant.uniform<i8:f16, 0.5>"
CASTS: dict[str, tuple[Rewrite[Any], str, str, str]] = {
    "int16 by a node": (DEQUANTIZED, "!quant.uniform<i16:f32, 0.5>", "dcast", "no static int8"),
    "channels by a node": (
        DEQUANTIZED, "!quant.uniform<i8:f32:0, {0.5, 0.25}>", "dcast", "no static int8",
    ),
    "a part of int8 by a node": (QUANTIZED, PART, "qcast", "the whole range"),
    "groups by an operator": (UNTYPED, GROUPS, "dcast", "groups of an axis"),
    "halves by an operator": (UNTYPED, HALVES, "dcast", "float32 values"),
    "floats as halves": (WIDENED[0](), INT8, "qcast", ""),
    "an argument ahead of time": (FOLD, INT8, "dcast", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASTS)
def test_it_is_not_cast(name: str, refused: Any, method: Any):
    rewrite, held, kind, reason = CASTS[name]
    refused(casts(method, held, kind, "f16" if held == HALVES else "f32"), rewrite, reason)


def test_a_constant_of_halves_is_not_folded(refused: Any, method: Any):
    lines = (
        '%w = stepwell.weight <"w"> "parameter" : tensor<2x4xi8>',
        cast("scast", "w", "t", "2x4", "i8", HALVES),
        cast("dcast", "t", "c", "2x4", HALVES, "f16"),
        "%y = aten.add.Tensor(%c, %x) : (tensor<2x4xf16>, tensor<2x4xf16>) -> tensor<2x4xf16>",
    )
    text = method("%x: tensor<2x4xf16>", *lines, gives="tensor<2x4xf16>")
    refused(text, FOLD, "only float32")


def test_integers_that_a_cast_names_are_no_weight(refused: Any, method: Any):
    """Stored integers that come in at run time: a type is put on them, but they are computed."""
    lines = (
        cast("scast", "x", "t", "2x4", "i8", INT8),
        cast("dcast", "t", "y", "2x4", INT8, "f32"),
    )
    text = method("%x: tensor<2x4xi8>", *lines, gives="tensor<2x4xf32>")
    refused(text, FOLD)
