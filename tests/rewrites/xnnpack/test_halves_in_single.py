"""The cast node and WidenHalves: casts that are nodes, and halves that need no wider sums."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.ir.rewriting.rewrite import Rewrite
from stepwell.translate.decompositions import floats
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.xnnpack.nodes.lower_elementwise import RULES

(CAST_NODE,) = (rule() for rule in RULES if rule.name == "lower-float-cast")
X, HALF = "tensor<2x4xf32>", "tensor<2x4xf16>"


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
def test_halves_stay(name: str, apply: Any, method: Any):
    rewrite, line, given, gives, reason = NEAR_MISSES[name]
    done = apply(one(method, line, given, gives), rewrite)
    assert done.count == 0
    assert any(reason in held for held in done.reasons) or not reason


test_halves_in_single = cases(RULES, floats)("""
lower-float-cast: a constant is cast at compile time -> refused: one that is computed
    %c = aten._to_copy.default(%w: weight f32[2, 4], dtype=f16)
    %y = aten.add.Tensor(%x: f16[2, 4], %c)
widen-halves: a convolution of halves has a kernel -> unchanged
    %y = aten.convolution.default(%x: f16[1, 4, 3, 3], %w: weight f16[4, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
widen-halves: a hardsigmoid that becomes a hardswish -> unchanged
    %s = aten.hardsigmoid.default(%x: f16[2, 4]); %y = aten.mul.Tensor(%x, %s)
widen-measured-range: steps of halves are measured in single -> applied once
    # ExecuTorch's kernel ends the process on anything else.
    - %y, %z = quantized_decomposed.choose_qparams.tensor(%x: f16[2, 4], -128, 127, 0.0001, i8); return %y
    - %y, %z = quantized_decomposed.choose_qparams.tensor(%x: bf16[2, 4], -128, 127, 0.0001, i8); return %y
widen-measured-range: steps of halves are measured in single -> applied 0 times
    %y, %z = quantized_decomposed.choose_qparams.tensor(%x: f32[2, 4], -128, 127, 0.0001, i8)
    return %y
""")
