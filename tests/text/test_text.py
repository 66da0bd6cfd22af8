import math
import struct
import subprocess
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import (
    ArrayAttr,
    Attribute,
    ComplexType,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FileLineColLoc,
    Float8E4M3FNType,
    Float8E5M2Type,
    FloatAttr,
    IntAttr,
    ModuleOp,
    NameLoc,
    StringAttr,
    TensorType,
    UnknownLoc,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

import stepwell.dialects  # noqa: F401  (makes the dialects known)
from stepwell.backends.tosa.installed import tool
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.core import StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import ParseFailure
from stepwell.ir.dtypes import bf16, f16, f32, f64, i64
from stepwell.ir.syntax.text import parse_module, structurally_equal, to_text
from stepwell.ir.types import IntType, tensor

X = tensor([2, 3], f32)
MLIR_OPT = tool("tosa-opt")


def method(hints: Sequence[str | None], attributes: dict[str, Attribute] | None = None) -> ModuleOp:
    """A chain of relu ops whose values carry these name hints."""
    block = Block(arg_types=[X])
    value = block.args[0]
    for hint in hints:
        op = op_class("aten.relu.default").make(value, result_types=[X])
        value = op.results[0]
        value._name = hint  # pyright: ignore[reportPrivateUsage]  (past the setter's own checks)
        op.attributes.update(attributes or {})
        block.add_op(op)
    block.add_op(ReturnOp(value))
    return ModuleOp([FuncOp("forward", ([X], [X]), Region(block))])


def check_round_trip(module: ModuleOp) -> str:
    for generic in (False, True):
        text = to_text(module, locations=True, generic=generic)
        back = parse_module(text)
        assert structurally_equal(module, back, locations=True)
        assert to_text(back, locations=True, generic=generic) == text
    return to_text(module)


def check_upstream(module: ModuleOp) -> None:
    """Upstream MLIR reads the generic form."""
    done = subprocess.run(
        [MLIR_OPT, "--allow-unregistered-dialect", "--mlir-print-debuginfo", "-"],
        input=to_text(module, locations=True, generic=True),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def with_attribute(attribute: Attribute) -> ModuleOp:
    return method(["y"], {"test.value": attribute})


@pytest.mark.parametrize(
    "hints",
    [
        ["x_2", "x_2", "x_2_1", "x", "x", "x_1", "x_2_5", "x_2_5"],
        ["über", "名前", "a b", "a%b", 'a"b', "1x", "_1", "1", "", None, "-", "a\nb", "_", "x_"],
        ["none", "true", "inf", "loc", "tensor", "builtin.module", "bb0", "arg0", "0", "$.-"],
    ],
)
def test_values_keep_apart_whatever_they_are_called(hints: list[str | None]) -> None:
    module = method(hints)
    check_round_trip(module)
    check_upstream(module)


@given(st.lists(st.text(max_size=8), max_size=12))
def test_any_name_hints_print_as_distinct_names(hints: list[str]) -> None:
    check_round_trip(method(hints))


SPECIAL = [0.0, -0.0, 1.0, 1e-10, 1e22, 5e-324, 0.1, 1 / 3, math.inf, -math.inf, math.nan, 3e38]


@pytest.mark.parametrize("value", SPECIAL)
@pytest.mark.parametrize(
    "type_", [f64, f32, f16, bf16, Float8E4M3FNType(), Float8E5M2Type()], ids=str
)
def test_a_float_of_any_width_keeps_its_bits(value: float, type_: Attribute) -> None:
    try:
        held = FloatAttr(value, type_)  # pyright: ignore
    except (OverflowError, ValueError, struct.error):
        pytest.skip(f"{type_} cannot hold {value}")
    module = with_attribute(held)
    check_round_trip(module)


@pytest.mark.parametrize("type_", [f64, f32, f16, bf16], ids=str)
def test_dense_constants_keep_infinities_and_nans(type_: Attribute) -> None:
    values = [1.5, -math.inf, math.inf, math.nan, 0.0, -2.0]
    for shape, held in (([6], values), ([2, 3], values), ([4], [-math.inf] * 4), ([], [math.nan])):
        dense = DenseIntOrFPElementsAttr.from_list(TensorType(type_, shape), held)  # pyright: ignore
        check_round_trip(with_attribute(dense))
    check_upstream(
        with_attribute(DenseIntOrFPElementsAttr.from_list(TensorType(type_, [6]), values))  # pyright: ignore
    )


def test_a_complex_constant_keeps_infinities() -> None:
    type_ = TensorType(ComplexType(f32), [2])
    held = DenseIntOrFPElementsAttr.from_list(type_, [(1.0, -math.inf), (math.nan, -0.0)])  # pyright: ignore
    check_round_trip(with_attribute(held))


def test_dense_arrays_of_floats_keep_infinities_and_small_numbers() -> None:
    for type_ in (f64, f32, bf16):
        held = DenseArrayBase.from_list(type_, [1e-10, -math.inf, math.nan, 0.5, -0.0])
        check_round_trip(with_attribute(held))


@pytest.mark.parametrize("text", ["", "plain", "é", '名前\n\t"\\', "\x00\x7f", "🙂", "\\41"])
def test_strings_are_strings_again(text: str) -> None:
    module = with_attribute(ArrayAttr([StringAttr(text)]))
    check_round_trip(module)
    check_upstream(module)


@pytest.mark.parametrize(
    "location",
    [
        UnknownLoc(),
        FileLineColLoc(StringAttr("model.py"), IntAttr(12), IntAttr(0)),
        NameLoc(
            StringAttr("conv_1"),
            NameLoc(
                StringAttr("blocks.0"),
                FileLineColLoc(StringAttr("dir with space/é.py"), IntAttr(12), IntAttr(0)),
            ),
        ),
        NameLoc(StringAttr('quoted "name" ü'), UnknownLoc()),
        NameLoc(StringAttr("conv_1"), NameLoc(StringAttr(""), UnknownLoc())),
    ],
)
def test_locations_come_back(location: Attribute) -> None:
    module = method(["y", "y"])
    func = next(iter(module.ops))
    assert isinstance(func, FuncOp)
    for op in module.walk():
        op.location = location  # pyright: ignore
    func.body.block.args[0].location = location  # pyright: ignore
    check_round_trip(module)
    check_upstream(module)


def test_symbolic_shapes_and_run_time_numbers_read_back_here_and_upstream() -> None:
    symbolic = tensor(["s77", 197, "2*s0 + 1"], f32)
    count = IntType("s77 * 2")
    block = Block(arg_types=[symbolic, count])
    view = op_class("aten.view.default").make(
        block.args[0], [block.args[1], -1], result_types=[tensor(["s77*2", "u0"], f32)]
    )
    block.add_op(view)
    block.add_op(ReturnOp(view.results[0]))
    types = [symbolic, count], [view.results[0].type]
    module = ModuleOp([FuncOp("forward", types, Region(block))])
    text = check_round_trip(module)
    assert "aten.view.default(%0, [%1, -1])" in text
    check_upstream(module)


def test_weights_and_state_are_keys_in_the_text() -> None:
    block = Block()
    weight = WeightOp("fc.weight", X, "parameter")
    state = StateOp('é"calls', tensor([], i64), persistent=True)
    update = UpdateOp('é"calls', state.result)
    block.add_ops([weight, state, update, ReturnOp(weight.result)])
    module = ModuleOp([FuncOp("forward", ([], [X]), Region(block))])
    check_round_trip(module)
    check_upstream(module)


def test_types_of_every_element_read_back_upstream() -> None:
    from stepwell.ir import dtypes

    elements = list(dtypes.ELEMENT_TYPES.values())
    block = Block(arg_types=[tensor([2], element) for element in elements])
    block.add_op(ReturnOp())
    types = [arg.type for arg in block.args]
    module = ModuleOp([FuncOp("forward", (types, []), Region(block))])
    check_round_trip(module)
    check_upstream(module)


HOSTILE = [
    "",
    "}",
    "builtin.module {",
    "builtin.module { func.func @f() { aten.relu.default( } }",
    'builtin.module attributes {a = "' + "a" * 50_000,
    "builtin.module attributes {a = " + "[" * 100_000,
    "[" * 100_000,
    "builtin.module attributes {a = 5 : i99999999999}",
    "builtin.module attributes {a = " + "9" * 100_000 + "}",
    "builtin.module attributes {a = 0x" + "f" * 100_000 + " : f32}",
    "builtin.module attributes {a = dense<0> : tensor<999999999999xi64>}",
    "builtin.module attributes {a = dense<0> : tensor<99999x99999x99999xf32>}",
    "builtin.module attributes {a = dense<(1, 2)> : tensor<2xf32>}",
    "builtin.module attributes {a = -0x1 : f32}",
    "builtin.module attributes {a = #aten.complex<1, 2>}",
    "builtin.module attributes {a = array<i8: 300>}",
    "builtin.module attributes {a = ²}",
    "builtin.module attributes {a = é}",
    "builtin.module attributes {a = \x00}",
    "builtin.module attributes {a = !tensor<4x>}",
    "builtin.module attributes {a = tensor<" + "4x" * 20_000 + "f32>",
    "builtin.module attributes {a = loc(" + '"a"(' * 50_000,
    '"builtin.module"() ({ "no.such.op"() : () -> () }) : () -> ()',
    "builtin.module { %0 = aten.no_such.default() : () -> () }",
    "builtin.module { %0 = __class__.a.b() : () -> () }",
    "builtin.module { %0 = aten.add_.Tensor(%0, %0) : (i1, i1) -> i1 }",
    "builtin.module { %0, %1 = aten.relu.default(%2) : (i1) -> i1 }",
    "builtin.module { %0 = aten.relu.default(%2, self=%2) : (i1) -> i1 }",
    "builtin.module { %0 = aten.relu.default([%2]) : (i1) -> i1 }",
    "builtin.module { %0 = aten.relu.default() : () -> i1 }",
    "builtin.module { %0 = aten.view.default(%2, [[1]]) : (i1) -> i1 }",
    "builtin.module { %0 = aten.view.default(%2, -) : (i1) -> i1 }",
    "builtin.module { %0 = aten.view.default(%2, --1) : (i1) -> i1 }",
    "builtin.module { %0 = aten.view.default(%2#7, [1]) : (i1) -> i1 }",
    '{-# dialect_resources: { builtin: { a: "0x" } } #-}',
    "{-# external_resources: {} #-}",
    "^bb0:",
    "builtin.module { ^bb0: ^bb0: }",
    "/" * 10_000,
    " " * 50_000 + "\x01",
    "#a = #a\nbuiltin.module attributes {b = #a} {}",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_bad_text_is_a_parse_failure_with_its_place(text: str) -> None:
    with pytest.raises(ParseFailure) as caught:
        parse_module(text)
    (problem,) = caught.value.problems
    assert problem.where is not None and problem.where.startswith("<text>:")
    assert len(str(caught.value)) < 2_000


def test_an_undefined_value_is_reported_where_it_is_used() -> None:
    text = to_text(method(["x"])).replace("(%0)", "(%nowhere)")
    with pytest.raises(ParseFailure, match=r"%nowhere is used but not defined\n  at <text>:3:"):
        parse_module(text)


def test_an_error_names_line_column_and_the_text() -> None:
    text = to_text(method(["x", "y"])).replace("aten.relu.default(%x)", "aten.relu.default(5)")
    with pytest.raises(ParseFailure) as caught:
        parse_module(text)
    assert str(caught.value).splitlines()[:2] == [
        "argument self must be a value, as in %self",
        "  at <text>:4:28",
    ]


def test_plain_xdsl_prints_schema_ops_too() -> None:
    assert "aten.relu.default(%" in str(method(["x"]))
