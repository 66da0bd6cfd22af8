"""Random cases against LiteRT's reference kernels, in flatbuffers built here with its schema.

They decide what CMSIS-NN's own cases (`test_kernels_golden.py`) leave open: convolutions with
padding on one side, transposed ones, and the multipliers of a sum.
"""

from dataclasses import dataclass, field
from typing import Any

import ai_edge_litert.schema_py_generated as schema
import flatbuffers
import numpy as np
import pytest
import torch
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from stepwell.dialects.cmsis import kernels
from stepwell.dialects.cmsis.arithmetic import Multiplier, add_parameters, quantize_multiplier

KIND = {torch.int8: schema.TensorType.INT8, torch.int32: schema.TensorType.INT32}


@dataclass
class Quantized:
    """An int8 (or int32) array with its scales and zero point."""

    data: torch.Tensor
    scales: list[float]
    zero_point: int = 0
    axis: int = 0


@dataclass
class Model:
    """A one-operator LiteRT model."""

    operator: str
    options: Any
    tensors: list[Quantized | tuple[int, ...]] = field(default_factory=list)

    def run(
        self,
        inputs: list[Quantized | torch.Tensor],
        constants: list[bool],
        output: tuple[tuple[int, ...], float, int],
    ) -> torch.Tensor:
        buffers, tensors = [schema.BufferT()], []
        for item, constant in zip(inputs, constants, strict=True):
            data = item.data if isinstance(item, Quantized) else item
            tensor = schema.TensorT()
            tensor.shape, tensor.type = list(data.shape), KIND[data.dtype]
            tensor.name, tensor.buffer = f"t{len(tensors)}".encode(), 0
            if isinstance(item, Quantized):
                tensor.quantization = parameters(item.scales, item.zero_point, item.axis)
            if constant:
                buffer = schema.BufferT()
                buffer.data = np.frombuffer(data.contiguous().numpy().tobytes(), np.uint8)
                tensor.buffer = len(buffers)
                buffers.append(buffer)
            tensors.append(tensor)
        result = schema.TensorT()
        result.shape, result.type = list(output[0]), schema.TensorType.INT8
        result.name, result.buffer = b"out", 0
        result.quantization = parameters([output[1]], output[2])
        tensors.append(result)
        graph = schema.SubGraphT()
        graph.tensors = tensors
        graph.inputs = [i for i, constant in enumerate(constants) if not constant]
        graph.outputs = [len(tensors) - 1]
        op = schema.OperatorT()
        op.opcodeIndex, op.inputs, op.outputs = 0, list(range(len(inputs))), graph.outputs
        op.builtinOptions = self.options
        op.builtinOptionsType = getattr(
            schema.BuiltinOptions, type(self.options).__name__.removesuffix("T")
        )
        graph.operators = [op]
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, self.operator)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version = {"CONV_2D": 5, "DEPTHWISE_CONV_2D": 6}.get(self.operator, 2)
        model = schema.ModelT()
        model.version, model.operatorCodes = 3, [code]
        model.subgraphs, model.buffers = [graph], buffers
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        interpreter = Interpreter(
            model_content=bytes(builder.Output()),
            experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        )
        interpreter.allocate_tensors()
        given = [item for item, c in zip(inputs, constants, strict=True) if not c]
        for detail, item in zip(interpreter.get_input_details(), given, strict=True):
            assert isinstance(item, Quantized)
            interpreter.set_tensor(detail["index"], item.data.numpy())
        interpreter.invoke()
        found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        return torch.from_numpy(found.copy())


def parameters(scales: list[float], zero_point: int, axis: int = 0) -> Any:
    held = schema.QuantizationParametersT()
    held.scale = np.array(scales, np.float32)
    held.zeroPoint = np.array([zero_point] * len(scales), np.int64)
    held.quantizedDimension = axis
    return held


def int8(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8)


def scale(low: float = 0.003, high: float = 0.2) -> float:
    drawn = low * (high / low) ** float(torch.rand(()))
    return float(np.float32(drawn))


def zero() -> int:
    return int(torch.randint(-128, 128, ()))


def pick(*items: Any) -> Any:
    return items[int(torch.randint(0, len(items), ()))]


def size(low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, ()))


def seeds(count: int) -> Any:
    return pytest.mark.parametrize("seed_", range(count))


def columns(multipliers: list[Multiplier]) -> dict[str, torch.Tensor]:
    return {
        "multiplier": torch.tensor([m.multiplier for m in multipliers]),
        "shift": torch.tensor([m.shift for m in multipliers]),
    }


