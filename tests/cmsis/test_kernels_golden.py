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
from stepwell.dialects.cmsis.ops.softmax import softmax_s8

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


OFFSETS = {"input_offset": "input_offset", "output_offset": "output_offset"}
WINDOW = {name: name for name in ("stride", "padding", "dilation")}
PAIR = {
    "a_offset": "input_1_offset",
    "b_offset": "input_2_offset",
    "output_offset": "out_offset",
    "output_multiplier": "out_mult",
    "output_shift": "out_shift",
}
SCALES = {
    f"{side}_{field}": f"input_{number}_{short}"
    for side, number in (("a", 1), ("b", 2))
    for field, short in (("multiplier", "mult"), ("shift", "shift"))
}
FACTOR = {"multiplier": "mult", "shift": "shift"}
PRODUCT = {"lhs_offset": "lhs_offset", "rhs_offset": "rhs_offset", "output_offset": "out_offset"}
POOL = {"kernel": "kernel", "stride": "stride", "padding": "padding"}

RUN: dict[str, tuple[Callable[..., torch.Tensor], str, dict[str, str]]] = {
    "fully_connected_s8": (
        kernels.fully_connected_s8,
        "x w b",
        {**OFFSETS, "multiplier": "multiplier", "shift": "shift"},
    ),
    "fully_connected_per_channel_s8": (kernels.fully_connected_s8, "x w b", OFFSETS),
    "convolve_s8": (kernels.conv_s8, "x w b", {**WINDOW, **OFFSETS}),
    "depthwise_conv_s8": (kernels.depthwise_conv_s8, "x w b", {**WINDOW, **OFFSETS}),
    "elementwise_add_s8": (
        kernels.elementwise_add_s8,
        "a b",
        {**PAIR, **SCALES, "left_shift": "left_shift"},
    ),
    "elementwise_mul_s8": (kernels.elementwise_mul_s8, "a b", PAIR),
    "softmax_s8": (softmax_s8, "x", {**FACTOR, "diff_min": "diff_min"}),
    "avgpool_s8": (kernels.avgpool_s8, "x", POOL),
    "max_pool_s8": (kernels.max_pool_s8, "x", POOL),
    "batch_matmul_s8": (kernels.batch_matmul_s8, "lhs rhs_t", {**PRODUCT, **FACTOR}),
}
"""An operator's kernel, its operands, and its arguments by their names in the cases."""


def run(case: Case, own: dict[str, torch.Tensor]) -> torch.Tensor:
    """What the kernel makes of the tensors of a case."""
    kernel, operands, numbers = RUN[case["op"]]
    fields: dict[str, Any] = {name: case[key] for name, key in numbers.items()}
    fields |= {name: own[name].long() for name in ("multiplier", "shift") if name in own}
    if "act_min" in case:
        fields["activation"] = activation(case)
    if "pool" in case["op"]:
        fields["output_size"] = own["out"].shape[1:3]
    return kernel(*map(own.get, operands.split()), **fields)


def tensors(case: Case) -> dict[str, torch.Tensor]:
    """A case's tensors by name."""
    number = f"{case['case']}."
    arrays = golden()[1].items()
    return {k.removeprefix(number): v for k, v in arrays if k.startswith(number)}


@pytest.mark.parametrize("operator", RUN)
def test_the_kernel_gives_what_cmsis_nn_gave_in_every_case(operator: str) -> None:
    mine = [case for case in golden()[0] if case["op"] == operator]
    assert len(mine) == 40
    for case in mine:
        own = tensors(case)
        result = run(case, own)
        assert result.dtype == torch.int8
        assert torch.equal(result, own["out"]), f"case {case}"


def test_the_golden_file_holds_ten_kernels_and_no_other() -> None:
    assert {case["op"] for case in golden()[0]} == set(RUN)
