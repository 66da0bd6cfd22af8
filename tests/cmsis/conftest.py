"""What the cortex-m tests share: PT2E programs, lowering, and each op in real arithmetic."""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from io import BytesIO
from typing import Any

import cloudpickle  # It comes with distributed.
import pytest
import torch
import torch.nn.functional as F
from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer as StockQuantizer
from torch import nn
from torch.export import ExportedProgram, export
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from stepwell.dialects.cmsis import ops as cmsis
from stepwell.dialects.cmsis.ops.layout import NCHW_TO_NHWC, NHWC_TO_NCHW
from stepwell.dialects.quant.ops import dequantize, quantize
from stepwell.dialects.quant.types import quantization
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.program import Program
from stepwell.ir.rewriting.history import RefusalRecord
from stepwell.ir.rewriting.pipeline import PipelineRun
from stepwell.ir.types import dims
from stepwell.pipelines.arm import cortex_m_pipeline
from stepwell.translate.importer.from_torch import from_exported_program
from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

Inputs = tuple[torch.Tensor, ...]


class Net(nn.Module):
    """Layers by name, or functions that make them; and a forward given as a function."""

    def __init__(self, forward: Callable[..., Any], **layers: Any) -> None:
        super().__init__()
        for name, layer in layers.items():
            made = layer if isinstance(layer, nn.Module | nn.Parameter) else layer()
            setattr(self, name, made)
        self.function = forward

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


Graph = tuple[tuple[int, ...], Callable[..., torch.Tensor], dict[str, Callable[[], Any]]]


def graph(shape: tuple[int, ...], forward: Callable[..., Any], **layers: Any) -> Graph:
    """A net and the shape of its input."""
    return shape, forward, layers


def net_of(graph: Graph, seed: int) -> tuple[nn.Module, torch.Tensor]:
    """The net with random layers, and an input."""
    torch.manual_seed(seed)
    shape, forward, layers = graph
    return Net(forward, **layers), torch.randn(shape)


def conv(inputs: int = 3, outputs: int = 6, kernel: int = 3, **rest: Any) -> Any:
    return lambda: nn.Conv2d(inputs, outputs, kernel, **rest)


def linear(inputs: int = 12, outputs: int = 10, bias: bool = True) -> Any:
    return lambda: nn.Linear(inputs, outputs, bias=bias)


def parameter(*shape: int) -> Any:
    return lambda: nn.Parameter(torch.randn(shape) * 0.3)


IMAGE, ROWS, TOKENS = (1, 3, 8, 8), (4, 12), (2, 5, 12)


class Stock(StockQuantizer):
    """ExecuTorch's quantizer as it is by default: all of them are one."""

    def __reduce__(self) -> Any:
        return Stock, ()


class Pickler(cloudpickle.Pickler):
    """Tensors by their elements and strides."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor):
            return super().reducer_override(obj)
        kept = obj.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return torch.Size, ((len(kept),),), (kept, str(obj.dtype), obj.shape, obj.stride())


_QUANTIZED: OrderedDict[bytes, tuple[ExportedProgram, torch.Tensor]] = OrderedDict()
"""Programs by what they are made of, and the state of torch's random numbers behind each."""


def pt2e(
    module: nn.Module, inputs: Inputs, quantizer: Any = None, calibrations: int = 3
) -> ExportedProgram:
    """A module quantized by PT2E and exported again; the same program for the same again."""
    asked = (module, inputs, quantizer, calibrations, torch.get_rng_state())
    pickled = BytesIO()
    try:
        Pickler(pickled).dump(asked)
        key = sha256(pickled.getbuffer()).digest()
    except RuntimeError:  # A quantizer that holds functions of C++.
        return converted(module, inputs, quantizer, calibrations)
    if key not in _QUANTIZED:
        made = converted(module, inputs, quantizer, calibrations)
        _QUANTIZED[key] = made, torch.get_rng_state()
        if len(_QUANTIZED) > 100:
            _QUANTIZED.popitem(last=False)
    exported, drawn = _QUANTIZED[key]
    torch.set_rng_state(drawn)
    return exported


