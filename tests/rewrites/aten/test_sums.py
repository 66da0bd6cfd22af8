"""Sums with factors: beyond their examples, and what stays."""

from typing import Any

import pytest
import torch

from stepwell.translate.canonicalize.sums import RULES

ALL = {rule.name: rule() for rule in RULES}
X = "tensor<2x3xf32>"


def of_two(call: str, method: Any, first: str = "f32", second: str = "f32") -> str:
    one, other = f"tensor<2x3x{first}>", f"tensor<2x3x{second}>"
    line = f"%y = aten.{call} : ({one}, {other}) -> {one}"
    return method(f"%x: {one}, %z: {other}", line, gives=one)


@pytest.mark.parametrize("name", ["split-alpha-of-add", "drop-alpha-of-add"])
def test_a_sum_without_a_factor_stays(name: str, refused: Any, method: Any):
    refused(of_two("add.Tensor(%x, %z)", method), ALL[name])


@pytest.mark.parametrize("form", ["add", "sub", "rsub"])
def test_operands_of_two_dtypes_are_refused(form: str, refused: Any, method: Any):
    text = of_two(f"{form}.Tensor(%x, %z, alpha=2)", method, second="f16")
    refused(text, ALL[f"split-alpha-of-{form}"], "several dtypes")


@pytest.mark.parametrize(
    ("call", "ops"),
    [
        ("add.Tensor(%x, %z, alpha=1)", ["aten.add.Tensor"]),
        ("sub.Tensor(%x, %z, alpha=1)", ["aten.sub.Tensor"]),
        ("rsub.Tensor(%x, %z)", ["aten.sub.Tensor"]),
        ("rsub.Tensor(%x, %z, alpha=0.5)", ["aten.mul.Scalar", "aten.sub.Tensor"]),
    ],
)
def test_a_factor_becomes_a_product_and_one_is_dropped(
    call: str, ops: list[str], apply: Any, method: Any
):
    done = apply(of_two(call, method), *ALL.values())
    assert done.ops() == ops
    assert "alpha" not in done.text


@pytest.mark.parametrize("weight", [0.0, 0.49, 0.5, 1.0, -0.75, 3.0])
def test_an_interpolation_starts_from_the_nearer_end(weight: float, apply: Any, method: Any):
    done = apply(of_two(f"lerp.Scalar(%x, %z, {weight})", method), *ALL.values())
    last = "aten.add.Tensor" if abs(weight) < 0.5 else "aten.sub.Tensor"
    assert done.ops() == ["aten.sub.Tensor", "aten.mul.Scalar", last]
    a, b = torch.full((2, 3), 1e8), torch.full((2, 3), 1.0)
    wanted = torch.lerp(a, b, weight)
    torch.testing.assert_close(done.program.run(a, b)[0], wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("weight", "name"), [(0.25, "lerp-from-start"), (0.75, "lerp-from-end")])
def test_an_interpolation_of_halves_is_refused(weight: float, name: str, refused: Any, method: Any):
    text = of_two(f"lerp.Scalar(%x, %z, {weight})", method, "f16", "f16")
    refused(text, ALL[name], "float32")


def test_a_weight_known_only_at_run_time_is_refused(refused: Any, method_of_n: Any):
    call = f'%y = aten.lerp.Scalar(%x, %x, %n) : ({X}, {X}, !stepwell.int<"n">) -> {X}'
    refused(method_of_n(f"%x: {X}", call, gives=X), ALL["lerp-from-start"], "run time")


def test_several_dtypes_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>, %z: tensor<2x3xf32>, %h: tensor<2x3xf16>",
            "%y = aten.addcmul.default(%x, %z, %h) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf16>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["split-addcmul"],
        "dtypes",
    )


def test_addcdiv_is_a_quotient_and_a_sum(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>, %z: tensor<2x3xf32>, %w: tensor<3xf32>",
            "%y = aten.addcdiv.default(%x, %z, %w) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        *ALL.values(),
    )
    assert done.ops() == ["aten.div.Tensor", "aten.add.Tensor"]


def test_a_factor_known_only_at_run_time_is_refused(refused: Any, method_of_n: Any):
    held = "tensor<2x3xf32>"
    types = f'({held}, {held}, {held}, !stepwell.int<"n">) -> {held}'
    call = f"%y = aten.addcmul.default(%x, %x, %x, value=%n) : {types}"
    refused(
        method_of_n(f"%x: {held}", call, gives=held),
        ALL["split-scaled-addcmul"],
        "known only at run time",
    )
