"""Elementwise nodes: forms that XNNPACK's nodes do not have stay as they are."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.rewrites.xnnpack.nodes.lower_elementwise import RULES

ALL = {rule.name: rule() for rule in RULES}

X, IMAGE = "tensor<2x4xf32>", "tensor<2x3x3x3xf32>"


test_lower_elementwise = cases(
    RULES,
    """
lower-gelu: gelu by tanh -> refused: the exact one
    %y = aten.gelu.default(%x: f32[2, 4], approximate="tanh")
lower-elu: elu with a scale -> refused: scales neither
    %y = aten.elu.default(%x: f32[2, 4], 1, 2.0)
lower-elu: elu with an input scale -> refused: scales neither
    %y = aten.elu.default(%x: f32[2, 4], 1, 1, 2.0)
lower-elu: elu that falls -> refused: XNNPACK's is positive
    %y = aten.elu.default(%x: f32[2, 4], -0.5)
lower-elu: elu that is a relu -> refused: XNNPACK's is positive
    %y = aten.elu.default(%x: f32[2, 4], 0)
plain forms are nodes -> applied once
    - %y = aten.gelu.default(%x: f32[2, 4])
    - %y = aten.elu.default(%x: f32[2, 4], 0.5)
lower-sum: sizes that only the model knows to be the same are not broadcast -> refused: do not broadcast: s0 against s1
    %y = aten.add.Tensor(%x: f32[s0, 4], %z: f32[s1, 4]) -> f32[s0, 4]
lower-sum: a sum times alpha -> refused: alpha is 2
    %y = aten.add.Tensor(%x: f32[2, 4], %z: f32[2, 4], alpha=2)
lower-unary: what is computed of constants is folded and no node -> refused: one that is computed
    %c = aten.abs.default(%w: weight f32[2, 4])
    %y = aten.erf.default(%c)
""",
)


@pytest.mark.parametrize("name", ["elu", "leaky_relu"])
def test_a_slope_that_torch_refuses_is_refused(name: str, method: Any):
    text = method(f"%x: {X}", f"%y = aten.{name}.default(%x, 1.0e300) : ({X}) -> {X}", gives=X)
    history = History()
    assert run_rewrites(Program.parse(text), tuple(ALL.values()), history) == 0
    (refusal,) = history.refusals.values()
    assert refusal.reason == "1e+300 does not fit float32"


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
