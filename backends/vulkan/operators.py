"""The meaning of the Vulkan backend's own operators, as ATen operators.

Arguments are those of the operator's schema, in order; weights are in the layout in which
ExecuTorch's passes pack them (`executorch/backends/vulkan/patterns`). References in ExecuTorch's
`custom_ops_lib.py` are not followed where they serve for shapes only: `q8ta_conv2d` there reads
packed filters in another order, `linear_q8ta_q8csw` does not dequantize its input, and
`linear_qcs4w` does not subtract 8 from packed weights.
"""

import importlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from xdsl.ir import Attribute, Block, Operation, SSAValue

from stepwell.dialects.aten.registry import op_class
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.dtypes import i8
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.sizes.size import number_of
from stepwell.ir.types import dims, element, tensor_like
from stepwell.ir.weights import WeightStore
from stepwell.translate.rewrites.calls.traced_calls import trace_function


def _size(x: SSAValue, axis: int) -> int:
    return number_of(dims(x.type)[axis])


NUMBERS: dict[str, Callable[..., int]] = {
    "sym_size.int": _size,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
}
"""Operators on sizes, which are numbers when a payload is read."""


@dataclass
class Builder:
    """Appends ops to the block of a delegate that is being read."""

    block: Block
    weights: WeightStore

    def add(self, op: Operation) -> SSAValue:
        """Append an op; return its first result."""
        self.block.add_op(op)
        return op.results[0]

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> SSAValue:
        """Append an op whose result types are inferred; return its first result."""
        return self.add(op_class(name).make(*args, **kwargs))

    def cast(self, value: SSAValue, to: Attribute) -> SSAValue:
        """Return a tensor in another element type."""
        if element(value.type) == to:
            return value
        return self("aten._to_copy.default", value, dtype=to)

    def stored(self, value: SSAValue) -> Tensor:
        """Return the elements of a constant.

        Raises:
            UnsupportedError: the value is computed.
        """
        key = weight_key(value)
        if key is None:
            raise UnsupportedError("packed weights are computed, not constant")
        return self.weights.get(key)

    def constant(self, tensor: Tensor, what: str) -> SSAValue:
        """Return a constant that was computed from those of the payload."""
        key = self.weights.constant(tensor.contiguous(), f"vulkan.{what}")
        return self.add(WeightOp(key, tensor_like(tensor)))

    def first(self, value: SSAValue, count: int) -> SSAValue:
        """Return the first elements of a constant that is padded to a multiple of four."""
        if dims(value.type) == (count,):
            return value
        return self.constant(self.stored(value)[:count], "unpadded")


PREPACK = "et_vk.prepack.default"
"""The operator that copies a constant to the GPU, once."""
_MOST = torch.finfo(torch.float32).max
"""A greater limit is none: a clamp that has one limit states the greatest double as the other."""


def _copied(b: Builder, x: SSAValue, *options: Any) -> SSAValue:
    return x


def _conv_with_clamp(b: Builder, x: SSAValue, *args: Any) -> SSAValue:
    *layer, low, high = args
    y = b("aten.convolution.default", x, *layer)
    low, high = (None if limit is None or abs(limit) > _MOST else limit for limit in (low, high))
    if low is None and high is None:
        return y
    is_relu = low == 0 and high is None
    return b("aten.relu.default", y) if is_relu else b("aten.clamp.default", y, low, high)


def _dequantized(b: Builder, x: SSAValue, scale: float, zero: int) -> SSAValue:
    dequantize = "quantized_decomposed.dequantize_per_tensor.default"
    return b(dequantize, x, float(scale), int(zero), -128, 127, i8)


def _quantized(b: Builder, x: SSAValue, scale: float, zero: int) -> SSAValue:
    quantize = "quantized_decomposed.quantize_per_tensor.default"
    return b(quantize, x, float(scale), int(zero), -128, 127, i8)


def _weight_in_reals(b: Builder, w: SSAValue, scales: SSAValue, axis: int = 0) -> SSAValue:
    dequantize = "quantized_decomposed.dequantize_per_channel.default"
    return b(dequantize, w, b.first(scales, _size(w, axis)), None, axis, -127, 127, i8)


