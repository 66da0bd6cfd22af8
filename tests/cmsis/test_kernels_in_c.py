"""The kernels in C on cases of real CMSIS-NN: on this machine, and with vectors on a board."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from stepwell.backends.cortex_m.c.writer import Shared, Sources, literal, sections
from stepwell.backends.executorch.container import Container

from . import standalone_builds as builds
from .test_kernels_golden import RUN, activation, golden, tensors

OPERATORS = [name for name in RUN if name != "fully_connected_per_channel_s8"]
"""One multiplier a tensor is what the library's linear layer takes."""
_MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <math.h>
#include "model.h"
{kernels}
{cases}
int main(void)
{{
{calls}
    return 0;
}}
"""
_CALL = """\
    {{
        static int8_t made[{count}];
        {call};
        const int same = memcmp(made, {wanted}, {count}) == 0;
        (void)fwrite(same ? "=" : "#", 1, 1, stdout);
    }}"""


def convolution(case: dict[str, Any], shapes: dict[str, Any]) -> dict[str, Any]:
    x, w, out = shapes["x"], shapes["w"], shapes["out"]
    stride, padding, dilation = (case[name] for name in ("stride", "padding", "dilation"))
    low, high = activation(case)
    return {
        "batch": x[0], "in_h": x[1], "in_w": x[2], "in_c": x[3],
        "kernel_h": w[1], "kernel_w": w[2], "kernel_c": w[3],
        "out_h": out[1], "out_w": out[2], "out_c": out[3],
        "stride_h": stride[0], "stride_w": stride[1], "pad_h": padding[0], "pad_w": padding[1],
        "dilation_h": dilation[0], "dilation_w": dilation[1],
        "in_offset": case["input_offset"], "out_offset": case["output_offset"],
        "low": low, "high": high,
    }  # fmt: skip


def pool(case: dict[str, Any], shapes: dict[str, Any]) -> dict[str, Any]:
    x, out = shapes["x"], shapes["out"]
    low, high = activation(case)
    return {
        "batch": x[0], "in_h": x[1], "in_w": x[2], "channels": x[3],
        "out_h": out[1], "out_w": out[2],
        "kernel_h": case["kernel"][0], "kernel_w": case["kernel"][1],
        "stride_h": case["stride"][0], "stride_w": case["stride"][1],
        "pad_h": case["padding"][0], "pad_w": case["padding"][1], "low": low, "high": high,
    }  # fmt: skip


def matmul(case: dict[str, Any], shapes: dict[str, Any]) -> dict[str, Any]:
    is_batch = case["op"] == "batch_matmul_s8"
    rows, columns = (shapes["lhs"], shapes["rhs_t"]) if is_batch else (shapes["x"], shapes["w"])
    low, high = activation(case)
    offsets = ("lhs_offset", "rhs_offset", "out_offset") if is_batch else (
        "input_offset", "", "output_offset")  # fmt: skip
    multiplier = ("mult" if is_batch else "multiplier", "shift")
    return {
        "batch": rows[0] if is_batch else 1, "rows": rows[-2], "inner": rows[-1],
        "columns": columns[-2],
        "in_offset": case[offsets[0]], "filter_offset": case.get(offsets[1], 0),
        "out_offset": case[offsets[2]],
        "multiplier": case[multiplier[0]], "shift": case[multiplier[1]], "low": low, "high": high,
    }  # fmt: skip


def elementwise(case: dict[str, Any], count: int) -> dict[str, Any]:
    names = {"a_offset": "input_1_offset", "b_offset": "input_2_offset",
             "out_offset": "out_offset", "out_multiplier": "out_mult",
             "out_shift": "out_shift"}  # fmt: skip
    found = {"count": count, "period": count, **{k: case[v] for k, v in names.items()}}
    if case["op"] == "elementwise_add_s8":
        low, high = activation(case)
        names = {"a_multiplier": "input_1_mult", "a_shift": "input_1_shift",
                 "b_multiplier": "input_2_mult", "b_shift": "input_2_shift"}  # fmt: skip
        found |= {"low": low, "high": high, **{k: case[v] for k, v in names.items()}}
    return found


SECTIONS = {
    "fully_connected_s8": "linear", "convolve_s8": "conv2d",
    "depthwise_conv_s8": "depthwise_conv2d", "elementwise_add_s8": "add",
    "elementwise_mul_s8": "mul", "softmax_s8": "softmax",
    "avgpool_s8": "avg_pool2d", "max_pool_s8": "max_pool2d", "batch_matmul_s8": "batch_matmul",
}  # fmt: skip


def is_taken(case: dict[str, Any]) -> bool:
    """Whether a program in C has such a call: sums shift by 20, products keep all of a byte."""
    return case.get("left_shift", 20) == 20 and (
        case["op"] != "elementwise_mul_s8" or activation(case) == (-128, 127)
    )


def case_in_c(case: dict[str, Any]) -> tuple[list[str], str]:
    """The arrays of a case, and its call."""
    number, operator = case["case"], case["op"]
    own = tensors(case)
    shapes = {name: list(value.shape) for name, value in own.items()}
    arrays, named = [], {}
    for name, value in own.items():
        kind = "int8_t" if value.dtype == torch.int8 else "int32_t"
        named[name] = f"{name}_{number}"
        values = literal(value.flatten().tolist()).replace("-2147483648", "INT32_MIN")
        arrays.append(f"static const {kind} {named[name]}[{value.numel()}] = {values};")
    section, count = SECTIONS[operator], own["out"].numel()
    given = [named.get(name, "NULL") for name in ("x", "w", "b", "multiplier", "shift")]
    if operator in ("convolve_s8", "depthwise_conv_s8"):
        kind, values = "conv", convolution(case, shapes)
    elif "pool" in operator:
        kind, values, given = "pool", pool(case, shapes), given[:1]
    elif section in ("linear", "batch_matmul"):
        kind, values, given = "matmul", matmul(case, shapes), given[:3]
        if section == "batch_matmul":
            given = [named["lhs"], named["rhs_t"]]
    elif section == "softmax":
        size = shapes["x"][-1]
        numbers = [count // size, size, case["mult"], case["shift"], case["diff_min"]]
        call = f"sw_softmax({', '.join(map(str, numbers))}, {named['x']}, made)"
        return arrays, _CALL.format(count=count, call=call, wanted=named["out"])
    else:
        kind, values = section, elementwise(case, count)
        given = [named["a"], named["b"]]
    arrays.append(f"static const sw_{kind}_params p_{number} = {literal(values)};")
    call = f"sw_{section}({', '.join([f'&p_{number}', *given, 'made'])})"
    return arrays, _CALL.format(count=count, call=call, wanted=named["out"])


def program(operator: str) -> tuple[Sources, int]:
    cases = [case for case in golden()[0] if case["op"] == operator and is_taken(case)]
    shared = Shared(Container(()), "model")
    shared.use(SECTIONS[operator])
    written = [case_in_c(case) for case in cases]
    text = _MAIN.format(
        kernels="\n".join(sections()[name][1] for name in shared.used),
        cases="\n".join(line for arrays, _ in written for line in arrays),
        calls="\n".join(call for _, call in written),
    )
    return Sources({"model.h": "", "main.c": text}, 0, 0, 0), len(cases)


@pytest.mark.skipif(not builds.HAS_GCC, reason="gcc is not installed")
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_kernel_in_c_gives_what_cmsis_nn_gave(operator: str, tmp_path: Path) -> None:
    sources, count = program(operator)
    assert count >= 10
    assert builds.run_on_host(sources, tmp_path, []) == b"=" * count


@pytest.mark.skipif(not builds.HAS_BOARDS, reason="gcc for Arm or qemu is not installed")
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_kernel_with_vectors_gives_what_cmsis_nn_gave(operator: str, tmp_path: Path) -> None:
    sources, count = program(operator)
    try:
        data = builds.run_on_files("cortex-m55", sources, tmp_path, [])
    except subprocess.CalledProcessError as error:
        raise AssertionError(error.stderr) from error
    assert data == b"=" * count
