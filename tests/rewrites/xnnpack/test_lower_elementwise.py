"""Elementwise nodes: forms that XNNPACK's nodes do not have stay as they are."""

from typing import Any

import pytest

from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.rewrites.xnnpack.nodes.lower_elementwise import RULES

ALL = {rule.name: rule() for rule in RULES}

X, IMAGE = "tensor<2x4xf32>", "tensor<2x3x3x3xf32>"

NEAR_MISSES = {
    "gelu by tanh": ('aten.gelu.default(%x, approximate="tanh")', "the exact one"),
    "elu with a scale": ("aten.elu.default(%x, 1, 2.0)", "scales neither"),
    "elu with an input scale": ("aten.elu.default(%x, 1, 1, 2.0)", "scales neither"),
    "elu that falls": ("aten.elu.default(%x, -0.5)", "XNNPACK's is positive"),
    "elu that is a relu": ("aten.elu.default(%x, 0)", "XNNPACK's is positive"),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_it_stays(name: str, refused: Any, method: Any):
    line, reason = NEAR_MISSES[name]
    text = method(f"%x: {X}", f"%y = {line} : ({X}) -> {X}", gives=X)
    refused(text, ALL["lower-" + line.split(".")[1]], reason)


@pytest.mark.parametrize("line", ["aten.gelu.default(%x)", "aten.elu.default(%x, 0.5)"])
def test_plain_forms_are_nodes(line: str, apply: Any, method: Any):
    text = method(f"%x: {X}", f"%y = {line} : ({X}) -> {X}", gives=X)
    assert apply(text, *ALL.values()).count == 1


@pytest.mark.parametrize("name", ["elu", "leaky_relu"])
def test_a_slope_that_torch_refuses_is_refused(name: str, method: Any):
    text = method(f"%x: {X}", f"%y = aten.{name}.default(%x, 1.0e300) : ({X}) -> {X}", gives=X)
    history = History()
    assert run_rewrites(Program.parse(text), tuple(ALL.values()), history) == 0
    (refusal,) = history.refusals.values()
    assert refusal.reason == "1e+300 does not fit float32"


def test_sizes_that_only_the_model_knows_to_be_the_same_are_not_broadcast(
    refused: Any, method: Any
):
    one, other = (f'tensor<?x4xf32, #stepwell.shape<["{s}", 4]>>' for s in ("s0", "s1"))
    line = f"%y = aten.add.Tensor(%x, %z) : ({one}, {other}) -> {one}"
    text = method(f"%x: {one}, %z: {other}", line, gives=one)
    refused(text, ALL["lower-sum"], "do not broadcast: s0 against s1")


def test_a_sum_times_alpha_stays(refused: Any, method: Any):
    line = f"%y = aten.add.Tensor(%x, %z, alpha=2) : ({X}, {X}) -> {X}"
    refused(method(f"%x: {X}, %z: {X}", line, gives=X), ALL["lower-sum"], "alpha is 2")


def test_what_is_computed_of_constants_is_folded_and_no_node(refused: Any, method: Any):
    weight = f'%w = stepwell.weight <"w"> "parameter" : {X}'
    first = f"%c = aten.abs.default(%w) : ({X}) -> {X}"
    last = f"%y = aten.erf.default(%c) : ({X}) -> {X}"
    text = method(f"%x: {X}", weight, first, last, gives=X)
    refused(text, ALL["lower-unary"], "one that is computed")


@pytest.mark.parametrize(
    ("shape", "slopes", "taken"),
    [(X, 4, True), (X, 1, True), (IMAGE, 1, True), (IMAGE, 3, False)],
)
def test_slopes_stand_on_the_last_axis_or_are_one(
    shape: str, slopes: int, taken: bool, apply: Any, refused: Any, method: Any
):
    weight = f'%w = stepwell.weight <"w"> "parameter" : tensor<{slopes}xf32>'
    line = f"%y = aten.prelu.default(%x, %w) : ({shape}, tensor<{slopes}xf32>) -> {shape}"
    text = method(f"%x: {shape}", weight, line, gives=shape)
    if taken:
        assert apply(text, ALL["lower-prelu"]).ops() == ["xnnpack.prelu"]
    else:
        refused(text, ALL["lower-prelu"], "not the last")
