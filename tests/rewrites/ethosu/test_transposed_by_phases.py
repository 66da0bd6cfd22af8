"""Transposed convolutions by phases: every stride, kernel and border; and what stays one."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.dialects.tosa import generated as t
from stepwell.translate.rewrites.ethosu import TransposedByPhases


def upsampled(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    out_pad: tuple[int, int, int, int],
    *,
    per_channel: bool = True,
    twice: bool = False,
    weight: str = "weight ",
    bias: str = "weight ",
    outputs: int = 3,
) -> str:
    """A transposed convolution of bytes and its RESCALE; channels have factors of their own."""
    factors = outputs if per_channel else 1
    ahead, behind = out_pad[::2], out_pad[1::2]
    rows, columns = (
        (size - 1) * step + before + after + taps
        for size, step, before, after, taps in zip(
            (3, 4), stride, ahead, behind, kernel, strict=True
        )
    )
    return f"""
        %c = tosa.transpose_conv2d(%x: i8[2, 3, 4, 2], %w: {weight}i8[{outputs}, {kernel[0]}, {kernel[1]}, 2],
            %b: {bias}i32[{outputs}], %i: constant i8[1], %k: constant "k#zeros" i8[1],
            acc_type=i32, out_pad={list(out_pad)}, stride={list(stride)}) -> i32[2, {rows}, {columns}, {outputs}]
        %y = tosa.rescale(%c, %m: constant i32[{factors}], %s: constant i8[{factors}],
            %z: constant "z#zeros" i32[1], %o: constant i8[1], input_unsigned=false,
            output_unsigned=false, per_channel={str(per_channel).lower()},
            rounding_mode="SINGLE_ROUND", scale32=true) -> i8[2, {rows}, {columns}, {outputs}]
        return %y{", %c" * twice}
    """


@pytest.mark.parametrize("out_pad", [(0, 0, 0, 0), (-1, 0, -1, 1), (-1, -1, 0, -1), (1, 2, 2, 0)])
@pytest.mark.parametrize(
    ("kernel", "stride"),
    [((2, 2), (2, 2)), ((3, 3), (2, 2)), ((4, 3), (2, 1)), ((2, 5), (3, 2)), ((3, 2), (1, 4))],
)
def test_phases_compute_the_transposed_convolution(
    apply: Any, kernel: Any, stride: tuple[int, int], out_pad: Any
) -> None:
    done = apply(upsampled(kernel, stride, out_pad), TransposedByPhases())
    assert done.count == 1
    ops = [type(op) for op in done.program.module.walk()]
    assert t.TransposeConv2dOp not in ops and ops.count(t.Conv2dOp) == stride[0]


@pytest.mark.parametrize(
    "changes",
    [{"per_channel": False}, {"twice": True}, {"weight": ""}],
    ids=["one factor", "sums that another reads", "a kernel of run time"],
)
def test_transposed_convolution_stays_one_operator(refused: Any, changes: dict[str, Any]) -> None:
    refused(upsampled((3, 3), (2, 2), (-1, 0, -1, 0), **changes), TransposedByPhases())


@pytest.mark.parametrize("changes", [{"bias": ""}, {"outputs": 1}])
def test_a_bias_of_run_time_and_one_channel_are_each_phases(
    apply: Any, changes: dict[str, Any]
) -> None:
    done = apply(upsampled((3, 3), (2, 2), (-1, 0, -1, 0), **changes), TransposedByPhases())
    assert done.count == 1


test_transposed_by_phases = cases(TransposedByPhases)("""
without a stride it -> unchanged
    %x: i8[2, 3, 4, 2], %w: weight i8[3, 3, 3, 2], %b: weight i32[3], %i: constant i8[1], %k: constant "k#zeros" i8[1]
    %c = tosa.transpose_conv2d %x, %w, %b, %i, %k {acc_type = i32, out_pad = array<i64: -1, -1, -1, -1>, stride = array<i64: 1, 1>} : (i8[2, 3, 4, 2], i8[3, 3, 3, 2], i32[3], i8[1], i8[1]) -> i32[2, 3, 4, 3]
    %y = tosa.rescale(%c, %m: constant "m#factor" i32[3], %s: constant "s#shift" i8[3], %z: constant "z#zeros" i32[1], %o: constant i8[1], input_unsigned=false, output_unsigned=false, per_channel=true, rounding_mode="SINGLE_ROUND", scale32=true) -> i8[2, 3, 4, 3]
of any number of images it -> unchanged
    %x: i8[n, 3, 4, 2], %w: weight i8[3, 3, 3, 2], %b: weight i32[3], %i: constant i8[1], %k: constant "k#zeros" i8[1]
    %c = tosa.transpose_conv2d %x, %w, %b, %i, %k {acc_type = i32, out_pad = array<i64: -1, 0, -1, 0>, stride = array<i64: 2, 2>} : (i8[n, 3, 4, 2], i8[3, 3, 3, 2], i32[3], i8[1], i8[1]) -> i32[n, 6, 8, 3]
    %y = tosa.rescale(%c, %m: constant "m#factor" i32[3], %s: constant "s#shift" i8[3], %z: constant "z#zeros" i32[1], %o: constant i8[1], input_unsigned=false, output_unsigned=false, per_channel=true, rounding_mode="SINGLE_ROUND", scale32=true) -> i8[n, 6, 8, 3]
""")
