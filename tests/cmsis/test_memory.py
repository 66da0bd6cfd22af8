"""What stands in the arena: activations at their bounds, and never a weight."""

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepwell
from stepwell.backends.executorch.reading.read import read_container
from stepwell.dialects.quant.ops import dequantize
from stepwell.dialects.quant.ports import meanings
from stepwell.ir.core import WeightOp
from stepwell.translate.rewrites.cmsis.layout.order_operators import lower_bound


def arena(data: bytes) -> int:
    return sum(read_container(bytearray(data)).methods[0].arena_sizes[1:])


def model(file: str, function: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return getattr(importlib.import_module(file), function)()


@pytest.mark.parametrize(
    ("name", "most"),
    [pytest.param("crnn_gru", 9_600, marks=pytest.mark.slow), ("crnn_lstm", 9_600)],
)
def test_recurrent_nets_need_less_than_the_stock_flow_and_run_as_interpreted(
    name: str, most: int, quantized: Any
):
    """The stock flow plans 11 968 and 11 456 bytes for them (`bench/cortex_m.py --memory`)."""
    module, inputs = model("microcontrollers", name)
    lowered = stepwell.lower(quantized(module, inputs), "cortex-m4")
    assert arena(lowered.to_pte()) <= most
    x = torch.randn_like(inputs[0])
    assert torch.equal(lowered.run(x)[0], lowered.program.run(x)[0])
    for op in lowered.program.module.walk():
        if op.name.startswith("aten.") and op.operands:
            of_weights = all(isinstance(value.owner, WeightOp) for value in op.operands)
            assert not of_weights, f"{op.name} is computed at run time"


def test_an_int8_image_stands_in_the_arena_once(quantized: Any):
    module, inputs = model("microcontrollers", "mobilenet_v1_025")
    exported = quantized(module, inputs, calibrations=0)
    floats = arena(stepwell.lower(exported, "cortex-m55").to_pte())
    integers = arena(stepwell.lower(exported, "cortex-m55", io="int8").to_pte())
    assert floats >= inputs[0].numel() * 5
    assert integers <= 56 * 1024


def test_an_encoder_takes_what_no_order_of_its_operators_gets_below(quantized: Any):
    """Placed in any order of birth or size alone, 1 280 bytes would be gaps."""
    module, inputs = model("transformer", "transformer_encoder_2layers")
    lowered = stepwell.lower(quantized(module.eval(), inputs), "cortex-m4", io="int8")
    assert arena(lowered.to_pte()) == lower_bound(lowered.program.method())


def test_for_memory_an_arena_is_never_larger_than_by_default(quantized: Any):
    """Results in place are rigid: here they would leave 80 bytes more in gaps."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv1d(12, 8, 3, padding=2, dilation=2), nn.SiLU(), nn.MaxPool1d(2)
    ).eval()
    exported = quantized(net, (torch.randn(1, 12, 20),))
    sizes = [
        arena(stepwell.lower(exported, "cortex-m4", io="int8", optimize=optimize).to_pte())
        for optimize in ("memory", "speed")
    ]
    assert sizes[0] <= sizes[1]


def test_channels_last_at_the_border_an_arena_is_that_of_a_model_exported_so(
    quantized: Any,
):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1)).eval()
    x = torch.randn(1, 3, 24, 24)
    sizes: list[int] = []
    results: list[Tensor] = []
    for order in (torch.contiguous_format, torch.channels_last):
        image = x.to(memory_format=order)
        exported = quantized(net.to(memory_format=order), (image,), calibrations=0)
        options = {"io": "int8", "io_layout": "channels last"}
        lowered = stepwell.lower(exported, "cortex-m4", optimize="memory", **options)
        sizes.append(arena(lowered.to_pte()))
        taken = torch.arange(x.numel()).remainder(255).sub(127).to(torch.int8).reshape(x.shape)
        results.append(lowered.run(taken.to(memory_format=torch.channels_last))[0])
    assert sizes[0] == sizes[1]
    assert torch.equal(*results)


def test_integers_at_the_border_give_what_floats_quantized_by_the_caller_give(quantized: Any):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    for order in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(1, 3, 6, 6).to(memory_format=order)
        exported = quantized(model.to(memory_format=order), (x,))
        floats = stepwell.lower(exported, "cortex-m55")
        lowered = stepwell.lower(exported, "cortex-m55", io="int8")
        func = lowered.program.method()
        quantize = next(
            op for op in floats.program.module.walk() if op.name == "cmsis.quantize_per_tensor"
        )
        scale, zero = quantize.real("scale"), quantize.number("zero_point")
        stored = torch.round(x * torch.tensor(1 / scale, dtype=torch.float32)) + zero
        stored = stored.clamp(-128, 127).to(torch.int8)
        (wanted,) = floats.run(x)
        (given,) = lowered.run(stored)
        (held,) = meanings(func, "output")
        assert held and torch.equal(dequantize(given, held), wanted)
        assert not any(op.name == "cmsis.dequantize_per_tensor" for op in func.walk())
