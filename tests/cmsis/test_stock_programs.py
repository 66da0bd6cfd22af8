"""Programs that ExecuTorch's own flow wrote, read back and run."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.cortex_m.edge_compile_config import cortex_m_edge_compile_config
from executorch.backends.cortex_m.passes.cortex_m_pass_manager import CortexMPassManager
from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer as StockQuantizer
from executorch.backends.cortex_m.target_config import CortexMTargetConfig
from executorch.exir import to_edge
from torch import nn

import stepwell

from .conftest import Net, conv, linear


def net() -> nn.Module:
    """Convolution, depthwise, residual add, pooling, linear, softmax, on channels-last images."""

    def forward(s: Any, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(s.a(x))
        y = y + F.relu(s.b(y))
        return F.softmax(s.c(F.avg_pool2d(y, 8).flatten(1)), -1)

    layers = {"a": conv(3, 8, padding=1), "b": conv(8, 8, padding=1, groups=8), "c": linear(8, 5)}
    return Net(forward, **layers).to(memory_format=torch.channels_last)


def stock_pte(exported: Any, cpu: str) -> bytes:
    edge = to_edge(exported, compile_config=cortex_m_edge_compile_config())
    target = CortexMTargetConfig.from_target_string(cpu)
    manager = CortexMPassManager(edge.exported_program(), target_config=target)
    edge._edge_programs["forward"] = manager.transform()
    return bytes(edge.to_executorch().buffer)


@pytest.mark.parametrize("cpu", ["cortex-m55", "cortex-m4"])
def test_a_stock_program_comes_back_and_computes_what_ours_does(cpu: str, quantized: Any) -> None:
    torch.manual_seed(2)
    module = net()
    x = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    exported = quantized(module, (x,), StockQuantizer())
    theirs = stepwell.read_pte(stock_pte(exported, cpu))
    theirs.verify()
    names = {op.name for op in theirs.module.walk()}
    assert {"cmsis.quantized_conv2d", "cmsis.quantized_depthwise_conv2d"} <= names
    ours = stepwell.lower(exported, cpu)
    for _ in range(3):
        assert torch.equal(theirs.run(x)[0], ours.program.run(x)[0])
        x = torch.randn_like(x)


def test_our_bytes_are_fewer_and_hold_nothing_unused(quantized: Any) -> None:
    module = net()
    x = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    exported = quantized(module, (x,), StockQuantizer())
    assert len(stepwell.lower(exported, "cortex-m55").to_pte()) < len(
        stock_pte(exported, "cortex-m55")
    )
