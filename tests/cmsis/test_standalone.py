"""C without a runtime: strict C99 under sanitizers computes the interpreter's bits."""

import importlib
import os
import re
from pathlib import Path
from typing import Any

import eager
import pytest
import torch
import torch.nn.functional as F
from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer as StockQuantizer
from torch import Tensor, nn

import stepwell
from stepwell.backends.cortex_m.c.calls_cmsis_nn import CMSIS_NN, CMSIS_NN_HANDLERS
from stepwell.backends.cortex_m.c.standalone import write_files
from stepwell.backends.cortex_m.read import with_contiguous_tensors
from stepwell.backends.executorch.reading.read import read_container
from stepwell.dialects.cmsis.ops import CmsisOp

from . import standalone_builds as builds
from .conftest import Graph, Net, conv, graph, linear, net_of
from .test_stock_programs import stock_pte
from .test_streams import Skip

needs_gcc = pytest.mark.skipif(not builds.HAS_GCC, reason="gcc is not installed")
needs_boards = pytest.mark.skipif(
    not builds.HAS_BOARDS, reason="gcc-arm-none-eabi and qemu-system-arm are not installed"
)


def images(s: Any, x: Tensor) -> Tensor:
    """Convolutions of every kind, pools, a gate, a difference, a concatenation."""
    x = torch.relu(s.stem(x))
    y = s.depthwise(x) * torch.sigmoid(s.depthwise(x))
    z = torch.cat([s.grouped(x) - x, x], 1)
    y = F.max_pool2d(torch.maximum(y, z), 2)
    return F.avg_pool2d(s.up(y), 3, 2, 1)


def rows(s: Any, x: Tensor) -> Tensor:
    """Attention over rows, a quotient, a mean."""
    q = s.project(x)
    weights = torch.softmax(q @ x.transpose(1, 2), -1)
    y = torch.minimum(weights @ q, x)
    return y / (x * x + 2.0)


IMAGES = Net(
    images,
    stem=conv(3, 4, stride=2, padding=1),
    grouped=conv(4, 4, padding=1, groups=2),
    depthwise=conv(4, 8, padding=2, dilation=2, groups=4),
    up=nn.ConvTranspose2d(8, 4, 2, 2),
)
ROWS = Net(rows, project=nn.Linear(8, 8))
PADDED = Net(lambda s, x: F.pad(x, (1, 2, 0, 1)).transpose(1, 2) + 0.5)
STEPS = Net(
    lambda s, x: s.second(s.first(x)[0])[0][:, -1],
    first=nn.GRU(6, 8, batch_first=True),
    second=nn.LSTM(8, 5, batch_first=True),
)
"""The last step of an LSTM behind a GRU: gates and steps are places in larger tensors."""


def channels_last(value: Any) -> Any:
    return value.to(memory_format=torch.channels_last)


@needs_gcc
@pytest.mark.parametrize(
    ("module", "shape", "options"),
    [
        (IMAGES, (1, 3, 13, 12), {}),
        (IMAGES, (1, 3, 13, 12), {"io": "int8", "optimize": "memory"}),
        (Skip(outputs=2), (1, 3, 24, 16), {"io": "int8", "arena": 3_500}),
        (ROWS, (2, 5, 8), {"io": "int8"}),
        (PADDED, (2, 3, 4), {}),
        (STEPS, (1, 4, 6), {"io": "int8"}),
    ],
    ids=["images", "images row by row", "a skip row by row", "attention", "pad", "recurrent"],
)
def test_the_program_in_c_computes_what_the_interpreter_does(
    quantized: Any, tmp_path: Path, module: nn.Module, shape: tuple[int, ...], options: Any
) -> None:
    cpu = "cortex-m4" if options else "cortex-m55"
    last = len(shape) == 4
    x = torch.randn(shape)
    exported = quantized(
        *((channels_last(module), (channels_last(x),)) if last else (module, (x,)))
    )
    lowered = stepwell.lower(exported, cpu, **options)
    given = torch.randint(-128, 128, shape, dtype=torch.int8) if "io" in options else 3 * x
    given = channels_last(given) if last else given
    sources = lowered.to_c("model", runtime=None)
    wanted = lowered.program.run(given)
    data = builds.run_on_host(sources, tmp_path, [given])
    assert builds.equals(wanted[0], data)
    assert "malloc" not in sources.files["model.c"]


