"""Activations in terms of what every target has: beyond their examples, and what stays."""

from typing import Any

import torch
from rewrite_cases import cases

import stepwell
from stepwell.translate.canonicalize import activations as canonical
from stepwell.translate.decompositions import activations

RULES = (*canonical.RULES, *activations.RULES)
ALL = {rule.name: rule() for rule in RULES}
SPECIAL = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 0.25, -0.25, 1e-40])


test_activations = cases(RULES)("""
softplus-to-log: half precision -> refused: float32
    %y = aten.softplus.default(%x: f16[2, 3])
mish-to-quotient: half precision -> refused: float32
    %y = aten.mish.default(%x: f16[2, 3])
log-sigmoid-to-log: half precision -> refused: float32
    %y = aten.log_sigmoid.default(%x: f16[2, 3])
hardsigmoid-to-clamp: half precision -> refused: float32
    %y = aten.hardsigmoid.default(%x: f16[2, 3])
selu-to-elu: half precision -> refused: float32
    %y = aten.selu.default(%x: f16[2, 3])
split-celu-scale: half precision -> refused: float32
    %y = aten.celu.default(%x: f16[2, 3], 2.0)
split-elu-scale: half precision -> refused: float32
    %y = aten.elu.default(%x: f16[2, 3], 1.0, 2.0)
glu-to-sigmoid: an axis of unknown length is not halved -> refused: symbolic
    %a = aten.cat.default([%x: f32[2, s0], %x], 1); %y = aten.glu.default(%a, 1)
softplus-to-log: another beta -> refused: beta is 2
    %y = aten.softplus.default(%x: f32[2, 3], 2)
softplus-to-log: a low threshold -> refused: threshold 4
    %y = aten.softplus.default(%x: f32[2, 3], 1, 4)
hardsigmoid-to-clamp: the gate of a hardswish is left to its recognizer -> unchanged
    %a = aten.hardsigmoid.default(%x: f32[2, 3]); %y = aten.mul.Tensor(%x, %a)
split-elu-scale: a plain elu -> unchanged
    %y = aten.elu.default(%x: f32[2, 3], 0.5)
split-elu-scale: a scaled exponent -> refused: input_scale
    %y = aten.elu.default(%x: f32[2, 3], 1.0, 1.0, 2.0)
split-celu-scale: a celu that bends the other way -> refused: bends
    %y = aten.celu.default(%x: f32[2, 3], -1.0)
recognize-hardswish: the gate of another tensor -> unchanged
    %a = aten.hardsigmoid.default(%z: f32[2, 3]); %y = aten.mul.Tensor(%x: f32[2, 3], %a)
recognize-written-hardswish: another shift -> unchanged
    %a = aten.add.Scalar(%x: f32[2, 3], 2); %b = aten.clamp.default(%a, 0, 6)
    %c = aten.div.Scalar(%b, 6); %y = aten.mul.Tensor(%x, %c)
the quotient may come last -> aten.hardswish.default
    %a = aten.add.Scalar(%x: f32[2, 3], 3); %b = aten.clamp.default(%a, 0, 6)
    %c = aten.mul.Tensor(%b, %x); %y = aten.div.Scalar(%c, 6)
recognize-divided-hardswish: another divisor and another precision -> unchanged
    - %a = aten.add.Scalar(%x: f64[2, 3], 3); %b = aten.clamp.default(%a, 0, 6)
      %c = aten.mul.Tensor(%b, %x); %y = aten.div.Scalar(%c, 6)
    - %a = aten.add.Scalar(%x: f32[2, 3], 3); %b = aten.clamp.default(%a, 0, 6)
      %c = aten.mul.Tensor(%b, %x); %y = aten.div.Scalar(%c, 5)
""")


def test_mish_of_a_large_negative_number_is_right_to_its_own_size():
    x = torch.linspace(-80, 100, 1441)
    exported = torch.export.export(torch.nn.Mish(), (x,))
    (found,) = stepwell.lower(exported, "tosa-1.0+fp").program.run(x)
    torch.testing.assert_close(found, torch.nn.Mish()(x.double()).float(), rtol=1e-6, atol=0)


def test_softshrink_of_special_values_is_what_it_was(apply: Any):
    done = apply("%y = aten.softshrink.default(%x: f32[8], 0.25)", ALL["softshrink-to-clamp"])
    (found,) = done.program.run(SPECIAL)
    wanted = torch.nn.functional.softshrink(SPECIAL[1:], 0.25)
    assert found[0].isnan()
    assert torch.equal(found[1:].nan_to_num(7.0, 8.0, 9.0), wanted.nan_to_num(7.0, 8.0, 9.0))


def test_selu_is_a_scaled_elu(apply: Any):
    done = apply("%y = aten.selu.default(%x: f32[2, 3])", ALL["selu-to-elu"])
    assert done.ops() == ["aten.elu.default", "aten.mul.Scalar"]
    x = torch.linspace(-4, 4, 6).reshape(2, 3)
    torch.testing.assert_close(done.program.run(x)[0], torch.nn.functional.selu(x))


def test_celu_is_an_elu_of_the_scaled_tensor(apply: Any):
    done = apply("%y = aten.celu.default(%x: f32[2, 3], 2.0)", *ALL.values())
    assert done.ops() == ["aten.mul.Scalar", "aten.elu.default", "aten.mul.Scalar"]
    x = torch.linspace(-4, 4, 6).reshape(2, 3)
    torch.testing.assert_close(done.program.run(x)[0], torch.nn.functional.celu(x, 2.0))
