"""Quantized programs become int8 nodes: what the stock delegate computes, bit for bit."""

import copy
from collections.abc import Sequence

import pytest
import torch
from kept_stock import stock_program
from torch import Tensor
from torch.export import ExportedProgram

import stepwell
from quantized import cnn_per_channel, cnn_per_tensor, mlp_dynamic
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.dialects.xnnpack import XnnpackOp, datatype
from stepwell.lowering import Lowered


def lowered(ep: ExportedProgram) -> Lowered:
    """The program at XNNPACK's level."""
    return stepwell.lower(stepwell.from_exported_program(ep), "xnnpack")


def stock(ep: ExportedProgram, trials: Sequence[Tensor]) -> list[Tensor]:
    """The first output of `stock_outputs` for each input."""
    return [outputs[0] for outputs in stock_outputs(ep, trials)]


def stock_outputs(
    ep: ExportedProgram, trials: Sequence[Tensor | tuple[Tensor, ...]]
) -> list[list[Tensor]]:
    """What ExecuTorch's own flow makes of a program, run on its runtime for each input."""
    session = PteSession.load(stock_program(ep))
    inputs = [[trial] if isinstance(trial, Tensor) else [*trial] for trial in trials]
    return [list(session.run(*given)) for given in inputs]


def nodes(made: Lowered) -> list[XnnpackOp]:
    """The XNNPACK nodes of a program."""
    return [op for op in made.program.module.walk() if isinstance(op, XnnpackOp)]


def kinds(made: Lowered, name: str) -> list[tuple[str | None, ...]]:
    """The datatypes of operands and results of every node of a name."""
    return [
        tuple(datatype(value.type) for value in (*op.operands, *op.results))
        for op in nodes(made)
        if op.name == f"xnnpack.{name}"
    ]


def is_whole(made: Lowered) -> bool:
    """Whether everything is in one delegate."""
    return made.report.delegates == 1 and not made.report.outside


def inputs_of(*shape: int, seed: int = 7) -> Tensor:
    """Random numbers of real scale."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("make", [cnn_per_tensor, cnn_per_channel])
def test_a_static_convolutional_net_is_one_delegate_and_equals_stock_bit_for_bit(make) -> None:
    ep = make()
    made = lowered(ep)
    assert is_whole(made)
    images = [inputs_of(1, 3, 16, 16, seed=seed) for seed in range(3)]
    for image, want in zip(images, stock(copy.deepcopy(ep), images), strict=True):
        assert torch.equal(made.run(image)[0], want)


def test_a_static_net_runs_int8_kernels_throughout() -> None:
    made = lowered(cnn_per_channel())
    assert kinds(made, "convolution_2d") == [("qint8", "qcint8", "qcint32", "qint8")] * 2
    assert kinds(made, "depthwise_convolution_2d") == [("qint8", "qcint8", "qcint32", "qint8")]
    assert kinds(made, "fully_connected") == [("qint8", "qcint8", "qcint32", "qint8")]
    assert kinds(made, "add") == [("qint8", "qint8", "qint8")]
    assert kinds(made, "average_pooling_2d") == [("fp32", "fp32")]


def test_a_dynamic_mlp_is_one_delegate_and_equals_stock_bit_for_bit() -> None:
    ep = mlp_dynamic()
    made = lowered(ep)
    assert is_whole(made)
    assert kinds(made, "fully_connected") == [("qdint8", "qcint8", "fp32", "fp32")] * 2
    (x,) = ep.example_inputs[0]
    trials = [x * scale for scale in (1.0, 0.01, 30.0)]
    for trial, want in zip(trials, stock(mlp_dynamic(), trials), strict=True):
        assert torch.equal(made.run(trial)[0], want)