@pytest.fixture(scope="module")
def cmsis_nn(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What links a program with CMSIS-NN's functions over the portable kernels."""
    return builds.own_cmsis_nn(tmp_path_factory.mktemp("cmsis_nn"))


@needs_gcc
@pytest.mark.parametrize(
    ("module", "shape", "cpu"),
    [
        (IMAGES, (1, 3, 13, 12), "cortex-m55"),
        (ROWS, (2, 5, 8), "cortex-m4"),
        (ROWS, (2, 5, 8), "cortex-m55"),
        (PADDED, (2, 3, 4), "cortex-m4"),
    ],
    ids=["images", "attention", "attention with kernel sums", "pad"],
)
def test_calls_of_cmsis_nn_give_it_the_interpreters_arguments(
    quantized: Any,
    cmsis_nn: Any,
    tmp_path: Path,
    module: nn.Module,
    shape: tuple[int, ...],
    cpu: str,
) -> None:
    x = torch.randint(-128, 128, shape, dtype=torch.int8)
    module, x = (channels_last(module), channels_last(x)) if len(shape) == 4 else (module, x)
    lowered = stepwell.lower(quantized(module, (torch.randn_like(x.float()),)), cpu, io="int8")
    sources = lowered.to_c("model", runtime=None, kernels="cmsis-nn")
    data = builds.run_on_host(sources, tmp_path, [x], cmsis_nn)
    assert builds.equals(lowered.program.run(x)[0], data)
    text = sources.files["model.c"]
    own = {"quantized_activation", "quantized_div"}
    library = [op for op in lowered.program.module.walk() if isinstance(op, CmsisOp)]
    called = [op for op in library if op.OPERATOR and op.OPERATOR not in own]
    assert len(re.findall(r"\barm_\w+_s8\(", text)) == len(called)


@needs_gcc
@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m55"])
def test_a_mixed_program_calls_whichever_kernel_takes_fewer_instructions(
    quantized: Any, cmsis_nn: Any, tmp_path: Path, cpu: str
) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Softmax(-1))
    x = channels_last(torch.randint(-128, 128, (1, 3, 9, 10), dtype=torch.int8))
    exported = quantized(channels_last(module), (torch.randn_like(x.float()),))
    lowered = stepwell.lower(exported, cpu, io="int8")
    sources = lowered.to_c("model", runtime=None, kernels="mixed")
    data = builds.run_on_host(sources, tmp_path, [x], cmsis_nn)
    assert builds.equals(lowered.program.run(x)[0], data)
    text = sources.files["model.c"]
    assert "arm_convolve_wrapper_s8(" in text and "    sw_softmax(" in text
    assert ("    sw_depthwise_conv2d(" in text) == (cpu == "cortex-m55")
    whole = lowered.to_c("model", runtime=None, kernels="cmsis-nn")
    assert sources.arena <= whole.arena


MLPERF_TINY = {
    "keyword spotting": ("tiny", "ds_cnn"),
    "visual wake words": ("microcontrollers", "mobilenet_v1_025"),
    "image classification": ("resnet", "resnet8"),
    "anomaly detection": ("tiny", "mlp_autoencoder"),
}


def lowered_tiny(quantized: Any, name: str, cpu: str, optimize: str) -> tuple[Any, Tensor]:
    """One of the four models lowered with int8 at the border, and an input."""
    file, function = MLPERF_TINY[name]
    module, inputs = getattr(importlib.import_module(file), function)()
    if inputs[0].dim() == 4:
        module, inputs = channels_last(module), tuple(map(channels_last, inputs))
    exported = quantized(module, inputs)
    lowered = stepwell.lower(exported, cpu, io="int8", optimize=optimize)
    x = torch.randint(-128, 128, inputs[0].shape, dtype=torch.int8)
    return lowered, x if inputs[0].is_contiguous() else channels_last(x)


@pytest.mark.slow
@pytest.mark.skipif("CMSIS_NN" not in os.environ, reason="CMSIS_NN names no built library")
@pytest.mark.parametrize("optimize", ["speed", "memory"])
@pytest.mark.parametrize("name", MLPERF_TINY)
def test_mlperf_tiny_on_a_built_cmsis_nn_computes_what_the_interpreter_does(
    quantized: Any, tmp_path: Path, name: str, optimize: str
) -> None:
    lowered, x = lowered_tiny(quantized, name, "cortex-m4", optimize)
    sources = lowered.to_c("model", runtime=None, kernels="cmsis-nn")
    data = builds.run_on_host(sources, tmp_path, [x], builds.built_cmsis_nn())
    assert builds.equals(lowered.program.run(x)[0], data)