def same(width: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """TensorFlow's SAME: (output size, padding before)."""
    out = -(-width // stride)
    needed = max((out - 1) * stride + (kernel - 1) * dilation + 1 - width, 0)
    return out, needed // 2


@seeds(40)
def test_convolution_agrees_with_litert(seed_: int) -> None:
    torch.manual_seed(1000 + seed_)
    depthwise = bool(seed_ % 2)
    h, w, c = size(3, 12), size(3, 12), size(1, 8)
    kh, kw, stride, dilation = size(1, 3), size(1, 3), size(1, 2), pick(1, 1, 2)
    stride = 1 if dilation > 1 else stride
    many = size(1, 2) if depthwise else size(1, 9)
    o = c * many if depthwise else many
    x = Quantized(int8(size(1, 2), h, w, c), [scale()], zero())
    shape = (1, kh, kw, o) if depthwise else (o, kh, kw, c)
    weight = Quantized(int8(*shape), [scale() for _ in range(o)], 0, 3 if depthwise else 0)
    bias = torch.randint(-20000, 20000, (o,), dtype=torch.int32)
    out_scale, out_zero = scale(0.05, 3.0), zero()
    (oh, ph), (ow, pw) = same(h, kh, stride, dilation), same(w, kw, stride, dilation)
    options: Any = schema.DepthwiseConv2DOptionsT() if depthwise else schema.Conv2DOptionsT()
    options.padding = schema.Padding.SAME
    options.strideH = options.strideW = stride
    options.dilationHFactor = options.dilationWFactor = dilation
    if depthwise:
        options.depthMultiplier = many
    bias_q = Quantized(bias, [float(np.float32(x.scales[0] * s)) for s in weight.scales])
    expected = Model("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", options).run(
        [x, weight, bias_q],
        [False, True, True],
        ((x.data.shape[0], oh, ow, o), out_scale, out_zero),
    )
    factors = [quantize_multiplier(x.scales[0] * s / out_scale) for s in weight.scales]
    kernel = kernels.depthwise_conv_s8 if depthwise else kernels.conv_s8
    ours = kernel(
        x.data,
        weight.data,
        bias,
        stride=(stride, stride),
        padding=(ph, pw),
        dilation=(dilation, dilation),
        input_offset=-x.zero_point,
        output_offset=out_zero,
        activation=(-128, 127),
        output_size=(oh, ow),
        **columns(factors),
    )
    assert torch.equal(ours, expected)


@seeds(20)
def test_transposed_convolution_agrees_with_litert(seed_: int) -> None:
    torch.manual_seed(2000 + seed_)
    h, w, c, o = size(2, 6), size(2, 6), size(1, 6), size(1, 6)
    k, stride = size(2, 4), pick(1, 2)
    x = Quantized(int8(1, h, w, c), [scale()], zero())
    weight = Quantized(int8(o, k, k, c), [scale() for _ in range(o)])
    out_scale, out_zero = scale(0.05, 3.0), zero()
    options = schema.TransposeConvOptionsT()
    options.padding, options.strideH, options.strideW = schema.Padding.VALID, stride, stride
    full = [(d - 1) * stride + max(k, stride) for d in (h, w)]
    size_tensor = torch.tensor([1, *full, o], dtype=torch.int32)
    if k < stride:
        pytest.skip("VALID output sizes differ between the two libraries when kernel < stride")
    expected = Model("TRANSPOSE_CONV", options).run(
        [size_tensor, weight, x], [True, True, False], ((1, *full, o), out_scale, out_zero)
    )
    factors = [quantize_multiplier(x.scales[0] * s / out_scale) for s in weight.scales]
    ours = kernels.transpose_conv_s8(
        x.data,
        weight.data,
        None,
        stride=(stride, stride),
        padding=(0, 0),
        input_offset=-x.zero_point,
        output_offset=out_zero,
        activation=(-128, 127),
        **columns(factors),
    )
    assert torch.equal(ours, expected)


@seeds(30)
def test_addition_agrees_with_litert(seed_: int) -> None:
    torch.manual_seed(3000 + seed_)
    shape = (2, size(1, 40))
    a, b = (Quantized(int8(*shape), [scale()], zero()) for _ in range(2))
    out_scale, out_zero = scale(0.01, 0.4), zero()
    expected = Model("ADD", schema.AddOptionsT()).run(
        [a, b], [False, False], (shape, out_scale, out_zero)
    )
    p = add_parameters(a.scales[0], b.scales[0], out_scale)
    ours = kernels.elementwise_add_s8(
        a.data,
        b.data,
        a_offset=-a.zero_point,
        a_multiplier=p.first.multiplier,
        a_shift=p.first.shift,
        b_offset=-b.zero_point,
        b_multiplier=p.second.multiplier,
        b_shift=p.second.shift,
        output_offset=out_zero,
        output_multiplier=p.output.multiplier,
        output_shift=p.output.shift,
    )
    assert torch.equal(ours, expected)