def _activated(b: Builder, y: SSAValue, activation: str) -> SSAValue:
    if activation not in ("none", "relu"):
        raise UnsupportedError(f"activation {activation!r} has no meaning here")
    return b("aten.relu.default", y) if activation == "relu" else y


def _bias(b: Builder, bias: SSAValue | None, outputs: int, x: SSAValue) -> SSAValue | None:
    return None if bias is None else b.cast(b.first(bias, outputs), element(x.type))


def _linear(b: Builder, x: SSAValue, w: SSAValue, bias: SSAValue | None = None) -> SSAValue:
    bias = _bias(b, bias, _size(w, 0), x)
    return b("aten.linear.default", x, b.cast(w, element(x.type)), bias)


def _linear_q8ta_q8csw(b: Builder, x: SSAValue, *args: Any) -> SSAValue:
    scale, zero, w, _sums, scales, bias = args
    return _linear(b, _dequantized(b, x, scale, zero), _weight_in_reals(b, w, scales), bias)


def _q8ta_linear(b: Builder, x: SSAValue, *args: Any) -> SSAValue:
    *layer, scale, zero, bias, activation = args
    y = _linear_q8ta_q8csw(b, x, *layer, bias)
    return _quantized(b, _activated(b, y, activation), scale, zero)


def _q8ta_conv2d(b: Builder, x: SSAValue, *args: Any) -> SSAValue:
    """Compute a convolution; a filter's row is `[height, width, inputs]`, of one output, padded."""
    scale, zero, w, _sums, scales, to_scale, to_zero, bias, kernel, stride, padding, *rest = args
    *extra, dilation, groups, activation = rest
    held, inputs, transposed = b.stored(w), _size(x, 1) // groups, bool(extra)
    if held.dim() == 3:  # Depthwise: height, width, outputs.
        held = held.permute(2, 0, 1).unsqueeze(1)
    else:
        held = held[:, : kernel[0] * kernel[1] * inputs]
        held = held.reshape(-1, *kernel, inputs).permute(0, 3, 1, 2)
    outputs = held.shape[0]
    if transposed:
        if groups > 1:
            raise UnsupportedError("a transposed int8 convolution in groups has no meaning here")
        held = held.transpose(0, 1)
    real = _weight_in_reals(b, b.constant(held, "filter"), scales, int(transposed))
    x, more = _dequantized(b, x, scale, zero), extra[0] if transposed else [0, 0]
    layer = x, real, _bias(b, bias, outputs, x)
    y = b("aten.convolution.default", *layer, stride, padding, dilation, transposed, more, groups)
    return _quantized(b, _activated(b, y, activation), to_scale, to_zero)


def _unpacked(b: Builder, w: SSAValue, by_row: Tensor, group: int, low_first: bool) -> SSAValue:
    """Return 4-bit weights in reals. Packed are two to a byte, plus 8, in rows that are padded.

    `by_row` are the scales, `[rows, groups]`.
    """
    held = b.stored(w)
    pair = [(held & 15).to(torch.int8) - 8, (held >> 4).to(torch.int8) - 8]
    held = torch.stack(pair if low_first else pair[::-1], -1).flatten(1)
    integers = b.constant(held[:, : by_row.shape[1] * group], "int4")
    scales = b.constant(by_row, "scales")
    return b("torchao.dequantize_affine.default", integers, [1, group], scales, None, i8, -8, 7)


def _linear_q4gsw(b: Builder, x: SSAValue, *args: Any) -> SSAValue:
    w, scales, group, bias = args
    by_row = b.stored(scales).t()[: _size(w, 0)]
    return _linear(b, x, _unpacked(b, w, by_row, group, True), bias)