BY_ROWS = graph(
    (1, 3, 8, 8),
    lambda s, x: s.last(s.first(x).permute(0, 2, 3, 1).reshape(8, 48)),
    first=conv(3, 6, padding=1),
    last=linear(48, 10),
)
"""A convolution whose pixels are rows of a linear layer."""
JOINED = graph(
    (1, 3, 8, 8), lambda s, x: torch.cat([s.a(x), s.b(x)], 1), a=conv(3, 6), b=conv(3, 2)
)


@needs_gcc
@pytest.mark.parametrize("model", [BY_ROWS, JOINED], ids=["by rows", "joined"])
def test_a_stock_program_read_back_computes_what_its_kernels_make_of_memory(
    quantized: Any, cmsis_nn: Any, tmp_path: Path, model: Graph
) -> None:
    module, x = map(channels_last, net_of(model, 0))
    exported = quantized(module, (x,), StockQuantizer())
    data = stock_pte(exported, "cortex-m4")
    container = with_contiguous_tensors(read_container(bytearray(data)))
    sources = write_files(container, container.methods, "model", CMSIS_NN, CMSIS_NN_HANDLERS)
    made = builds.run_on_host(sources, tmp_path, [x], cmsis_nn)
    (read,) = stepwell.read_pte(data).run(x)
    assert builds.equals(read, made)


