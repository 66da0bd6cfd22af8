"""Quantizations beside PT2E's int8: int16 activations, torchao's spelling of quantize."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.cortex_m.quantizer.quantization_configs import INT16_PER_TENSOR_CONFIG
from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer as StockQuantizer
from torch import nn
from torchao.quantization.pt2e import MinMaxObserver
from torchao.quantization.pt2e.quantizer import QuantizationSpec

import stepwell
from stepwell.backends.cortex_m import schemas
from stepwell.backends.cortex_m.emit import to_pte
from stepwell.backends.cortex_m.read import read_pte
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

from .conftest import Net, conv, graph, linear, net_of, pt2e


def int16_quantizer() -> CortexMQuantizer:
    """Activations of int16, symmetric, as Arm's a16w8 flow has them; everything annotated."""
    made = CortexMQuantizer()
    made.activation = QuantizationSpec(
        dtype=torch.int16,
        quant_min=-32767,
        quant_max=32767,
        qscheme=torch.per_tensor_symmetric,
        observer_or_fake_quant_ctr=MinMaxObserver,
    )
    return made


def test_an_int16_division_is_the_librarys(lower: Any) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(3, 5), torch.rand(3, 5) + 0.5
    quantizer = StockQuantizer(per_tensor_config=INT16_PER_TENSOR_CONFIG)
    result = lower.module(Net(lambda s, x, y: x / y), *inputs, quantizer=quantizer)
    assert result.ops["cmsis.quantized_div"] == 1
    assert not result.floats
    back = read_pte(to_pte(result.program))
    back.verify()
    graph = result.exported.module(check_guards=False)
    for _ in range(4):
        ours, theirs = result.program.run(*inputs)[0], graph(*inputs)
        step = float(theirs.abs().max()) / 32767
        assert float((ours - theirs).abs().max()) <= 1.01 * step
        assert torch.equal(back.run(*inputs)[0], ours)
        inputs = torch.randn(3, 5) * 0.7, torch.rand(3, 5) + 0.6


INT16 = {
    "linear": graph((3, 8), lambda s, x: s.a(x), a=linear(8, 4)),
    "convolution": graph((1, 2, 5, 5), lambda s, x: F.relu(s.a(x)), a=conv(2, 4)),
    "depthwise": graph((1, 2, 5, 5), lambda s, x: s.a(x), a=conv(2, 2, groups=2)),
    "transposed": graph(
        (1, 2, 4, 4), lambda s, x: s.a(x), a=lambda: nn.ConvTranspose2d(2, 3, 3, 2)
    ),
    "add": graph((3, 8), lambda s, x: x + torch.flip(x, [0])),
    "mul": graph((3, 8), lambda s, x: x * torch.flip(x, [0])),
    "minimum": graph((3, 8), lambda s, x: torch.minimum(x, x.flip([0]))),
    "table": graph((3, 8), lambda s, x: torch.sigmoid(x)),
    "average pool": graph((1, 2, 4, 4), lambda s, x: F.avg_pool2d(x, 2)),
    "maximum pool": graph((1, 2, 4, 4), lambda s, x: F.max_pool2d(x, 2)),
    "mean": graph((3, 8), lambda s, x: x.mean(1)),
    "product": graph((2, 3, 4), lambda s, x: x @ x.transpose(-2, -1)),
    "softmax": graph((3, 8), lambda s, x: F.softmax(x, -1)),
    "pad": graph((3, 8), lambda s, x: F.pad(x, (1, 1))),
    "clamped division": graph((3, 8), lambda s, x: torch.clamp(F.relu(x / (x.abs() + 1.0)), 0.1)),
}


@pytest.mark.parametrize("name", INT16)
def test_int16_activations_stay_right_floats_where_the_library_has_no_such_operator(
    name: str, lower: Any
) -> None:
    module, x = net_of(INT16[name], 1)
    result = lower.module(module, x, quantizer=int16_quantizer())
    graph = result.exported.module(check_guards=False)
    back = read_pte(to_pte(result.program))
    for given in (x, torch.randn_like(x)):
        ours, theirs = result.program.run(given)[0], graph(given)
        # Two units: the device multiplies by the float32 reciprocal of a scale where torch divides.
        step = float(theirs.abs().max()) / (32767 if name != "softmax" else 255)
        assert float((ours - theirs).abs().max()) <= 2 * step + 1e-7
        assert torch.equal(back.run(given)[0], ours)
    if name not in ("maximum pool", "pad"):
        said = {r.reason for r in result.refusals}
        assert any("int16, not int8" in r or "tables" in r for r in said), said


