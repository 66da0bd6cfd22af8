"""Activations in terms of what every target has: beyond their examples, and what stays."""

from typing import Any

import pytest
import torch

import stepwell
from stepwell.translate.canonicalize.activations import RULES

ALL = {rule.name: rule() for rule in RULES}
SPECIAL = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 0.25, -0.25, 1e-40])


def unary(call: str, method: Any, element: str = "f32") -> str:
    held = f"tensor<2x3x{element}>"
    return method(f"%x: {held}", f"%y = aten.{call} : ({held}) -> {held}", gives=held)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("softplus-to-log", "softplus.default(%x)"),
        ("mish-to-quotient", "mish.default(%x)"),
        ("log-sigmoid-to-log", "log_sigmoid.default(%x)"),
        ("hardsigmoid-to-clamp", "hardsigmoid.default(%x)"),
        ("selu-to-elu", "selu.default(%x)"),
        ("split-celu-scale", "celu.default(%x, 2.0)"),
        ("split-elu-scale", "elu.default(%x, 1.0, 2.0)"),
    ],
)
def test_half_precision_is_refused(name: str, call: str, refused: Any, method: Any):
    refused(unary(call, method, "f16"), ALL[name], "float32")


def test_mish_of_a_large_negative_number_is_right_to_its_own_size():
    x = torch.linspace(-80, 100, 1441)
    exported = torch.export.export(torch.nn.Mish(), (x,))
    (found,) = stepwell.lower(exported, "tosa-1.0+fp").program.run(x)
    torch.testing.assert_close(found, torch.nn.Mish()(x.double()).float(), rtol=1e-6, atol=0)


def test_an_axis_of_unknown_length_is_not_halved(refused: Any, method: Any):
    one, two = (f'tensor<2x?xf32, #stepwell.shape<[2, "{size}"]>>' for size in ("s0", "2*s0"))
    text = method(
        f"%x: {one}",
        f"%a = aten.cat.default([%x, %x], 1) : ({one}, {one}) -> {two}",
        f"%y = aten.glu.default(%a, 1) : ({two}) -> {one}",
        gives=one,
    )
    refused(text, ALL["glu-to-sigmoid"], "symbolic")


def test_another_beta_is_refused(refused: Any, method: Any):
    refused(unary("softplus.default(%x, 2)", method), ALL["softplus-to-log"], "beta is 2")


def test_a_low_threshold_is_refused(refused: Any, method: Any):
    refused(unary("softplus.default(%x, 1, 4)", method), ALL["softplus-to-log"], "threshold 4")


def test_softshrink_of_special_values_is_what_it_was(apply: Any, method: Any):
    held = "tensor<8xf32>"
    line = f"%y = aten.softshrink.default(%x, 0.25) : ({held}) -> {held}"
    done = apply(method(f"%x: {held}", line, gives=held), ALL["softshrink-to-clamp"])
    (found,) = done.program.run(SPECIAL)
    wanted = torch.nn.functional.softshrink(SPECIAL[1:], 0.25)
    assert found[0].isnan()
    assert torch.equal(found[1:].nan_to_num(7.0, 8.0, 9.0), wanted.nan_to_num(7.0, 8.0, 9.0))


def test_the_gate_of_a_hardswish_is_left_to_its_recognizer(refused: Any, method: Any):
    held = "tensor<2x3xf32>"
    text = method(
        f"%x: {held}",
        f"%a = aten.hardsigmoid.default(%x) : ({held}) -> {held}",
        f"%y = aten.mul.Tensor(%x, %a) : ({held}, {held}) -> {held}",
        gives=held,
    )
    refused(text, ALL["hardsigmoid-to-clamp"])


def test_selu_is_a_scaled_elu(apply: Any, method: Any):
    done = apply(unary("selu.default(%x)", method), ALL["selu-to-elu"])
    assert done.ops() == ["aten.elu.default", "aten.mul.Scalar"]
    x = torch.linspace(-4, 4, 6).reshape(2, 3)
    torch.testing.assert_close(done.program.run(x)[0], torch.nn.functional.selu(x))


def test_celu_is_an_elu_of_the_scaled_tensor(apply: Any, method: Any):
    done = apply(unary("celu.default(%x, 2.0)", method), *ALL.values())
    assert done.ops() == ["aten.mul.Scalar", "aten.elu.default", "aten.mul.Scalar"]
    x = torch.linspace(-4, 4, 6).reshape(2, 3)
    torch.testing.assert_close(done.program.run(x)[0], torch.nn.functional.celu(x, 2.0))


def test_a_plain_elu_is_left_alone(refused: Any, method: Any):
    refused(unary("elu.default(%x, 0.5)", method), ALL["split-elu-scale"])


def test_a_scaled_exponent_is_refused(refused: Any, method: Any):
    text = unary("elu.default(%x, 1.0, 1.0, 2.0)", method)
    refused(text, ALL["split-elu-scale"], "input_scale")


def test_a_celu_that_bends_the_other_way_is_refused(refused: Any, method: Any):
    refused(unary("celu.default(%x, -1.0)", method), ALL["split-celu-scale"], "bends")


def test_the_gate_of_another_tensor_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>, %z: tensor<2x3xf32>",
            "%a = aten.hardsigmoid.default(%z) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.mul.Tensor(%x, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["recognize-hardswish"],
    )


def test_another_shift_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.add.Scalar(%x, 2) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%b = aten.clamp.default(%a, 0, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%c = aten.div.Scalar(%b, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.mul.Tensor(%x, %c) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["recognize-written-hardswish"],
    )


def test_the_quotient_may_come_last(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.add.Scalar(%x, 3) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%b = aten.clamp.default(%a, 0, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%c = aten.mul.Tensor(%b, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.div.Scalar(%c, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        *ALL.values(),
    )
    assert done.ops() == ["aten.hardswish.default"]


@pytest.mark.parametrize(("element", "divisor"), [("f64", 6), ("f32", 5)])
def test_another_divisor_and_another_precision_stay(
    element: str, divisor: int, refused: Any, method: Any
):
    held = f"tensor<2x3x{element}>"
    text = method(
        f"%x: {held}",
        f"%a = aten.add.Scalar(%x, 3) : ({held}) -> {held}",
        f"%b = aten.clamp.default(%a, 0, 6) : ({held}) -> {held}",
        f"%c = aten.mul.Tensor(%b, %x) : ({held}, {held}) -> {held}",
        f"%y = aten.div.Scalar(%c, {divisor}) : ({held}) -> {held}",
        gives=held,
    )
    refused(text, ALL["recognize-divided-hardswish"])
