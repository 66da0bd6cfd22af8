"""The cast node and WidenHalves: casts that are nodes, and halves that need no wider sums."""

from typing import Any

import pytest

from stepwell.ir.rewriting.rewrite import Rewrite
from stepwell.translate.decompositions import floats
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.xnnpack.nodes.lower_elementwise import RULES

(CAST_NODE,) = (rule() for rule in RULES if rule.name == "lower-float-cast")
X, HALF = "tensor<2x4xf32>", "tensor<2x4xf16>"
IMAGE, FILTER = "tensor<1x4x3x3xf16>", "tensor<4x4x1x1xf16>"


def one(method: Any, line: str, given: str, gives: str, before: str = "") -> str:
    return method(f"%x: {given}", before, f"%y = aten.{line} : ({given}) -> {gives}", gives=gives)


CAST = "_to_copy.default(%x, dtype={})"
SEVEN, SEVEN16 = (f"tensor<1x1x1x1x1x2x4x{element}>" for element in ("f32", "f16"))
LAST = "tensor<1x2x3x4xf32>", "tensor<1x2x3x4xf16>"
NEAR_MISSES: dict[str, tuple[Rewrite[Any], str, str, str, str]] = {
    "a cast to doubles": (CAST_NODE, CAST.format("f64"), X, "tensor<2x4xf64>", ""),
    "a cast of seven axes": (CAST_NODE, CAST.format("f16"), SEVEN, SEVEN16, "rank 7"),
    "a cast to channels last": (
        CAST_NODE,
        '_to_copy.default(%x, dtype=f16, memory_format="channels_last")',
        *LAST,
        "",
    ),
    "a norm of singles": (step(floats.widen_halves), "layer_norm.default(%x, [4])", X, X, ""),
    "a gelu by erf": (step(floats.widen_halves), "gelu.default(%x)", HALF, HALF, ""),
    "a number that is no half beside singles": (
        step(floats.widen_scalar_of_halves), "mul.Scalar(%x, 0.1)", X, X, "",
    ),
    "halves of seven axes": (step(floats.widen_scalar_of_halves), "mul.Scalar(%x, 0.1)", SEVEN16, SEVEN16, ""),
    "a number that is a half": (step(floats.widen_scalar_of_halves), "mul.Scalar(%x, 0.5)", HALF, HALF, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_it_stays(name: str, apply: Any, method: Any):
    rewrite, line, given, gives, reason = NEAR_MISSES[name]
    done = apply(one(method, line, given, gives), rewrite)
    assert done.count == 0
    assert any(reason in held for held in done.reasons) or not reason


def test_a_constant_is_cast_at_compile_time(refused: Any, method: Any):
    lines = (
        f'%w = stepwell.weight <"w"> "parameter" : {X}',
        f"%c = aten._to_copy.default(%w, dtype=f16) : ({X}) -> {HALF}",
        f"%y = aten.add.Tensor(%x, %c) : ({HALF}, {HALF}) -> {HALF}",
    )
    refused(method(f"%x: {HALF}", *lines, gives=HALF), CAST_NODE, "one that is computed")


def test_a_convolution_of_halves_has_a_kernel(refused: Any, method: Any):
    line = (
        "%y = aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)"
        f" : ({IMAGE}, {FILTER}) -> {IMAGE}"
    )
    weight = f'%w = stepwell.weight <"w"> "parameter" : {FILTER}'
    refused(method(f"%x: {IMAGE}", weight, line, gives=IMAGE), step(floats.widen_halves))


def test_a_hardsigmoid_that_becomes_a_hardswish_stays(refused: Any, method: Any):
    lines = (
        f"%s = aten.hardsigmoid.default(%x) : ({HALF}) -> {HALF}",
        f"%y = aten.mul.Tensor(%x, %s) : ({HALF}, {HALF}) -> {HALF}",
    )
    refused(method(f"%x: {HALF}", *lines, gives=HALF), step(floats.widen_halves))


@pytest.mark.parametrize("real", ["f16", "bf16", "f32"])
def test_steps_of_halves_are_measured_in_single(real: str, apply: Any, method: Any):
    """ExecuTorch's kernel ends the process on anything else."""
    line = (
        "%y, %z = quantized_decomposed.choose_qparams.tensor(%x, -128, 127, 0.0001, i8)"
        f" : (tensor<2x4x{real}>) -> (tensor<1xf64>, tensor<1xi64>)"
    )
    text = method(f"%x: tensor<2x4x{real}>", line, gives="tensor<1xf64>")
    done = apply(text, step(floats.widen_measured_range))
    assert done.count == (real != "f32")