QUANTIZE, DEQUANTIZE = torch.ops.torchao.quantize_affine, torch.ops.torchao.dequantize_affine


class Affine(nn.Module):
    """A linear layer in torchao's spelling: blocks, scales and zero points as tensors."""

    def __init__(self, block: tuple[int, int], shape: tuple[int, int] = (6, 8)) -> None:
        super().__init__()
        torch.manual_seed(4)
        weight = torch.randn(shape)
        grid = [size // extent for size, extent in zip(shape, block, strict=True)]
        reach = weight.reshape(grid[0], block[0], grid[1], block[1]).abs().amax((1, 3))
        self.block = list(block)
        self.register_buffer("scale", reach / 127)
        self.register_buffer("zero", torch.zeros(grid, dtype=torch.int32))
        stored = QUANTIZE(weight, self.block, self.scale, self.zero, torch.int8, -127, 127)
        self.register_buffer("weight", stored)
        self.bias = nn.Parameter(torch.randn(shape[0]))
        for name, scale, zero in (("x", 0.05, 3), ("y", 0.1, -5)):
            self.register_buffer(f"{name}_scale", torch.tensor([scale]))
            self.register_buffer(f"{name}_zero", torch.tensor([zero], dtype=torch.int32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.quantized(x, self.x_scale, self.x_zero)
        weight = DEQUANTIZE(self.weight, self.block, self.scale, self.zero, torch.int8, -127, 127)
        return self.quantized(F.relu(F.linear(x, weight, self.bias)), self.y_scale, self.y_zero)

    def quantized(self, x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
        numbers = (list(x.shape), scale, zero, torch.int8, -128, 127)
        return DEQUANTIZE(QUANTIZE(x, *numbers), *numbers)


@pytest.mark.parametrize(
    "block, op",
    [((6, 8), "cmsis.quantized_linear"), ((1, 8), "cmsis.quantized_conv2d_nhwc")],
    ids=["per tensor", "per row"],
)
def test_torchaos_spelling_lowers_as_pt2es_does(block: Any, op: str, lower: Any) -> None:
    x = torch.randn(3, 8)
    result = lower(torch.export.export(Affine(block).eval(), (x,)))
    result.check(x)
    assert result.ops[op] == 1 and not result.floats


def test_torchaos_blocks_within_a_row_stay_floats_and_say_why(lower: Any) -> None:
    module, x = Affine((1, 4)).eval(), torch.randn(3, 8)
    result = lower(torch.export.export(module, (x,)))
    assert (result.program.run(x)[0] - module(x)).abs().max() <= 0.1001  # A unit of the result.
    assert any("a scale for each block" in r.reason for r in result.refusals)
    assert result.floats["aten.linear.default"] == 1


def test_torchaos_dynamic_activations_stay_floats_and_say_why(lower: Any) -> None:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    from torchao.utils import unwrap_tensor_subclass

    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(32, 16)).eval(), torch.randn(3, 32)
    quantize_(module, Int8DynamicActivationInt8WeightConfig())
    result = lower(torch.export.export(unwrap_tensor_subclass(module), (x,)))
    torch.testing.assert_close(result.program.run(x)[0], module(x))


FUNCTIONS = {
    **{name: getattr(F, name) for name in ("hardswish", "gelu", "silu", "leaky_relu", "relu")},
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "a scalar": lambda x: 1 - x * 0.5,
    "clamp": lambda x: torch.clamp(x, -0.3, 0.6),
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.25),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_the_input_itself_is_a_table_equal_to_the_graph(
    name: str, lower: Any
) -> None:
    x = torch.randn(3, 90)
    result = lower.module(Net(lambda s, x: FUNCTIONS[name](x)), x)
    assert result.ops["cmsis.quantized_activation"] == 1 and not result.floats
    graph = result.exported.module(check_guards=False)
    for given in (x, 2 * torch.randn(3, 90)):
        assert torch.equal(result.program.run(given)[0], graph(given))


def test_a_hard_gate_of_a_layer_is_in_the_layer(lower: Any, quantizer: Any) -> None:
    def gated(s: Any, x: torch.Tensor) -> torch.Tensor:
        pooled = F.relu(s.a(F.adaptive_avg_pool2d(x, 1)))
        return (
            x * F.hardsigmoid(s.b(pooled)) + F.hardsigmoid(s.c(pooled.flatten(1)))[..., None, None]
        )

    a, b, c = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1), nn.Linear(4, 8, bias=False)
    x = torch.randn(1, 8, 5, 5).to(memory_format=torch.channels_last)
    result = lower.module(Net(gated, a=a, b=b, c=c), x, quantizer=quantizer)
    assert not result.floats, result.refusals
    result.check(x)
    result.check(torch.randn_like(x) * 3)


def test_what_stays_a_float_without_a_lowering_says_why(lower: Any) -> None:
    module = Net(lambda s, x: s.a(torch.cumsum(torch.sigmoid(x), -1)), a=nn.Linear(8, 4))
    result = lower(torch.export.export(module.eval(), (torch.randn(3, 8),)))
    said = {r.op: r.reason for r in result.refusals}
    assert said["aten.cumsum.default"] == "the library has no such operator"
    assert "is not quantized" in said["aten.sigmoid.default"]


def test_a_kernel_that_is_computed_with_scales_along_an_axis_is_refused_in_words() -> None:
    by_itself = Net(lambda s, x: F.conv2d(x, x, None, 1, 1))
    exported = pt2e(by_itself, (torch.randn(2, 3, 7, 2),))
    with pytest.raises(
        UnsupportedError, match="only weights may have scales along an axis; this value"
    ):
        stepwell.lower(exported, "cortex-m55")


def test_an_operator_that_an_older_library_lacks_is_named(
    lower: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ExecuTorch 1.4 has no `quantized_div`."""
    known = {name: held for name, held in schemas.declarations().items() if name != "quantized_div"}
    quantizer = StockQuantizer(per_tensor_config=INT16_PER_TENSOR_CONFIG)
    inputs = torch.randn(3, 5), torch.rand(3, 5) + 0.5
    result = lower.module(Net(lambda s, x, y: x / y), *inputs, quantizer=quantizer)
    schemas.op_classes.cache_clear()
    monkeypatch.setattr(schemas, "declarations", lambda: known)
    monkeypatch.setattr("stepwell.backends.cortex_m.emit.declarations", lambda: known)
    assert "cortex_m::quantized_div.out" not in schemas.op_classes()
    schemas.op_classes.cache_clear()
    with pytest.raises(stepwell.StepwellError, match=r"no quantized_div\n(.|\n)*executorch>="):
        to_pte(result.program)


def groups() -> nn.Module:
    """Norms of groups and of images, a slope for each channel, places that move."""

    def forward(s: Any, x: torch.Tensor) -> torch.Tensor:
        x = s.groups(s.slope(s.stem(x))).roll(1, 2)
        return F.pixel_shuffle(s.each(x), 2)

    layers = {"stem": conv(3, 8), "slope": nn.PReLU(8), "groups": nn.GroupNorm(2, 8)}
    return Net(forward, **layers, each=nn.InstanceNorm2d(8, affine=True))


SPREAD = Net(lambda s, x: torch.cat([x.std(1), F.normalize(x.mean(1), dim=-1)], -1))
"""A standard deviation beside rows of length one."""


@pytest.mark.parametrize(
    ("module", "shape"), [(groups(), (1, 3, 8, 8)), (SPREAD, (2, 6, 8))], ids=["images", "rows"]
)
def test_our_quantizer_leaves_no_norm_slope_or_deviation_a_float(
    lower_for: Any, module: nn.Module, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    result = lower_for("cortex-m4").module(module.eval(), x)
    assert not result.floats
    (made,) = result.each_op_within_a_unit(x)
    wanted = module(x)
    assert float((made - wanted).pow(2).mean()) < 0.1 * float(wanted.pow(2).mean())
