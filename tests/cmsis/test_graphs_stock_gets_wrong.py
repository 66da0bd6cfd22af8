"""The graphs that ExecuTorch 1.5.1 silently miscompiles or crashes on, and close variants.

Each with both quantizers, for an MVE and a DSP core: every op within one unit of real arithmetic,
the result near the PT2E graph's.
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

from .conftest import IMAGE, ROWS, TOKENS, conv, graph, linear, net_of, parameter

CONV, LINEAR = conv(padding=1), linear()
GRAPHS = {
    "cat of a fused and an unfused convolution": graph(IMAGE,
        lambda s, x: torch.cat([F.relu(s.a(x)), s.b(x)], 1), a=CONV, b=CONV),
    "cat of three, one clamped": graph(IMAGE,
        lambda s, x: torch.cat([s.a(x), F.relu6(s.b(x)), s.a(F.relu(x))], 1), a=CONV, b=CONV),
    "cat of two convolutions, flattened": graph(IMAGE,
        lambda s, x: s.c(torch.flatten(torch.cat([F.relu(s.a(x)), s.b(x)], 1), 1)), a=CONV, b=CONV,
        c=linear(768, 5)),
    "cat of a parameter and a convolution, flattened": graph(IMAGE,
        lambda s, x: s.c(torch.flatten(torch.cat([s.w, s.a(x)], 1), 1)), a=CONV,
        w=parameter(1, 2, 8, 8), c=linear(512, 5)),
    "slice of a convolution, flattened": graph(IMAGE,
        lambda s, x: s.c(torch.flatten(s.a(x)[:, 1:4], 1)), a=CONV, c=linear(192, 5)),
    "cat of a fused and an unfused linear": graph(ROWS,
        lambda s, x: torch.cat([F.relu(s.a(x)), s.b(x)], -1), a=LINEAR, b=LINEAR),
    "cat of linears without bias": graph(ROWS, lambda s, x: torch.cat([F.relu(s.a(x)), s.b(x)], -1),
        a=linear(bias=False), b=linear(bias=False)),
    "linear with a relu and another user": graph(ROWS,
        lambda s, x: torch.cat([F.relu(y := s.a(x)), s.b(y)], -1), a=LINEAR, b=linear(10, 4)),
    "linear, relu and a sum with itself": graph(ROWS, lambda s, x: F.relu(y := s.a(x)) + y,
        a=LINEAR),
    "linear, permute, relu": graph(TOKENS, lambda s, x: F.relu(s.a(x).permute(0, 2, 1)), a=LINEAR),
    "linear, reshape, relu": graph(TOKENS, lambda s, x: F.relu(s.a(x).reshape(10, 10)), a=LINEAR),
    "where on a linear's sign": graph(ROWS,
        lambda s, x: torch.where(s.a(x) > 0, x[:, :10], -x[:, :10]), a=LINEAR),
    "linear with a clamp and another user": graph(ROWS,
        lambda s, x: torch.cat([torch.clamp(y := s.a(x), -0.2, 0.4), y * 2.0], -1), a=LINEAR),
    "linear over a transposed weight": graph(ROWS, lambda s, x: F.linear(x, s.w.t(), s.b),
        w=parameter(12, 7), b=parameter(7)),
    "product with a parameter": graph(ROWS, lambda s, x: x @ s.w, w=parameter(12, 7)),
    "product of tokens with a parameter": graph(TOKENS, lambda s, x: F.relu(x @ s.w),
        w=parameter(12, 7)),
    "softmax over 1000 classes": graph(ROWS, lambda s, x: F.softmax(s.a(x), -1),
        a=linear(12, 1000)),
    "average pool without padding": graph(IMAGE, lambda s, x: F.avg_pool2d(F.relu(s.a(x)), 2),
        a=CONV),
    "average pool that counts its padding": graph(IMAGE,
        lambda s, x: F.avg_pool2d(F.relu(s.a(x)), 3, 2, 1), a=CONV),
    "dilated convolution": graph(IMAGE, lambda s, x: F.relu(s.a(x)),
        a=lambda: nn.Conv2d(3, 5, 3, padding=2, dilation=2)),
    "addmm": graph(ROWS, lambda s, x: torch.addmm(s.b, x, s.w), w=parameter(12, 7), b=parameter(7)),
    "scalars": graph(ROWS, lambda s, x: F.relu(s.a(x) * 0.5 + 1.0), a=LINEAR),
    "one minus x": graph(ROWS, lambda s, x: 1 - s.a(x), a=LINEAR),
    "broadcast add": graph(ROWS, lambda s, x: s.a(x) + s.b, a=LINEAR, b=parameter(10)),
    "broadcast along channels": graph(IMAGE, lambda s, x: F.relu(s.a(x) * s.g + s.b), a=CONV,
        g=parameter(6, 1, 1), b=parameter(1, 6, 1, 1)),
    "one-dimensional convolution": graph(TOKENS, lambda s, x: F.relu(s.a(x)),
        a=lambda: nn.Conv1d(5, 4, 3, padding=1)),
    "even kernel with same padding": graph(IMAGE, lambda s, x: s.a(x),
        a=lambda: nn.Conv2d(3, 4, 4, padding="same")),
    "grouped convolution": graph(IMAGE, lambda s, x: s.b(s.a(x)), a=CONV,
        b=conv(6, 4, groups=2, padding=1)),
    "flatten after a convolution": graph(IMAGE, lambda s, x: s.b(torch.flatten(F.relu(s.a(x)), 1)),
        a=CONV, b=linear(384, 5)),
    "squeeze and excite": graph(IMAGE,
        lambda s, x: (y := s.a(x)) * torch.sigmoid(s.b(y.mean((2, 3), keepdim=True))), a=CONV,
        b=lambda: nn.Conv2d(6, 6, 1)),
}  # fmt: skip


def build(name: str) -> tuple[nn.Module, torch.Tensor]:
    return net_of(GRAPHS[name], 7)


STOCK_QUANTIZER_CRASHES = {"product with a parameter", "product of tokens with a parameter"}
"""ExecuTorch's quantizer raises on a matmul with a parameter, so there is no graph to lower."""


