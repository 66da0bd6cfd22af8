"""LerpToProducts: both ends, and what it leaves alone."""

from typing import Any

import pytest
import torch

from stepwell.translate.rewrites.aten.lerp_to_products import LerpToProducts


def lerp(weight: float, method: Any, element: str = "f32") -> str:
    held = f"tensor<2x3x{element}>"
    return method(
        f"%a: {held}, %b: {held}",
        f"%y = aten.lerp.Scalar(%a, %b, {weight}) : ({held}, {held}) -> {held}",
        gives=held,
    )


@pytest.mark.parametrize("weight", [0.0, 0.49, 0.5, 1.0, -0.75, 3.0])
def test_it_starts_from_the_nearer_end(weight: float, apply: Any, method: Any):
    done = apply(lerp(weight, method), LerpToProducts())
    last = "aten.add.Tensor" if abs(weight) < 0.5 else "aten.sub.Tensor"
    assert done.ops() == ["aten.sub.Tensor", "aten.mul.Scalar", last]
    a, b = torch.full((2, 3), 1e8), torch.full((2, 3), 1.0)
    wanted = torch.lerp(a, b, weight)
    torch.testing.assert_close(done.program.run(a, b)[0], wanted, rtol=1e-6, atol=1e-6)


def test_half_precision_is_refused(refused: Any, method: Any):
    refused(lerp(0.25, method, "f16"), LerpToProducts(), "float32")


def test_a_weight_known_only_at_run_time_is_refused(refused: Any, method_of_n: Any):
    held = "tensor<2x3xf32>"
    call = f'%y = aten.lerp.Scalar(%x, %x, %n) : ({held}, {held}, !stepwell.int<"n">) -> {held}'
    refused(method_of_n(f"%x: {held}", call, gives=held), LerpToProducts(), "run time")
