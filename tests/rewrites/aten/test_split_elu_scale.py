"""SplitEluScale: selu and celu, and what it leaves alone."""

from typing import Any

import pytest
import torch

from stepwell.translate.rewrites.aten.split_elu_scale import SplitEluScale


def unary(call: str, method: Any, element: str = "f32") -> str:
    held = f"tensor<2x3x{element}>"
    return method(f"%x: {held}", f"%y = aten.{call} : ({held}) -> {held}", gives=held)


def test_selu_is_a_scaled_elu(apply: Any, method: Any):
    done = apply(unary("selu.default(%x)", method), SplitEluScale())
    assert done.ops() == ["aten.elu.default", "aten.mul.Scalar"]
    x = torch.linspace(-4, 4, 6).reshape(2, 3)
    torch.testing.assert_close(done.program.run(x)[0], torch.nn.functional.selu(x))


def test_celu_is_an_elu_of_the_scaled_tensor(apply: Any, method: Any):
    done = apply(unary("celu.default(%x, 2.0)", method), SplitEluScale())
    assert done.ops() == ["aten.mul.Scalar", "aten.elu.default", "aten.mul.Scalar"]
    x = torch.linspace(-4, 4, 6).reshape(2, 3)
    torch.testing.assert_close(done.program.run(x)[0], torch.nn.functional.celu(x, 2.0))


def test_a_plain_elu_is_left_alone(refused: Any, method: Any):
    refused(unary("elu.default(%x, 0.5)", method), SplitEluScale())


def test_a_scaled_exponent_is_refused(refused: Any, method: Any):
    refused(unary("elu.default(%x, 1.0, 1.0, 2.0)", method), SplitEluScale(), "input_scale")


def test_a_celu_that_bends_the_other_way_is_refused(refused: Any, method: Any):
    refused(unary("celu.default(%x, -1.0)", method), SplitEluScale(), "bends")


@pytest.mark.parametrize("call", ["selu.default(%x)", "elu.default(%x, 1.0, 2.0)"])
def test_half_precision_is_refused(call: str, refused: Any, method: Any):
    refused(unary(call, method, "f16"), SplitEluScale(), "float32")
