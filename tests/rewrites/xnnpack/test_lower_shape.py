"""Nodes that move and the softmax node: what moves elements in ways that the static nodes do not have."""

from typing import Any

import pytest

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import reductions
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import RULES as MOVES
from stepwell.translate.rewrites.xnnpack.nodes.lower_softmax import RULES

(RULE,) = RULES.named("lower-softmax")

ALL = {rule.name: rule() for rule in MOVES}
X = "tensor<4x6xf32>"
NEAR_MISSES = {
    "a slice with a step": (
        "aten.slice.Tensor(%x, 1, 0, 6, 2)", X, "tensor<4x3xf32>", "step 1",
    ),
    "a pad that crops": (
        "aten.constant_pad_nd.default(%x, [-1, 0])", X, "tensor<4x5xf32>", "write it as a slice",
    ),
    "a broadcast of two symbolic sizes to a third axis": (
        "aten.expand.default(%x, [3, -1, -1])",
        'tensor<?x?xf32, #stepwell.shape<["s0", "s1"]>>',
        'tensor<3x?x?xf32, #stepwell.shape<[3, "s0", "s1"]>>',
        "adds an axis next to two of symbolic sizes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_it_stays(name: str, refused: Any, method: Any):
    line, given, made, reason = NEAR_MISSES[name]
    size, more = "", ""
    if "%n" in line:
        size = f'%n = aten.sym_size.int(%x, 2) : ({given}) -> !stepwell.int<"s1">'
        more = ', !stepwell.int<"s1">'
    text = method(f"%x: {given}", size, f"%y = {line} : ({given}{more}) -> {made}", gives=made)
    kind = line.split(".")[1].replace("constant_pad_nd", "pad")
    refused(text, ALL[f"lower-{kind}"], reason)


def test_a_view_of_two_symbolic_sizes_parts_no_axis(refused: Any, method: Any):
    x = 'tensor<?x4x?xf32, #stepwell.shape<["s0", 4, "s1"]>>'
    gives = 'tensor<?x2x2x?xf32, #stepwell.shape<["s0", 2, 2, "s1"]>>'
    size = f'%n = aten.sym_size.int(%x, 2) : ({x}) -> !stepwell.int<"s1">'
    line = f'%y = aten.view.default(%x, [-1, 2, 2, %n]) : ({x}, !stepwell.int<"s1">) -> {gives}'
    text = method(f"%x: {x}", size, line, gives=gives)
    refused(text, step(reductions.view_of_open_sizes), "XNNPACK infers one")


def joined(parts: int, symbolic: bool, method: Any) -> str:
    part, whole = "tensor<2x6xf32>", f"tensor<{2 * parts}x6xf32>"
    if symbolic:
        part = 'tensor<?x6xf32, #stepwell.shape<["s0", 6]>>'
        whole = f'tensor<?x6xf32, #stepwell.shape<["{parts}*s0", 6]>>'
    values, types = ", ".join(["%x"] * parts), ", ".join([part] * parts)
    return method(
        f"%x: {part}", f"%y = aten.cat.default([{values}]) : ({types}) -> {whole}", gives=whole
    )


def test_six_parts_of_a_symbolic_size_are_refused(refused: Any, method: Any):
    refused(joined(6, True, method), ALL["lower-cat"], "more than five tensors")


@pytest.mark.parametrize(("parts", "symbolic"), [(5, True), (6, False)])
def test_five_parts_or_known_sizes_are_joined(parts: int, symbolic: bool, apply: Any, method: Any):
    assert "xnnpack.concatenate5" in apply(joined(parts, symbolic, method), ALL["lower-cat"]).ops()


def test_constants_are_moved_at_compile_time_and_by_no_node(refused: Any, method: Any):
    weight = f'%w = stepwell.weight <"w"> "parameter" : {X}'
    first = f"%c = aten.permute.default(%w, [1, 0]) : ({X}) -> tensor<6x4xf32>"
    last = "%y = aten.erf.default(%c) : (tensor<6x4xf32>) -> tensor<6x4xf32>"
    text = method(f"%x: {X}", weight, first, last, gives="tensor<6x4xf32>")
    refused(text, ALL["lower-permute"], "one that is computed")


def test_a_softmax_of_one_number_is_refused(refused: Any, method: Any):
    line = "%y = aten._softmax.default(%x, 0, false) : (tensor<f32>) -> tensor<f32>"
    refused(
        method("%x: tensor<f32>", line, gives="tensor<f32>"),
        RULE,
        "a scalar, which has no axis",
    )
