"""ExecuTorch's Cortex-M backend and quantizer.

Programs run as ExecuTorch's own tests run them: the edge program, with the Python operators.
"""

from collections.abc import Callable
from typing import Any

import torch
from executorch.backends.cortex_m.edge_compile_config import cortex_m_edge_compile_config
from executorch.backends.cortex_m.passes.cortex_m_pass_manager import CortexMPassManager
from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer
from executorch.backends.cortex_m.target_config import CortexMTargetConfig
from executorch.exir import to_edge
from torch import Tensor, nn
from torch.export import export
from torch.nn import functional as F
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e


class Net(nn.Module):
    """Layers by name, and a function of them and an input."""

    def __init__(self, forward: Callable[..., Tensor], **layers: Any) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.function = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def same(net: nn.Module, *shape: int, units: float = 4.0) -> None:
    """Assert that the lowered program is within some units of the quantized one."""
    torch.manual_seed(1)
    x = torch.randn(shape)
    x = x.to(memory_format=torch.channels_last) if x.dim() == 4 else x
    prepared = prepare_pt2e(export(net.eval(), (x,)).module(check_guards=False), CortexMQuantizer())
    prepared(x)
    exported = export(convert_pt2e(prepared), (x,))
    wanted = exported.module(check_guards=False)(x)
    edge = to_edge(exported, compile_config=cortex_m_edge_compile_config())
    target = CortexMTargetConfig.from_target_string("cortex-m55")
    program = CortexMPassManager(edge.exported_program(), target_config=target).transform()
    result = program.module(check_guards=False)(x)
    result = result[0] if isinstance(result, tuple) else result
    unit = float(wanted.abs().max()) / 127
    off = float((result - wanted).abs().max()) / unit
    assert off <= units, f"off by {off:.0f} units of {unit:.3g}, and {units:.0f} are allowed"


def seeded(layer: Callable[..., nn.Module], *sizes: int, **options: Any) -> Any:
    """Create a layer with reproducible weights."""
    torch.manual_seed(7)
    made = layer(*sizes, **options)
    if made.bias is not None:
        nn.init.constant_(made.bias, 1.0)  # Otherwise zero points are near zero, and so are errors.
    return made


def cat_of_a_fused_and_a_plain_convolution() -> None:
    """`cat([relu(conv(x)), conv(x)])`: the second convolution runs on raw integers."""
    first, second = (seeded(nn.Conv2d, 3, 6, 3, padding=1) for _ in range(2))
    same(Net(lambda s, x: torch.cat([F.relu(s.a(x)), s.b(x)], 1), a=first, b=second), 1, 3, 8, 8)


def linear_read_twice() -> None:
    """A linear layer read by a relu and by another layer is wrong by its zero point."""
    first, second = seeded(nn.Linear, 12, 10), seeded(nn.Linear, 10, 4)
    same(Net(lambda s, x: torch.cat([F.relu(y := s.a(x)), s.b(y)], -1), a=first, b=second), 4, 12)


def linear_then_a_move_then_relu() -> None:
    """`relu(linear(x).permute(…))`: what comes behind the permute is computed on raw integers."""
    net = Net(lambda s, x: F.relu(s.a(x).permute(0, 2, 1)), a=seeded(nn.Linear, 12, 10))
    same(net, 2, 5, 12)


def clamp_beside_another_reader() -> None:
    """A linear layer with a clamp and another reader gives a program that does not run."""
    net = Net(
        lambda s, x: torch.cat([torch.clamp(y := s.a(x), -0.2, 0.4), y * 2.0], -1),
        a=seeded(nn.Linear, 12, 10),
    )
    same(net, 4, 12)


def weight_that_is_transposed() -> None:
    """`F.linear(x, w.t())` raises while it is lowered."""
    torch.manual_seed(7)
    w, b = nn.Parameter(torch.randn(12, 7)), nn.Parameter(torch.randn(7))
    same(Net(lambda s, x: F.linear(x, s.w.t(), s.b), w=w, b=b), 4, 12)


def product_with_a_parameter() -> None:
    """The quantizer raises on `x @ parameter`."""
    torch.manual_seed(7)
    same(Net(lambda s, x: x @ s.w, w=nn.Parameter(torch.randn(12, 7))), 4, 12)


def dilated_convolution() -> None:
    """A dilated convolution has no Python operator: the program does not run."""
    layer = seeded(nn.Conv2d, 3, 5, 3, padding=2, dilation=2)
    same(Net(lambda s, x: F.relu(s.a(x)), a=layer), 1, 3, 8, 8)
