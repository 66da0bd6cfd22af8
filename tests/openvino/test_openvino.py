"""The target `openvino`: lowering, text, interpreter, and delegates on ExecuTorch's runtime."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from eager import assert_as_eager, exported, lower
from torch import Tensor, nn
from torch.nn import functional as F

import stepwell
from quantized import SmallConvNet
from stepwell import StepwellError
from stepwell.integrations.openvino import emit
from stepwell.integrations.openvino.blob import in_single, parts
from stepwell.integrations.openvino.dialect import DelegateOp
from stepwell.ir.diagnostics import ArtifactError

HAS_OPENVINO = importlib.util.find_spec("openvino") is not None
needs_openvino = pytest.mark.skipif(not HAS_OPENVINO, reason=emit.INSTALL)
CLOSE = {"rtol": 2e-4, "atol": 1e-5}


def floats(*shape: int) -> Tensor:
    return torch.randn(*shape)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    **{
        name: (getattr(torch, name), (torch.rand(2, 3) * 0.8 + 0.1,))
        for name in "abs acos asin atan ceil cos cosh erf exp floor log log2 neg "
        "reciprocal round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc isnan".split()
    },
    **{
        name: (getattr(F, name), (torch.linspace(-8, 8, 24).view(2, 12),))
        for name in "relu relu6 silu mish gelu hardswish hardsigmoid softplus elu leaky_relu "
        "selu celu logsigmoid softsign tanhshrink hardtanh".split()
    },
    "tanh-gelu": (lambda x: F.gelu(x, approximate="tanh"), (floats(2, 5),)),
    "prelu": (F.prelu, (floats(2, 3, 4), torch.tensor([0.1, 0.2, 0.3]))),
    "broadcast": (lambda x, y: x * y + x / (y.abs() + 1) - y, (floats(2, 1, 3), floats(4, 1))),
    "alpha": (lambda x, y: torch.add(x, y, alpha=2) - 3 * x, (floats(2, 3), floats(3))),
    "powers": (lambda x: x**3 + x.abs() ** 0.7 + 2.0**x, (floats(2, 3),)),
    "comparisons": (
        lambda x, y: ((x > y) & (x >= 0) | (x < y) & (y <= 1), x == y, (x != y).logical_not()),
        (floats(3, 4), floats(4)),
    ),
    "where": (lambda x, y: torch.where(x > 0, x, y).masked_fill(y > 1, 0.5), (floats(2, 3),) * 2),
    "clamps": (lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0.1), x.clamp(max=1)), (floats(9),)),
    "maximum": (torch.maximum, (floats(2, 3), floats(3))),
    "casts": (lambda x: ((x > 0).float() + x.bool().float()), (floats(2, 3),)),
    "movement": (
        lambda x: torch.cat([x[:, 1:], x.flip(1)[:, ::2]], 1).transpose(0, 1).repeat(2, 1, 1),
        (floats(2, 5, 3),),
    ),
    "pads": (
        lambda x: (F.pad(x, (1, 2), value=0.5), F.pad(x, (1, 1), "reflect"),
                   F.pad(x, (2, 1), "replicate")),
        (floats(1, 2, 5),),
    ),
    "expand": (lambda x: x.expand(2, 4, 3) * 2, (floats(4, 1),)),
    "reductions": (
        lambda x: (x.mean(1), x.sum((0, 2)), x.amax(-1, keepdim=True), x.amin(0), x.prod(1),
                   (x > 0).any(1), (x > -9).all(2), x.var(1), x.norm(dim=1), x.logsumexp(1)),
        (floats(2, 3, 4),),
    ),
    "scalar-result": (lambda x: (x.sum(), x.mean() + 1), (floats(2, 3),)),
    "softmax": (lambda x: (x.softmax(1), x.log_softmax(-1)), (floats(2, 3, 4),)),
    "cumsum": (lambda x: x.cumsum(1), (floats(2, 5),)),
    "orders": (
        lambda x: (x.topk(2).values, x.argmax(1), x.max(1).indices, x.sort(descending=True).values),
        (floats(3, 7),),
    ),
    "gathers": (
        lambda x, i: (x[i], x.index_select(1, i), x[i, i], x.gather(0, i.view(1, -1))),
        (floats(4, 3), torch.tensor([2, 0, 1])),
    ),
    "embedding": (F.embedding, (torch.tensor([[1, 3], [0, 2]]), floats(4, 5))),
    "scatter": (
        lambda x, i, s: (x.scatter(1, i, s), x.scatter_add(1, i, s)),
        (floats(2, 5), torch.tensor([[0, 2], [4, 1]]), floats(2, 2)),
    ),
    "index-put": (
        lambda x, i, s: x.index_put((i,), s), (floats(5, 3), torch.tensor([4, -5]), floats(2, 3)),
    ),
    "products": (lambda x, y: (x @ y, torch.einsum("bij,bkj->bik", x, x)),
                 (floats(2, 3, 4), floats(4, 5))),
    "pools": (
        lambda x: (F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1),
                   F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
                   F.max_pool2d(x, 2, ceil_mode=True), F.adaptive_avg_pool2d(x, (3, 2))),
        (floats(1, 2, 7, 7),),
    ),
    "resizes": (
        lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, (7, 5), mode="bilinear"),
                   F.interpolate(x, (4, 9), mode="bilinear", align_corners=True),
                   F.interpolate(x, (6, 6), mode="bicubic")),
        (floats(1, 2, 3, 4),),
    ),
    "pixel-shuffle": (lambda x: F.pixel_shuffle(x, 2), (floats(1, 8, 2, 3),)),
    "attention": (F.scaled_dot_product_attention, (floats(1, 2, 5, 8),) * 3),
    "causal-attention": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3),
        (floats(1, 2, 5, 8),),
    ),
    "masked-attention": (
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m > 0, enable_gqa=True),
        (floats(1, 4, 3, 8), floats(1, 2, 5, 8), torch.ones(3, 5).tril(2)),
    ),
}  # fmt: skip
"""Functions of tensors that are one delegate, and their inputs."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_runs_in_one_delegate(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    lowered = lower(function, *inputs, target="openvino")
    outside = {n for n in lowered.report.outside if n != "aten.view.default"}  # Of scalars.
    assert (lowered.report.delegates, outside) == (1, set())
    _assert_interpreted(lowered, function, *inputs)
    if HAS_OPENVINO:
        assert_as_eager(lowered, function, *inputs, **CLOSE)