def converted(
    module: nn.Module, inputs: Inputs, quantizer: Any, calibrations: int, sizes: Any = None
) -> ExportedProgram:
    logging.disable(logging.WARNING)
    options: Any = {"strict": False, "dynamic_shapes": sizes}
    graph = export(module.eval(), inputs, **options).module(check_guards=False)
    prepared = prepare_pt2e(graph, quantizer or CortexMQuantizer())
    for _ in range(calibrations):
        prepared(*(like(value) for value in inputs))
    prepared(*inputs)
    return export(convert_pt2e(prepared), inputs, **options)


def like(value: torch.Tensor) -> torch.Tensor:
    return torch.randn_like(value) if value.is_floating_point() else value


@dataclass
class Result:
    """A lowered program with how it came about."""

    program: Program
    run: PipelineRun
    exported: ExportedProgram

    @property
    def ops(self) -> Counter[str]:
        return Counter(op.name for op in self.program.module.walk())

    @property
    def floats(self) -> Counter[str]:
        """ATen ops that compute (views and integer movement do not)."""
        found: Counter[str] = Counter()
        for op in self.program.module.walk():
            if op.name.startswith("aten.") and any(
                "f32" in str(result.type) for result in op.results
            ):
                found[op.name] += 1
        return found

    @property
    def refusals(self) -> list[RefusalRecord]:
        return list(self.run.history.refusals.values())

    def each_op_within_a_unit(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        """The outputs, every op on the way held to one unit of real arithmetic."""
        self.program.verify()
        return observed(self.program, inputs)

    def check(self, *inputs: torch.Tensor, lsb: float = 6.0) -> None:
        """Every op within one unit of real arithmetic, and the outputs near the PT2E graph's."""
        ours = self.each_op_within_a_unit(*inputs)
        theirs = self.exported.module(check_guards=False)(*inputs)
        for mine, other in zip(ours, torch.utils._pytree.tree_leaves(theirs), strict=True):
            step = max(float(other.float().abs().max()) / 127, 1e-6)
            assert float((mine.float() - other.float()).abs().max()) <= lsb * step


def observed(program: Program, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """Run a program, holding every cmsis op against its real-arithmetic meaning."""
    func = program.method()
    environment: dict[Any, Any] = dict(zip(func.body.block.args, inputs, strict=True))
    interpreter = Interpreter(program.weights)
    for op in func.body.block.ops:
        if op.name == "func.return":
            return tuple(environment[value] for value in op.operands)
        with torch.no_grad():
            interpreter.step(op, environment)
        wanted = REAL.get(type(op))
        held = quantization(op.results[0].type) if op.results and wanted else None
        if wanted is None or held is None:
            continue
        reals = [real(value, environment[value]) for value in op.operands]
        if any(value is None for value in reals):
            continue
        expected = quantize(wanted(op, reals), held)
        if "activation_min" in op.properties:
            expected = expected.clamp(op.number("activation_min"), op.number("activation_max"))
        apart = (expected.int() - environment[op.results[0]].int()).abs().max()
        assert int(apart) <= 1, f"{op.name} is {int(apart)} units from real arithmetic"
    raise AssertionError("no return")


def real(value: Any, stored: torch.Tensor) -> torch.Tensor | None:
    held = quantization(value.type)
    if held is None:
        return stored
    return dequantize(stored, held).double()


def _bias(op: Any, reals: list[Any]) -> torch.Tensor | float:
    """The real bias of a linear layer or convolution, unfolded from the kernel sums."""
    x = quantization(op.operands[0].type)
    weight = quantization(op.operands[1].type)
    units = torch.tensor(weight.scales, dtype=torch.float64) * x.scale
    sums = getattr(op, "kernel_sum", None)
    if getattr(op, "bias", None) is not None:
        return reals[2].double() * units
    if sums is None:
        return 0.0
    stored = reals[1] / torch.tensor(weight.scales).double()
    return (reals[-1].reshape(-1) - op.number("input_offset") * stored.sum(1)) * units


def _linear(op: Any, reals: list[Any]) -> torch.Tensor:
    return reals[0] @ reals[1].T + _bias(op, reals)


def _convolution(op: Any, reals: list[Any]) -> torch.Tensor:
    x, weight = reals[0].permute(NHWC_TO_NCHW), reals[1]
    if isinstance(op, cmsis.QuantizedDepthwiseConv2dNhwc):
        weight = weight.permute(3, 0, 1, 2)
    else:
        weight = weight.permute(0, 3, 1, 2)
    if isinstance(op, cmsis.QuantizedTransposeConv2dNhwc):
        out = F.conv_transpose2d(
            x, weight.transpose(0, 1), None, op.numbers("stride"), op.numbers("padding")
        )
    else:
        groups = x.shape[1] // weight.shape[1]
        stride, first, dilation = (op.numbers(name) for name in ("stride", "padding", "dilation"))
        # The result's size states the padding at the end of each axis.
        last = [
            (made - 1) * step + (kernel - 1) * by + 1 - size - before
            for made, step, kernel, by, size, before in zip(
                dims(op.out.type)[1:3], stride, weight.shape[2:], dilation,
                x.shape[2:], first, strict=True,
            )
        ]  # fmt: skip
        x = F.pad(x, (first[1], last[1], first[0], last[0]))
        out = F.conv2d(x, weight, None, stride, 0, dilation, groups)
    bias = _bias(op, reals)
    return out.permute(NCHW_TO_NHWC) + bias


def _add(op: Any, reals: list[Any]) -> torch.Tensor:
    a, b = (quantization(v.type) for v in op.operands)
    ratio = op.multiplier("other").real / op.multiplier("self").real * a.scale / b.scale
    return reals[0] + ratio * reals[1]


def _average(op: Any, reals: list[Any]) -> torch.Tensor:
    out = F.avg_pool2d(
        reals[0].permute(NHWC_TO_NCHW),
        op.numbers("kernel_size"),
        op.numbers("stride"),
        op.numbers("padding"),
        op.flag("ceil_mode"),
        False,
    )
    return out.permute(NCHW_TO_NHWC)


REAL: dict[type, Callable[[Any, list[Any]], torch.Tensor]] = {
    cmsis.QuantizedLinear: _linear,
    cmsis.QuantizedConv2dNhwc: _convolution,
    cmsis.QuantizedDepthwiseConv2dNhwc: _convolution,
    cmsis.QuantizedTransposeConv2dNhwc: _convolution,
    cmsis.QuantizedAdd: _add,
    cmsis.QuantizedMul: lambda op, r: r[0] * r[1],
    cmsis.QuantizedDiv: lambda op, r: r[0] / r[1],
    cmsis.QuantizedBatchMatmul: lambda op, r: r[0] @ r[1].transpose(1, 2),
    cmsis.Softmax: lambda op, r: torch.softmax(r[0], -1),
    cmsis.QuantizedAvgPool2dNhwc: _average,
}


@dataclass
class Lowering:
    """Lowers modules and exported programs for a CPU."""

    cpu: str = "cortex-m55"
    made: list[Result] = field(default_factory=list)

    def __call__(self, exported: ExportedProgram, **options: Any) -> Result:
        program = from_exported_program(exported)
        run = cortex_m_pipeline(self.cpu, **options).run(program)
        result = Result(program, run, exported)
        self.made.append(result)
        return result

    def module(self, module: nn.Module, *inputs: torch.Tensor, quantizer: Any = None) -> Result:
        return self(pt2e(module, inputs, quantizer))


@pytest.fixture(params=["cortex-m55", "cortex-m4"])
def lower(request: pytest.FixtureRequest) -> Lowering:
    """Lowering for an MVE and for a DSP core."""
    return Lowering(request.param)


@pytest.fixture
def lower_for() -> Callable[[str], Lowering]:
    return Lowering


@pytest.fixture(params=["ours", "stock"])
def quantizer(request: pytest.FixtureRequest) -> Any:
    """This project's quantizer and ExecuTorch's."""
    return CortexMQuantizer() if request.param == "ours" else Stock()


@pytest.fixture
def quantized() -> Callable[..., ExportedProgram]:
    return pt2e
