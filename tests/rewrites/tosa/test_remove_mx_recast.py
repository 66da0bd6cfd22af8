"""RemoveMxRecast: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases

from stepwell.dialects.tosa_mxfp.numerics import (
    cast_from_block_scaled,
    cast_to_block_scaled,
    fake_quantize,
)
from stepwell.dialects.tosa_mxfp.payloads import PAYLOADS
from stepwell.translate.rewrites.mxfp.remove_mx_recast import RemoveMxRecast

SMALL = "%b = tosa.tanh %x : (tensor<1x2x32xf32>) -> tensor<1x2x32xf32>"


def text(small: str = SMALL, held: str = "f32", again: str = "f8E4M3FN", taken: str = "f32") -> str:
    data, scale = "tensor<1x2x32x{}>", "tensor<1x2x1xf8E8M0FNU>"
    first, second = data.format("f8E4M3FN"), data.format(again)
    block = "{block_size = BLOCK_SIZE_32}"
    value = data.format(held)
    return f"""func.func @forward(%x: {data.format(taken)}) -> ({second}, {scale}) {{
  {small}
  %0, %1 = tosa.cast_to_block_scaled %b {block} : (tensor<1x2x32xf32>) -> ({first}, {scale})
  %2 = tosa.cast_from_block_scaled %0, %1 {block} : ({first}, {scale}) -> {value}
  %3, %4 = tosa.cast_to_block_scaled %2 {block} : ({value}) -> ({second}, {scale})
  func.return %3, %4 : {second}, {scale}
}}
"""


CLAMP = (
    "%b = tosa.clamp %x {{min_val = {0} : f32, max_val = {1} : f32, nan_mode = PROPAGATE}} "
    ": (tensor<1x2x32xf32>) -> tensor<1x2x32xf32>"
)


@pytest.mark.parametrize(
    ("small", "taken"),
    [
        (SMALL, "f32"),
        (CLAMP.format("-3.0", "3.0"), "f32"),
        ("%b = tosa.cast %x : (tensor<1x2x32xf16>) -> tensor<1x2x32xf32>", "f16"),
        (
            SMALL.replace("%b", "%a") + "\n  %b = tosa.reverse %a {axis = 1 : i32} : "
            "(tensor<1x2x32xf32>) -> tensor<1x2x32xf32>",
            "f32",
        ),
    ],
)
def test_numbers_known_to_be_small_are_cast_once(apply: Any, small: str, taken: str) -> None:
    assert apply(text(small, taken=taken), RemoveMxRecast()).ops().count(
        "tosa.cast_to_block_scaled"
    ) == 1  # fmt: skip


@pytest.mark.parametrize(
    "small",
    [
        "%b = tosa.exp %x : (tensor<1x2x32xf32>) -> tensor<1x2x32xf32>",
        CLAMP.format("0.0", "3.4e38"),
        CLAMP.format("-3.4e38", "0.0"),
    ],
)
def test_numbers_that_may_round_to_inf_are_cast_again(refused: Any, small: str) -> None:
    refused(text(small), RemoveMxRecast(), "near the largest float32")


test_remove_mx_recast = cases(RemoveMxRecast)("""
bf16 values are cast again -> refused: bf16 does not hold
    %b = tosa.tanh(%x: f32[1, 2, 32])
    %v2, %v3 = tosa.cast_to_block_scaled(%b, block_size="BLOCK_SIZE_32") -> (f8E4M3FN[1, 2, 32], f8E8M0FNU[1, 2, 1])
    %v4 = tosa.cast_from_block_scaled(%v2, %v3, block_size="BLOCK_SIZE_32") -> bf16[1, 2, 32]
    %v5, %v6 = tosa.cast_to_block_scaled(%v4, block_size="BLOCK_SIZE_32") -> (f8E4M3FN[1, 2, 32], f8E8M0FNU[1, 2, 1])
another payload is cast again -> refused: different payloads
    %b = tosa.tanh(%x: f32[1, 2, 32])
    %v2, %v3 = tosa.cast_to_block_scaled(%b, block_size="BLOCK_SIZE_32") -> (f8E4M3FN[1, 2, 32], f8E8M0FNU[1, 2, 1])
    %v4 = tosa.cast_from_block_scaled(%v2, %v3, block_size="BLOCK_SIZE_32") -> f32[1, 2, 32]
    %v5, %v6 = tosa.cast_to_block_scaled(%v4, block_size="BLOCK_SIZE_32") -> (f8E5M2[1, 2, 32], f8E8M0FNU[1, 2, 1])
codes that come from outside are cast again -> unchanged
    %v2, %v3 = tosa.cast_to_block_scaled(%x: f32[1, 32], block_size="BLOCK_SIZE_32") -> (f8E4M3FN[1, 32], f8E8M0FNU[1, 1])
    %v4, %v5 = tosa.cast_to_block_scaled(%y: f32[1, 32], block_size="BLOCK_SIZE_32") -> (f8E4M3FN[1, 32], f8E8M0FNU[1, 1])
    %v6 = tosa.cast_from_block_scaled(%v2, %v5, block_size="BLOCK_SIZE_32") -> f32[1, 32]
    %v7, %v8 = tosa.cast_to_block_scaled(%v6, block_size="BLOCK_SIZE_32") -> (f8E4M3FN[1, 32], f8E8M0FNU[1, 1])
""")


def test_a_block_scaled_input_is_cast_again(programs: Any) -> None:
    block = "{block_size = BLOCK_SIZE_32}"
    data, scale, value = "tensor<1x32xf8E4M3FN>", "tensor<1x1xf8E8M0FNU>", "tensor<1x32xf32>"
    program, _ = programs(
        f"""func.func @forward(%0: {data}, %1: {scale}) -> ({data}, {scale}) {{
  %4 = tosa.cast_from_block_scaled %0, %1 {block} : ({data}, {scale}) -> {value}
  %5, %6 = tosa.cast_to_block_scaled %4 {block} : ({value}) -> ({data}, {scale})
  func.return %5, %6 : {data}, {scale}
}}
"""
    )
    ops = [op for op in program.method().walk() if op.name == "tosa.cast_to_block_scaled"]
    assert RemoveMxRecast().match(ops[0], program) is None  # pyright: ignore


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_a_second_cast_gives_the_same_codes_below_the_largest_numbers(payload: Any) -> None:
    scale = torch.exp2((torch.rand(4096, 1, dtype=torch.float64) * 2 - 1) * 145)
    x = (torch.randn(4096, 32, dtype=torch.float64) * scale).float().clamp(-(2.0**126), 2.0**126)
    x[0], x[1, 3], x[2, 3] = 0.0, torch.nan, torch.inf
    codes, scales = cast_to_block_scaled(x, payload)
    again = cast_to_block_scaled(cast_from_block_scaled(codes, scales, payload), payload)
    assert torch.equal(codes, again[0]) and torch.equal(scales, again[1])
    assert fake_quantize(torch.full((1, 32), 3.4e38), PAYLOADS["fp4e2m1"]).isinf().all()