def _assert_interpreted(lowered: stepwell.Lowered, function: Any, *inputs: Tensor) -> None:
    wanted = function(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for expected, found in zip(wanted, lowered.program.run(*inputs), strict=True):
        torch.testing.assert_close(found, expected, **CLOSE)


class Layers(nn.Module):
    """Convolutions of each kind, norms, and linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.parts = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4)
        self.up = nn.ConvTranspose2d(8, 6, 3, 2, 1, output_padding=1)
        self.groups = nn.GroupNorm(2, 6)
        self.line = nn.Conv1d(6, 4, 3)
        self.layer = nn.LayerNorm(4)
        self.out = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu6(self.norm(self.stem(x))) + 0.1
        x = F.silu(self.groups(self.up(self.parts(x))))
        return self.out(self.layer(self.line(x.flatten(2)).transpose(1, 2)))


@pytest.fixture(scope="module")
def layers() -> tuple[nn.Module, Tensor, stepwell.Lowered]:
    torch.manual_seed(0)
    model, x = Layers().eval(), floats(1, 3, 8, 8)
    model.norm.running_mean.uniform_(-1, 1)
    return model, x, lower(model, x, target="openvino")


def test_layers_are_one_delegate(layers: Any) -> None:
    model, x, lowered = layers
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    _assert_interpreted(lowered, model, x)


def test_text_parses_to_the_same_program(layers: Any) -> None:
    _, x, lowered = layers
    text = str(lowered.program)
    assert "openvino.GroupConvolution(" in text and "openvino.ConvolutionBackpropData(" in text
    parsed = stepwell.parse(text, lowered.program.weights)
    parsed.verify()
    assert str(parsed) == text
    assert torch.equal(parsed.run(x)[0], lowered.program.run(x)[0])


@needs_openvino
def test_layers_run_in_float32_on_the_runtime(layers: Any) -> None:
    """The runtime imports models with default settings, which are bfloat16 on some CPUs."""
    model, x, lowered = layers
    assert_as_eager(lowered, model, x, rtol=1e-5, atol=1e-5)


@needs_openvino
def test_every_layer_of_the_exported_model_is_marked(layers: Any) -> None:
    lowered = layers[2]
    (op,) = (op for op in lowered.program.module.walk() if isinstance(op, DelegateOp))
    payload = emit.delegate_payload(op, lowered.program.weights)
    xml, _ = parts(bytes(payload.payload))
    layers = list(xml.iter("layer"))
    marks = [layer.findall("rt_info/attribute[@name='precise']") for layer in layers]
    assert len(layers) > 10 and all(len(found) == 1 for found in marks)
    assert payload.options == (("device", b"CPU\0"),)


def test_foreign_bytes_are_refused() -> None:
    with pytest.raises(ArtifactError, match="no model that OpenVINO's CPU plug-in exported"):
        in_single(bytes(100))


def test_missing_package_is_named_with_the_remedy(
    layers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StepwellError, match=r"(?s)openvino is not installed.*stepwell\[openvino"):
        emit.package()


@needs_openvino
def test_an_unknown_device_is_named() -> None:
    with pytest.raises(StepwellError, match="OpenVINO's ABACUS rejects a delegate"):
        lower(torch.relu, floats(3), target="openvino", device="ABACUS").to_pte()


@needs_openvino
def test_comparisons_with_nan_are_false() -> None:
    def compare(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x > y, x >= y, x < y, x <= y, x == y, x != y, torch.isfinite(x)

    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, 1.0])
    x, y = torch.cartesian_prod(special, special).unbind(1)
    x, y = x.contiguous(), y.contiguous()
    found = lower(compare, x, y, target="openvino").run(x, y)
    assert all(torch.equal(a, b) for a, b in zip(found, compare(x, y), strict=True))


@pytest.mark.parametrize(
    ("function", "inputs", "reason"),
    [
        (lambda x: x + 1, (torch.arange(4),), "integers may be beyond 2²⁴"),
        (lambda x: x * 2, (torch.ones(3, dtype=torch.float64),), "take no float64"),
        (lambda x: F.conv2d(x, x), (floats(1, 1, 3, 3),), "the filter is computed at run time"),
    ],
)
def test_an_operation_that_openvino_would_change_stays_outside(
    function: Any, inputs: tuple[Tensor, ...], reason: str
) -> None:
    lowered = lower(function, *inputs, target="openvino")
    assert lowered.report.delegates == 0
    assert any(reason in refusal.reason for refusal in lowered.report.refusals)
    _assert_interpreted(lowered, function, *inputs)


def test_integers_that_are_small_run_inside() -> None:
    x = torch.randint(0, 100, (3, 4))
    lowered = lower(lambda x: (x + 1).float(), x, target="openvino", ranges={0: (0, 100)})
    assert lowered.report.delegates == 1


class Dynamic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).reshape(batch, length, 8), x.mean(1)


def test_symbolic_sizes_are_computed_inside_the_delegate() -> None:
    batch, length = torch.export.Dim("batch", min=1, max=4), torch.export.Dim("n", min=2, max=16)
    model = Dynamic().eval()
    lowered = lower(model, floats(2, 5, 8), target="openvino", dynamic={0: batch, 1: length})
    assert lowered.report.delegates == 1
    for sizes in ((2, 5), (1, 2), (4, 16)):
        x = floats(*sizes, 8)
        _assert_interpreted(lowered, model, x)
        if HAS_OPENVINO:
            assert_as_eager(lowered, model, x, **CLOSE)


def of_seven_bits() -> torch.export.ExportedProgram:
    """A net whose integer kernels are exact on every CPU: images of 16 × 16, an addition, a pool, a
    linear layer.
    """
    torch.manual_seed(0)
    images = [torch.randn(1, 3, 16, 16) for _ in range(4)]
    quantized = stepwell.quantize(SmallConvNet(), "int8-openvino", images)
    return torch.export.export(quantized, (images[0],))


def test_int8_program_is_one_delegate_with_stored_weights() -> None:
    program = of_seven_bits()
    lowered = stepwell.lower(program, "openvino")
    (op,) = (op for op in lowered.program.module.walk() if isinstance(op, DelegateOp))
    count = Counter(inner.name for inner in op.body.block.ops)
    assert count["openvino.FakeQuantize"] >= 6 and count["openvino.Convert"] == 4
    assert lowered.report.outside == {}
    x = floats(1, 3, 16, 16)
    wanted = program.module()(x)
    step = float(wanted.unique().diff().min())
    for run in (lowered.program.run, lowered.run) if HAS_OPENVINO else (lowered.program.run,):
        assert float((run(x)[0] - wanted).abs().max()) <= 2.01 * step


BYTES = torch.tensor([250, 3, 7], dtype=torch.uint8)
TRUE = torch.tensor([True, False])
LEFT: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "bytes-add": (lambda x: x + 10, (BYTES,)),
    "bytes-mul": (lambda x: x * x, (BYTES.to(torch.int8),)),
    "bytes-neg": (lambda x: -x, (torch.tensor([-128, 5], dtype=torch.int8),)),
    "truth-max": (lambda x: torch.maximum(x, x.flip(0)), (TRUE,)),
    "truth-amax": (lambda x: x.view(1, 2).amax(1), (TRUE,)),
    "truth-where": (lambda x: torch.where(x, x.flip(0), x), (TRUE,)),
    "ceil-pool": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (torch.randn(1, 2, 6, 6),),
    ),
}  # fmt: skip
"""What OpenVINO computes differently, or not at all."""


@pytest.mark.parametrize("name", LEFT)
def test_what_openvino_computes_differently_stays_with_kernels(name: str) -> None:
    function, inputs = LEFT[name]
    lowered = lower(function, *inputs, target="openvino")
    assert sum(lowered.report.outside.values()) == 1
    _assert_interpreted(lowered, function, *inputs)
    if HAS_OPENVINO:
        torch.testing.assert_close(lowered.run(*inputs)[0], function(*inputs))


class Products(nn.Module):
    """A layer of ones, whose sums of two products of bytes exceed 16 bits, and a product of two
    quantized values.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 32, bias=False)
        nn.init.ones_(self.layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y.unsqueeze(2) @ y.unsqueeze(1)


@pytest.mark.parametrize(
    ("quantizer", "options", "stored"),
    [
        pytest.param("int8-xnnpack", {}, False, marks=pytest.mark.slow),
        ("int8-xnnpack", {"cpu": "x86-64-avx2"}, False),
        pytest.param("int8-xnnpack", {"cpu": "x86-64-avx512"}, True, marks=pytest.mark.slow),
        ("int8-openvino", {}, True),
    ],
)
def test_no_sum_of_integers_saturates_on_a_cpu_without_vnni(
    quantizer: str, options: dict[str, str], stored: bool
) -> None:
    x = torch.cat([torch.rand(4, 64), torch.ones(4, 64)])
    program = torch.export.export(stepwell.quantize(Products(), quantizer, [x]), (x,))
    lowered = stepwell.lower(program, "openvino", **options)
    (op,) = (op for op in lowered.program.module.walk() if isinstance(op, DelegateOp))
    count = Counter(inner.name for inner in op.body.block.ops)
    assert bool(count["openvino.Convert"]) == stored
    assert bool(count["openvino.Round"]) == (options.get("cpu") != "x86-64-avx512")
    wanted = program.module()(x)
    runs = (lowered.program.run, lowered.run) if HAS_OPENVINO and not options else ()
    for run in (lowered.program.run, *runs):
        torch.testing.assert_close(run(x)[0], wanted, rtol=0.02, atol=0.02)


def test_a_quantized_output_is_left_to_kernels() -> None:
    q = torch.ops.quantized_decomposed.quantize_per_tensor.default
    lowered = lower(lambda x: q(x * 2, 0.1, 3, -128, 127, torch.int8), floats(4), target="openvino")
    assert dict(lowered.report.outside) == {"quantized_decomposed.quantize_per_tensor.default": 1}
    _assert_interpreted(lowered, lambda x: q(x * 2, 0.1, 3, -128, 127, torch.int8), floats(4))


@needs_openvino
def test_methods_and_state_are_kept() -> None:
    one, two = (exported(f, floats(2, 3)) for f in (torch.relu, torch.sigmoid))
    lowered = stepwell.lower({"one": one, "two": two}, "openvino")
    x = floats(2, 3)
    for method, function in (("one", torch.relu), ("two", torch.sigmoid)):
        torch.testing.assert_close(lowered.run(x, method=method)[0], function(x))


@needs_openvino
def test_delegate_is_read_as_its_operators(layers: Any) -> None:
    _, x, lowered = layers
    read = stepwell.read_pte(lowered.to_pte())
    read.verify()
    text = str(read)
    assert "openvino.Convolution(" in text and "opaque" not in text
    assert str(stepwell.parse(text, read.weights)) == text
    torch.testing.assert_close(read.run(x)[0], lowered.run(x)[0], **CLOSE)


@needs_openvino
def test_a_condition_that_the_engine_compares_in_float32_is_read() -> None:
    x, y = floats(2, 3), floats(2, 3)
    lowered = lower(lambda x, y: torch.where(x > y, x, -y), x, y, target="openvino")
    read = stepwell.read_pte(lowered.to_pte())
    torch.testing.assert_close(read.run(x, y)[0], torch.where(x > y, x, -y))


@needs_openvino
def test_integer_kernels_are_read_as_such() -> None:
    lowered = stepwell.lower(of_seven_bits(), "openvino")
    read = stepwell.read_pte(lowered.to_pte())
    read.verify()
    assert "x!quant" not in str(read) and "xi8>) -> tensor<1x16x8x8xf32>" in str(read)
    x = floats(1, 3, 16, 16)
    found, wanted = read.run(x)[0], lowered.run(x)[0]
    assert float((found - wanted).abs().max()) <= 2.01 * float(wanted.unique().diff().min())


@needs_openvino
def test_a_file_is_the_same_twice_and_scalars_are_read() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))
    lowered = lower(lambda x: net(x).sum() * 2, torch.randn(1, 3, 8, 8), target="openvino")
    assert lowered.to_pte() == lowered.to_pte()
    x = torch.randn(1, 3, 8, 8)
    read = stepwell.read_pte(lowered.to_pte())
    torch.testing.assert_close(read.run(x)[0], lowered.run(x)[0], rtol=1e-4, atol=1e-5)
    doubled = lower(lambda x: x * 2 + 1, torch.tensor(3.0), target="openvino")
    assert doubled.run(torch.tensor(3.0))[0] == 7


@needs_openvino
def test_a_model_that_cannot_be_read_stays_opaque(
    layers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emit.blob, "in_single", lambda exported: b"another device's" + exported)
    read = stepwell.read_pte(layers[2].emit())
    assert "no model that OpenVINO's CPU plug-in exported" in str(read)


@needs_openvino
def test_operators_are_those_of_the_package() -> None:
    path = emit.__file__.replace("emit.py", "operators.txt")
    tools = importlib.util.spec_from_file_location("tool", "tools/openvino_operators.py")
    assert tools and tools.loader
    module = importlib.util.module_from_spec(tools)
    tools.loader.exec_module(module)
    with open(path, encoding="utf-8") as held:
        assert held.read().splitlines() == module.lines()


def test_the_core_finds_the_target_by_its_entry_point() -> None:
    assert "openvino" in stepwell.PIPELINES
