"""Models in half precision: one delegate, as near to torch as halves allow."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from eager import EXACT, Function, assert_as_eager, lower
from sampled import sampled
from torch import nn
from torch.nn import functional

import stepwell
from gpt2 import gpt2_2layers
from llama import HEAD, WIDTH, Block, rotary_table
from mobilenet import mobilenet_v3_small
from random_weights import random_input, randomize
from stepwell.validation.rounding import sensitivity
from transformer import transformer_encoder_2layers


class LlamaBlock(nn.Module):
    """A block whose rotary tables are of the model's own dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        cos, sin = rotary_table(torch.arange(16))
        assert cos.shape == (16, HEAD)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x, self.cos, self.sin)


def unet(x: torch.Tensor, down: nn.Module, up: nn.Module, out: nn.Module) -> torch.Tensor:
    """A group norm, and a transposed convolution, of which XNNPACK has none in halves."""
    wide = down(x)
    return out(torch.cat([wide, up(functional.max_pool2d(wide, 2))], 1))


DOWN = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
UNET = Function(unet, DOWN, nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(16, 4, 1))
Made = tuple[nn.Module, tuple[Any, ...]]
MODELS: dict[str, tuple[Callable[[], Made], dict[str, int]]] = {
    "GPT-2": (gpt2_2layers, {"aten.embedding.default": 1}),
    "Llama block": (lambda: (randomize(LlamaBlock()), (random_input(1, 16, WIDTH),)), {}),
    "encoder": (transformer_encoder_2layers, {}),
    "MobileNetV3": (mobilenet_v3_small, {}),
    "U-Net": (lambda: (randomize(UNET), (random_input(1, 3, 8, 8),)), {}),
}


def halves(value: Any) -> Any:
    return value.half() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


@pytest.mark.kernels
@pytest.mark.parametrize("name", sampled(MODELS, "GPT-2", "Llama block", "U-Net"))
@torch.no_grad()
def test_a_model_of_halves_is_one_delegate_as_near_as_halves_are(name: str) -> None:
    """As near to doubles as a last bit of a half in every value leaves it: what a kernel may do.

    GPT-2 with every sum kept in halves is off by 0.008 of its largest output, ours here by 0.001.
    """
    make, outside = MODELS[name]
    module, inputs = make()
    module, inputs = copy.deepcopy(module).half(), tuple(halves(value) for value in inputs)
    made = lower(module, *inputs)
    assert (made.report.stages, dict(made.report.outside)) == (1, outside)
    (ours,) = made.run(*inputs)
    assert ours.dtype == torch.float16
    wide = copy.deepcopy(module).double()
    exact = wide(*(v.double() if v.is_floating_point() else v for v in inputs))
    source = stepwell.from_exported_program(torch.export.export(module.eval(), inputs))
    moved = sensitivity(source.method("forward"), source.weights, inputs)
    torch.testing.assert_close(ours.double(), exact, rtol=0, atol=moved * float(exact.abs().max()))


@torch.no_grad()
def test_a_layer_norm_of_halves_squares_what_halves_cannot_hold() -> None:
    norm = nn.LayerNorm(64).half()
    x = (torch.randn(3, 64) * 4000).half()  # Squares to 1.6e7; the largest half is 65504.
    assert_as_eager(lower(norm, x), norm, x, rtol=2**-9, atol=2**-9)


@pytest.mark.parametrize(("number", "casts"), [(0.125, 0), (0.1, 2)])
def test_only_a_number_that_is_no_half_is_multiplied_in_single(number: float, casts: int) -> None:
    scaled, x = Function(lambda x: x * number), torch.randn(300).half()
    made = lower(scaled, x)
    names = [op.name for op in made.program.module.walk()]
    assert (names.count("xnnpack.convert"), made.report.delegates) == (casts, 1)
    assert_as_eager(made, scaled, x, **EXACT)


def test_a_cast_that_also_orders_memory_gives_that_order() -> None:
    cast = Function(lambda x: x.abs().to(torch.float16, memory_format=torch.channels_last))
    x = torch.randn(1, 3, 4, 4)
    found, wanted = lower(cast, x).run(x)[0], cast(x)
    assert torch.equal(found, wanted) and found.stride() == wanted.stride()
