"""What XNNPACK holds: floats of one type, in at most six axes, whose sizes are known."""

import re
from typing import Any

import pytest

from stepwell.translate.decompositions import norms
from stepwell.translate.lowerings.lowering import Lowering
from stepwell.translate.rewrites.documentation import (
    examples_of,
    examples_of_rule,
    module_of,
    rewrites_of,
)
from stepwell.translate.rewrites.xnnpack.nodes.lower_clamp import RULES as CLAMPS
from stepwell.translate.rewrites.xnnpack.nodes.lower_elementwise import RULES as ELEMENTWISE

ALL = {rule.name: rule() for rule in (*CLAMPS, *ELEMENTWISE)}
X, ROWS = "tensor<2x4xf32>", 'tensor<?x4xf32, #stepwell.shape<["s0", 4]>>'

OF_FLOATS = (
    "xnnpack.convolutions",
    "xnnpack.images",
    "xnnpack.nodes.lower_clamp",
    "xnnpack.nodes.lower_elementwise",
    "xnnpack.nodes.lower_shape",
    "xnnpack.nodes.lower_softmax",
    "xnnpack.products",
    "xnnpack.reductions",
)


@pytest.mark.parametrize("name", OF_FLOATS)
def test_doubles_stay_where_they_are(name: str, refused: Any):
    module = module_of(name)
    held = rewrites_of(module)
    held = held if issubclass(held[0], Lowering) else held[:1]
    for rewrite, (before, _) in zip(held, examples_of(module), strict=False):
        refused(re.sub(r"xf32\b", "xf64", before), rewrite(), "float64")


@pytest.mark.parametrize("name", ["decompose-layer-norm", "decompose-group-norm"])
def test_norms_of_doubles_stay_where_they_are(name: str, refused: Any):
    (rewrite,) = norms.RULES.named(name)
    for before, _ in examples_of_rule(type(rewrite)):
        refused(re.sub(r"xf32\b", "xf64", before), rewrite, "float64")


def unary(type_: str, method: Any) -> str:
    return method(f"%x: {type_}", f"%y = aten.abs.default(%x) : ({type_}) -> {type_}", gives=type_)


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        ("tensor<1x1x1x1x1x1x4xf32>", "rank 7"),
        ("tensor<2x0xf32>", "a dimension is 0"),
        ("tensor<?x4xf32>", "not known"),
        ("tensor<2x4xi32>", "not int32"),
    ],
)
def test_a_tensor_that_no_node_holds_stays(type_: str, reason: str, refused: Any, method: Any):
    refused(unary(type_, method), ALL["lower-unary"], reason)


@pytest.mark.parametrize("type_", ["tensor<1x1x1x1x2x4xf32>", ROWS, "tensor<2x4xf16>"])
def test_six_axes_a_named_size_and_halves_are_held(type_: str, apply: Any, method: Any):
    assert apply(unary(type_, method), ALL["lower-unary"]).ops() == ["xnnpack.abs"]


def test_floats_of_two_kinds_do_not_meet(refused: Any, method: Any):
    line = f"%y = aten.add.Tensor(%x, %h) : ({X}, tensor<2x4xf16>) -> {X}"
    refused(method(f"%x: {X}, %h: tensor<2x4xf16>", line, gives=X), ALL["lower-sum"], "cast one")


def test_a_number_of_run_time_is_no_field(refused: Any, method: Any):
    size = f'%n = aten.sym_size.int(%x, 0) : ({ROWS}) -> !stepwell.int<"s0">'
    line = f'%y = aten.clamp.default(%x, %n) : ({ROWS}, !stepwell.int<"s0">) -> {ROWS}'
    refused(method(f"%x: {ROWS}", size, line, gives=ROWS), ALL["lower-clamp"], "only at run time")