def _linear_dq8ca_q4gsw(b: Builder, x: SSAValue, *args: Any) -> SSAValue:
    """Quantize each token by a scale that is computed, then compute `linear_q4gsw`."""
    scale, zero, w, _sums, *rest = args
    block = [1] * (len(dims(x.type)) - 1) + [_size(x, -1)]
    stored = b("torchao.quantize_affine.default", x, block, scale, zero, i8, -128, 127)
    real = b("torchao.dequantize_affine.default", stored, block, scale, zero, i8, -128, 127)
    return _linear_q4gsw(b, b.cast(real, element(x.type)), w, *rest)


def _linear_qcs4w(b: Builder, x: SSAValue, w: SSAValue, scales: SSAValue) -> SSAValue:
    by_row = b.stored(scales).reshape(-1, 1)
    return _linear(b, x, _unpacked(b, w, by_row, _size(x, -1), False))


def _embedding_q4gsw(b: Builder, w: SSAValue, *args: Any) -> SSAValue:
    scales, group, indices, is_linear = args
    by_row = b.stored(scales).reshape(_size(w, 0), -1)
    table = _unpacked(b, w, by_row, group, is_linear)
    return b("aten.embedding.default", table, indices)


def _as_referenced(name: str) -> Callable[..., tuple[SSAValue, ...]]:
    """Return a meaning that consists of the operators which ExecuTorch's reference calls."""

    def meaning(b: Builder, *args: Any) -> tuple[SSAValue, ...]:
        places = [at for at, value in enumerate(args) if isinstance(value, SSAValue)]
        given = [args[at] for at in places]
        reference = getattr(importlib.import_module(REFERENCES), f"{name}_impl")

        def called(*tensors: Tensor) -> Sequence[Tensor]:
            filled = dict(zip(places, tensors, strict=True))
            results = reference(*(filled.get(at, value) for at, value in enumerate(args)))
            return results if isinstance(results, tuple) else (results,)

        trace = trace_function(called, [value.type for value in given], {})
        if isinstance(trace, Refusal):
            raise UnsupportedError(f"the reference of {name} is not traced: {trace}")

        def insert(op: Operation) -> Operation:
            b.block.add_op(op)
            return op

        return tuple(trace.put(given, insert))

    return meaning


REFERENCES = "executorch.backends.vulkan.custom_ops_lib"
REFERENCED = (
    "apply_rotary_emb", "apply_rotary_emb_hf", "apply_rotary_emb_interleaved", "fused_ce",
    "grid_priors", "linear_dW", "q8ta_add", "q8ta_pixel_shuffle", "q8ta_relu", "rms_norm", "sdpa",
)  # fmt: skip
"""Operators whose reference in ExecuTorch computes what the GPU computes."""

MEANINGS: dict[str, Callable[..., SSAValue | tuple[SSAValue, ...]]] = {
    PREPACK: _copied,
    "aten._to_copy.default": _copied,
    "dim_order_ops._to_dim_order_copy.default": _copied,
    "dim_order_ops._clone_dim_order.default": _copied,
    "et_vk.conv_with_clamp.default": _conv_with_clamp,
    "et_vk.linear_q8ta_q8csw.default": _linear_q8ta_q8csw,
    "et_vk.q8ta_linear.default": _q8ta_linear,
    "et_vk.q8ta_linear_gemv.default": _q8ta_linear,
    "et_vk.q8ta_conv2d.default": _q8ta_conv2d,
    "et_vk.q8ta_conv2d_dw.default": _q8ta_conv2d,
    "et_vk.q8ta_conv2d_pw.default": _q8ta_conv2d,
    "et_vk.q8ta_conv2d_transposed.default": _q8ta_conv2d,
    "et_vk.linear_q4gsw.default": _linear_q4gsw,
    "et_vk.linear_dq8ca_q4gsw.default": _linear_dq8ca_q4gsw,
    "et_vk.linear_qcs4w.default": _linear_qcs4w,
    "et_vk.embedding_q4gsw.default": _embedding_q4gsw,
    **{f"et_vk.{name}.default": _as_referenced(name) for name in REFERENCED},
}
"""Operators that need more than their schema, by the name in the payload; the operator's type
conversion is that of its result.
"""