STAYS_FLOAT = {"softmax over 1000 classes": "511 is the longest safe one"}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_lowered_graph_is_right_and_int8_where_our_quantizer_annotates_all(
    name: str, lower: Any, quantizer: Any
) -> None:
    module, x = build(name)
    is_ours = isinstance(quantizer, CortexMQuantizer)
    if name in STOCK_QUANTIZER_CRASHES and not is_ours:
        with pytest.raises(AttributeError, match="to_tensor"):
            lower.module(module, x, quantizer=quantizer)
        return
    result = lower.module(module, x, quantizer=quantizer)
    result.check(x)
    result.check(torch.randn_like(x) * 0.7)
    if is_ours and name in STAYS_FLOAT:
        said = " ".join(r.reason for r in result.refusals) + " ".join(result.floats)
        assert STAYS_FLOAT[name] in said
    elif is_ours:
        assert not result.floats, result.refusals
        assert result.ops["cmsis.dequantize_per_tensor"] == 1


def test_an_average_pool_without_padding_has_no_pad(lower: Any) -> None:
    module, x = build("average pool without padding")
    assert lower.module(module, x).ops["cmsis.pad"] == 0


@pytest.mark.parametrize("per_channel", [False, True], ids=["per tensor", "per row"])
def test_a_flattened_image_is_not_transposed_for_its_linear_layer(
    per_channel: bool, lower: Any
) -> None:
    module, x = build("flatten after a convolution")
    quantizer = CortexMQuantizer(per_channel_linear=per_channel)
    result = lower.module(module, x, quantizer=quantizer)
    result.check(x)
    # The input's alone is left: this model was traced as NCHW.
    assert result.ops["cmsis.transpose"] == 1