def floats(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
    """Elementwise functions, folds, movement, windows and a look-up, as floats and as integers."""
    y = F.layer_norm(x.roll(1, 2).flip(1), (5,))
    z = torch.where(y > 0, torch.log_softmax(x, 1), y.var(2, keepdim=True) / 3)
    rows = torch.cat([z[:, ::2], F.pad(y, (1, 0))[:, 1:, :5].abs()], 1)
    pooled = F.max_pool2d(x[None], 2, ceil_mode=True)
    whole = (at * 3 - 7) // 2 % 5
    picked = rows.index_select(1, whole.abs() % 3)
    return rows @ rows.mT, pooled, rows.argmax(-1), picked, whole, F.glu(x, 1)


@needs_gcc
@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_what_is_no_call_of_the_library_is_loops_made_of_its_meaning(
    tmp_path: Path, compiler: str
) -> None:
    inputs = (torch.randn(2, 6, 5), torch.tensor([0, 4, -3]))
    sources = eager.lower(floats, *inputs, target="cortex-m7").to_c("model", runtime=None)
    data = builds.run_on_host(sources, tmp_path, inputs, compiler=compiler)
    for wanted in floats(*inputs):
        size = wanted.numel() * wanted.element_size()
        made = torch.frombuffer(bytearray(data[:size]), dtype=wanted.dtype)
        torch.testing.assert_close(made.reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-6)
        data = data[size:]
    assert not data


def ring(m: Any, x: Tensor) -> Tensor:
    """The last three rows, kept between calls."""
    rows = torch.cat([m.rows[1:], x])
    m.rows.copy_(rows)
    return rows.sum(0)


@needs_gcc
def test_state_is_kept_between_calls_in_c_and_methods_share_memory(tmp_path: Path) -> None:
    x = torch.randn(1, 4)
    exported = eager.exported(eager.Stateful(ring, rows=torch.ones(3, 4)), x)
    sources = stepwell.lower(exported, "cortex-m4").to_c("model", runtime=None)
    data = builds.run_on_host(sources, tmp_path / "one", [x, 2 * x, 3 * x])
    wanted = torch.cat([2 + x, 1 + 3 * x, 6 * x])
    torch.testing.assert_close(torch.frombuffer(bytearray(data), dtype=x.dtype), wanted.flatten())
    assert "void model_reset(void);" in sources.files["model.h"]
    other = torch.export.export(nn.Flatten(), (x.reshape(1, 2, 2),))
    both = stepwell.lower({"push": exported, "flatten": other}, "cortex-m4")
    sources = both.to_c("model", runtime=None)
    data = builds.run_on_host(sources, tmp_path / "two", [x], method="flatten")
    assert builds.equals(x, data)


def loops(x: Tensor, count: Tensor) -> Tensor:
    """A loop that ends when a number says so, and a choice."""
    start = torch.zeros((), dtype=torch.int64), x
    _, y = torch.while_loop(lambda at, y: at < count, lambda at, y: (at + 1, y * 2), start)
    return torch.cond(count > 2, lambda y: y - 1, lambda y: y + 1, (y,))


@needs_gcc
def test_control_flow_is_jumps_in_c(tmp_path: Path) -> None:
    x, count = torch.randn(3), torch.tensor(3)
    sources = eager.lower(loops, x, count, target="cortex-m4").to_c("model", runtime=None)
    data = builds.run_on_host(sources, tmp_path, [x, count, x, count - 2])
    wanted = torch.cat([x * 8 - 1, x * 2 + 1])
    torch.testing.assert_close(torch.frombuffer(bytearray(data), dtype=x.dtype), wanted)


def test_what_has_no_kernel_in_c_is_named(quantized: Any) -> None:
    lowered = stepwell.lower(
        quantized(Net(lambda s, x: torch.topk(x, 2)[0] + 1), (torch.randn(2, 4),)), "cortex-m4"
    )
    with pytest.raises(stepwell.StepwellError, match=r"aten::topk\.values has no kernel in C: "):
        lowered.to_c(runtime=None)


def test_a_name_and_a_runtime_that_cannot_be_are_refused(quantized: Any) -> None:
    lowered = stepwell.lower(quantized(nn.Linear(4, 4), (torch.randn(2, 4),)), "cortex-m4")
    with pytest.raises(stepwell.StepwellError, match="not a C identifier"):
        lowered.to_c("my model", runtime=None)
    with pytest.raises(stepwell.StepwellError, match="runtime 'tflm' is unknown"):
        lowered.to_c(runtime="tflm")  # pyright: ignore
    with pytest.raises(stepwell.StepwellError, match="kernels 'neon' are unknown"):
        lowered.to_c(runtime=None, kernels="neon")  # pyright: ignore
    with pytest.raises(stepwell.StepwellError, match="there is no method 'decode'"):
        lowered.to_c(runtime=None, method="decode")


@pytest.mark.slow
@needs_boards
@pytest.mark.parametrize("cpu", builds.BOARDS)
@pytest.mark.parametrize("optimize", ["speed", "memory"])
@pytest.mark.parametrize("name", MLPERF_TINY)
def test_mlperf_tiny_runs_on_emulated_boards(
    quantized: Any, tmp_path: Path, name: str, cpu: str, optimize: str
) -> None:
    lowered, x = lowered_tiny(quantized, name, cpu, optimize)
    sources = lowered.to_c("model", runtime=None)
    (wanted,) = lowered.program.run(x)
    assert builds.equals(wanted, builds.run_on_host(sources, tmp_path, [x]))
    assert builds.equals(wanted, builds.run_on_files(cpu, sources, tmp_path, [x]))
    assert builds.sizes_on(cpu, sources, tmp_path)["ram"] <= sources.arena + 16


class _Offset(nn.Module):
    """A linear layer of quantized weights whose zero point is not 0."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-100, 100, (5, 16), dtype=torch.int8))
        self.register_buffer("bias", torch.randint(-2000, 2000, (5,), dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        ops: Any = torch.ops.quantized_decomposed
        bytes_of = (-128, 127, torch.int8)
        given = ops.quantize_per_tensor(x, 0.05, 3, *bytes_of)
        y = nn.functional.linear(
            ops.dequantize_per_tensor(given, 0.05, 3, *bytes_of),
            ops.dequantize_per_tensor(self.weight, 0.01, 7, *bytes_of),
            ops.dequantize_per_tensor(self.bias, 0.0005, 0, -(2**31), 2**31 - 1, torch.int32),
        )
        made = ops.quantize_per_tensor(y, 0.1, -5, *bytes_of)
        return ops.dequantize_per_tensor(made, 0.1, -5, *bytes_of)


@needs_boards
@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m55"])
def test_rows_by_weights_with_a_zero_point_have_their_bias(cpu: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 16)
    lowered = stepwell.lower(torch.export.export(_Offset().eval(), (x,)), cpu)
    assert re.search("filter_offset = -?7", str(lowered.program))
    data = builds.run_on_core(cpu, lowered.to_c(runtime=None), tmp_path, [x])
    assert builds.equals(lowered.program.run(x)[0], data)


@needs_boards
def test_copies_of_channels_are_built_without_a_warning(tmp_path: Path) -> None:
    """GCC follows calls with constants: no loop may seem to pass the end of an array."""
    layer = nn.Conv1d(3, 12, 2, dilation=2, groups=3)
    x = torch.randn(1, 3, 9)
    exported = torch.export.export(stepwell.quantize(layer, "int8-cortex-m", [x]), (x,))
    lowered = stepwell.lower(exported, "cortex-m55")
    data = builds.run_on_core("cortex-m55", lowered.to_c(runtime=None), tmp_path, [x])
    assert builds.equals(lowered.program.run(x)[0], data)
