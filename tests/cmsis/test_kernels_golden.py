"""400 cases computed by real CMSIS-NN (default rounding); every element must be equal."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stepwell.dialects.cmsis import kernels

DATA = Path(__file__).parent / "data" / "cmsis_nn_s8.npz"
Case = dict[str, Any]


@cache
def golden() -> tuple[list[Case], dict[str, torch.Tensor]]:
    with np.load(DATA) as held:
        cases = json.loads(bytes(held["meta"]).decode())
        arrays = {k: torch.from_numpy(held[k]) for k in held.files if k != "meta"}
    return cases, arrays


def activation(case: Case) -> tuple[int, int]:
    return case["act_min"], case["act_max"]


def fully_connected(case: Case, get: Callable[[str], Any]) -> torch.Tensor:
    per_channel = get("multiplier") is not None
    return kernels.fully_connected_s8(
        get("x"),
        get("w"),
        get("b"),
        input_offset=case["input_offset"],
        output_offset=case["output_offset"],
        multiplier=get("multiplier").long() if per_channel else case["multiplier"],
        shift=get("shift").long() if per_channel else case["shift"],
        activation=activation(case),
    )


def convolution(case: Case, get: Callable[[str], Any]) -> torch.Tensor:
    kernel = kernels.conv_s8 if case["op"] == "convolve_s8" else kernels.depthwise_conv_s8
    return kernel(
        get("x"),
        get("w"),
        get("b"),
        stride=case["stride"],
        padding=case["padding"],
        dilation=case["dilation"],
        input_offset=case["input_offset"],
        output_offset=case["output_offset"],
        multiplier=get("multiplier"),
        shift=get("shift"),
        activation=activation(case),
    )


def add(case: Case, get: Callable[[str], Any]) -> torch.Tensor:
    return kernels.elementwise_add_s8(
        get("a"),
        get("b"),
        a_offset=case["input_1_offset"],
        a_multiplier=case["input_1_mult"],
        a_shift=case["input_1_shift"],
        b_offset=case["input_2_offset"],
        b_multiplier=case["input_2_mult"],
        b_shift=case["input_2_shift"],
        output_offset=case["out_offset"],
        output_multiplier=case["out_mult"],
        output_shift=case["out_shift"],
        activation=activation(case),
        left_shift=case["left_shift"],
    )


def mul(case: Case, get: Callable[[str], Any]) -> torch.Tensor:
    return kernels.elementwise_mul_s8(
        get("a"),
        get("b"),
        a_offset=case["input_1_offset"],
        b_offset=case["input_2_offset"],
        output_offset=case["out_offset"],
        output_multiplier=case["out_mult"],
        output_shift=case["out_shift"],
        activation=activation(case),
    )


def softmax(case: Case, get: Callable[[str], Any]) -> torch.Tensor:
    return kernels.softmax_s8(
        get("x"), multiplier=case["mult"], shift=case["shift"], diff_min=case["diff_min"]
    )


def pool(case: Case, get: Callable[[str], Any]) -> torch.Tensor:
    kernel = kernels.avgpool_s8 if case["op"] == "avgpool_s8" else kernels.max_pool_s8
    return kernel(
        get("x"),
        kernel=case["kernel"],
        stride=case["stride"],
        padding=case["padding"],
        output_size=get("out").shape[1:3],
        activation=activation(case),
    )


def batch_matmul(case: Case, get: Callable[[str], Any]) -> torch.Tensor:
    return kernels.batch_matmul_s8(
        get("lhs"),
        get("rhs_t"),
        lhs_offset=case["lhs_offset"],
        rhs_offset=case["rhs_offset"],
        output_offset=case["out_offset"],
        multiplier=case["mult"],
        shift=case["shift"],
        activation=activation(case),
    )


RUN = {
    "fully_connected_s8": fully_connected,
    "fully_connected_per_channel_s8": fully_connected,
    "convolve_s8": convolution,
    "depthwise_conv_s8": convolution,
    "elementwise_add_s8": add,
    "elementwise_mul_s8": mul,
    "softmax_s8": softmax,
    "avgpool_s8": pool,
    "max_pool_s8": pool,
    "batch_matmul_s8": batch_matmul,
}


@pytest.mark.parametrize("operator", RUN)
def test_the_kernel_gives_what_cmsis_nn_gave_in_every_case(operator: str) -> None:
    cases, arrays = golden()
    mine = [case for case in cases if case["op"] == operator]
    assert len(mine) == 40
    for case in mine:

        def get(name: str, number: int = case["case"]) -> torch.Tensor | None:
            return arrays.get(f"{number}.{name}")

        result, expected = RUN[operator](case, get), get("out")
        assert result.dtype == torch.int8
        assert torch.equal(result, expected), f"case {case}"


def test_the_golden_file_holds_ten_kernels_and_no_other() -> None:
    assert {case["op"] for case in golden()[0]} == set(RUN)
