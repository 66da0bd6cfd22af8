"""Convolutions that pad their image themselves, and rows that CMSIS-NN would misread."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram, export

import stepwell
from stepwell.backends.cortex_m.emit import to_pte
from stepwell.dialects.cmsis.ops import QuantizedConv2dNhwc
from stepwell.dialects.cmsis.ops.spatial import is_misread_row
from stepwell.ir.types import dims
from stepwell.pipelines.arm import cortex_m_pipeline

from . import standalone_builds as builds

CPUS = ("cortex-m4", "cortex-m55")


def exported(module: nn.Module, x: Tensor) -> ExportedProgram:
    return export(stepwell.quantize(module.eval(), "int8-cortex-m", [x]), (x,))


def padded(inputs: int, outputs: int, kernel: Any, sides: Any, **fields: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.ZeroPad2d(sides), nn.Conv2d(inputs, outputs, kernel, **fields))


def ops_of(program: Any) -> Counter[str]:
    return Counter(op.name.removeprefix("cmsis.") for op in program.module.walk())


SAME = [
    ((3, 12, 12), padded(3, 8, 3, (0, 1, 0, 1), stride=2)),
    ((8, 12, 11), padded(8, 8, 3, (1, 1, 0, 1), stride=2, groups=8)),
    ((1, 49, 10), padded(1, 16, (10, 4), (1, 1, 4, 5), stride=2)),
    ((4, 12, 12), padded(4, 8, 3, (1, 2, 1, 2), stride=2, dilation=2)),
    ((4, 5, 5), padded(4, 8, 2, (0, 1, 0, 1))),
    ((4, 1, 9), padded(4, 8, (1, 4), (1, 2, 0, 0))),
]


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("shape", "module"), SAME)
def test_same_padding_needs_no_copy_and_changes_no_bit(
    cpu: str, shape: tuple[int, ...], module: nn.Module, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, *shape)
    program = exported(module, x)
    lowered = stepwell.lower(program, cpu, io="int8")
    apart = cortex_m_pipeline(cpu, io="int8").without("merge-layouts/absorb-pad")
    with_pad = stepwell.lower(program, cpu, pipeline=apart)
    assert (ops_of(lowered.program)["pad"], ops_of(with_pad.program)["pad"]) == (0, 1)
    data = torch.randint(-128, 128, x.shape, dtype=torch.int8)
    (made,), (wanted,) = lowered.program.run(data), with_pad.program.run(data)
    assert torch.equal(made, wanted)
    assert torch.equal(stepwell.read_pte(to_pte(lowered.program)).run(data)[0], wanted)
    if builds.HAS_GCC and cpu == CPUS[0]:  # The host has the interpreter's kernels for any core.
        sources = lowered.to_c("model", runtime=None)
        assert builds.equals(wanted, builds.run_on_host(sources, tmp_path, [data]))


@pytest.mark.parametrize(
    ("shape", "module", "why"),
    [
        ((4, 9, 9), padded(4, 8, 3, (2, 0, 2, 0)), "like the begin"),
        ((4, 9, 9), padded(4, 8, 3, (1, 2, 1, 2)), "like the begin"),
        ((4, 9, 9), nn.Sequential(nn.ConstantPad2d(1, 1.0), nn.Conv2d(4, 8, 3)), "zero point"),
    ],
)
def test_other_padding_stays_an_op_of_its_own(
    shape: tuple[int, ...], module: nn.Module, why: str
) -> None:
    torch.manual_seed(0)
    lowered = stepwell.lower(exported(module, torch.randn(1, *shape)), "cortex-m4")
    assert ops_of(lowered.program)["pad"] == 1
    assert any(why in r.reason for r in lowered.report.refusals if r.rewrite == "absorb-pad")


MISREAD = [(5, 2, 9, 2), (5, 2, 8, 2), (3, 2, 8, 1), (7, 2, 20, 3), (8, 4, 16, 2), (8, 4, 18, 2),
           (5, 3, 30, 2), (3, 2, 10, 0), (3, 4, 10, 0), (5, 3, 20, 1), (6, 2, 12, 2),
           (9, 4, 40, 4)]  # fmt: skip
READ = [(3, 2, 9, 1), (7, 2, 21, 3), (5, 1, 9, 2), (4, 2, 12, 1), (3, 2, 11, 0)]
"""Kernel, stride, size and padding of rows of four channels that CMSIS-NN's kernel for MVE, run by
qemu, computes wrongly or refuses; and of those that it computes."""


@pytest.mark.parametrize(
    ("kernel", "stride", "size", "padding", "misread"),
    [*((*case, True) for case in MISREAD), *((*case, False) for case in READ)],
)
def test_a_row_that_the_kernel_misreads_is_a_column(
    kernel: int, stride: int, size: int, padding: int, misread: bool
) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 4, size)
    program = exported(nn.Conv1d(4, 8, kernel, stride, padding), x)
    plain = cortex_m_pipeline("cortex-m55", io="int8").without("turn-rows/turn-row")
    row = stepwell.lower(program, "cortex-m55", pipeline=plain)
    turned = stepwell.lower(program, "cortex-m55", io="int8")
    (op,) = [op for op in row.program.module.walk() if isinstance(op, QuantizedConv2dNhwc)]
    assert is_misread_row(op) == misread
    (op,) = [op for op in turned.program.module.walk() if isinstance(op, QuantizedConv2dNhwc)]
    assert not is_misread_row(op)
    assert (dims(op.input.type)[1] != 1) == misread
    data = torch.randint(-128, 128, x.shape, dtype=torch.int8)
    assert torch.equal(turned.program.run(data)[0], row.program.run(data)[0])
