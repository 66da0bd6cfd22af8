"""What each operator computes, as a function of PyTorch.

A function takes the operands and, by name, the attributes; `evaluation.py` calls it.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

DTYPES = {
    "f32": torch.float32,
    "i32": torch.int32,
    "i64": torch.int64,
    "i8": torch.int8,
    "u8": torch.uint8,
    "boolean": torch.bool,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f64": torch.float64,
    "i16": torch.int16,
}
"""Element types by their names in attributes."""
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def _reduction(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def reduced(x: Tensor, axes: Any, keep_dims: bool = False) -> Tensor:
        for axis in sorted((a % x.ndim for a in _listed(axes)), reverse=True):
            x = function(x, axis, keepdim=keep_dims)
        return x

    return reduced


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _padded(x: Tensor, begin: Sequence[int], end: Sequence[int], fill: float = 0.0) -> Tensor:
    sides = [side for pair in zip(begin, end, strict=True) for side in reversed(pair)]
    return F.pad(x, sides[::-1], value=fill) if any(sides) else x


_CONVOLUTIONS: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: dict[int, Any] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def _convolution(
    x: Tensor,
    w: Tensor,
    *,
    strides: list[int],
    pads_begin: list[int],
    pads_end: list[int],
    dilations: list[int],
    auto_pad: str = "explicit",
) -> Tensor:
    groups = w.shape[0] if w.ndim > x.ndim else 1
    w = w.flatten(0, 1) if w.ndim > x.ndim else w
    x = _padded(x, pads_begin, pads_end)
    return _CONVOLUTIONS[x.ndim - 2](x, w, None, strides, 0, dilations, groups)


def _transposed(
    x: Tensor,
    w: Tensor,
    *,
    strides: list[int],
    pads_begin: list[int],
    pads_end: list[int],
    dilations: list[int],
    output_padding: list[int],
    auto_pad: str = "explicit",
) -> Tensor:
    groups = w.shape[0] if w.ndim > x.ndim else 1
    w = w.flatten(0, 1) if w.ndim > x.ndim else w
    stated = strides, pads_begin, output_padding, groups, dilations
    return _TRANSPOSED[x.ndim - 2](x, w, None, *stated)


def _pooling(sides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of PyTorch's pools; both sides are padded alike."""
    ceils = sides["rounding_type"] == "ceil_torch"
    named = {"kernel_size": "kernel", "stride": "strides", "padding": "pads_begin"}
    return {"ceil_mode": ceils, **{name: sides[key] for name, key in named.items()}}


def _max_pool(x: Tensor, **sides: Any) -> tuple[Tensor, Tensor]:
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[x.ndim - 3]
    given = {**_pooling(sides), "dilation": sides.get("dilations", 1)}
    values, places = pool(x, **given, return_indices=True)
    return values, places.to(DTYPES[sides.get("index_element_type", "i64")])


def _average_pool(x: Tensor, **sides: Any) -> Tensor:
    pool: Any = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[x.ndim - 3]
    return pool(x, **_pooling(sides), count_include_pad=not sides["exclude-pad"])


def _depth_to_space(x: Tensor, *, mode: str, block_size: int) -> Tensor:
    if mode == "depth_first":
        return F.pixel_shuffle(x, block_size)
    n, channels, height, width = x.shape
    depth = channels // block_size**2
    parts = x.reshape(n, block_size, block_size, depth, height, width).permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(n, depth, height * block_size, width * block_size)


def _adaptive_pool(x: Tensor, sizes: list[int]) -> Tensor:
    pools: Any = F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d
    return pools[x.ndim - 3](x, sizes)


def _batch_norm(
    x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, var: Tensor, *, epsilon: float
) -> Tensor:
    return F.batch_norm(x, mean, var, scale, shift, eps=epsilon)


def _mvn(x: Tensor, axes: list[int], *, normalize_variance: bool, eps: float, eps_mode: str) -> Any:
    centered = x - x.mean(axes, keepdim=True)
    variance = centered.square().mean(axes, keepdim=True)
    inside = eps_mode.lower() == "inside_sqrt"
    scale = (variance + eps).sqrt() if inside else variance.sqrt() + eps
    return centered / scale if normalize_variance else centered


def fake_quantize(
    x: Tensor, low: Tensor, high: Tensor, to_low: Tensor, to_high: Tensor, *, levels: int
) -> Tensor:
    """Return the nearest of `levels` numbers between `low` and `high`, scaled to other limits."""
    share = torch.round((x - low) / (high - low) * (levels - 1)) / (levels - 1)
    inside = share * (to_high - to_low) + to_low
    below = torch.where(x <= torch.minimum(low, high), to_low, inside)
    return torch.where(x > torch.maximum(low, high), to_high, below)


def _interpolate(x: Tensor, sizes: list[int], axes: list[int] | None = None, **more: Any) -> Tensor:
    corners = more["coordinate_transformation_mode"] == "align_corners"
    mode, linear = more["mode"], {3: "linear", 4: "bilinear", 5: "trilinear"}[x.ndim]
    if mode == "nearest":
        is_exact = more["coordinate_transformation_mode"] == "half_pixel"
        return F.interpolate(x, sizes, mode="nearest-exact" if is_exact else "nearest")
    kind = "bicubic" if mode == "cubic" else linear
    antialias = bool(more.get("antialias"))
    return F.interpolate(x, sizes, mode=kind, align_corners=corners, antialias=antialias)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Any = None, scale: Any = None, *, causal: bool
) -> Tensor:
    scale = scale if scale is None or scale.is_meta else float(scale)
    known = None if isinstance(scale, Tensor) else scale
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=known)


def _top(
    x: Tensor,
    k: int,
    *,
    axis: int,
    mode: str,
    sort: str,
    index_element_type: str,
    stable: bool = False,
) -> Any:
    values, places = torch.sort(x, dim=axis, descending=mode == "max", stable=stable)
    values, places = values.narrow(axis, 0, k), places.narrow(axis, 0, k)
    return values, places.to(DTYPES[index_element_type])


def _gather(x: Tensor, places: Tensor, axis: int, *, batch_dims: int = 0) -> Tensor:
    axis %= x.ndim
    flat = places.reshape(-1).to(torch.int64)
    flat = torch.where(flat < 0, flat + x.shape[axis], flat)
    shape = [*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]]
    return x.index_select(axis, flat).reshape(shape)


def _slice(x: Tensor, start: Any, stop: Any, step: Any, axes: Any = None) -> Tensor:
    axes = list(range(len(start))) if axes is None else axes
    for axis, begin, end, by in zip(axes, start, stop, step, strict=True):
        places = range(x.shape[axis])[slice(begin, end if end > -(2**31) else None, by)]
        index = torch.tensor(list(places), dtype=torch.int64, device=x.device)
        whole = by == 1
        x = x.narrow(axis, places.start, len(places)) if whole else x.index_select(axis, index)
    return x


def _reshape(x: Tensor, shape: list[int], *, special_zero: bool = False) -> Tensor:
    kept = [x.shape[at] if size == 0 and special_zero else size for at, size in enumerate(shape)]
    return x.reshape(kept)


def _pad(x: Tensor, begin: list[int], end: list[int], fill: Any = None, *, pad_mode: str) -> Tensor:
    if pad_mode == "constant":
        number = 0.0 if fill is None or fill.is_meta else float(fill)
        return _padded(x, begin, end, number)
    for at, (before, after) in enumerate(zip(begin, end, strict=True)):
        places = torch.arange(-before, x.shape[at] + after, device=x.device)
        last = x.shape[at] - 1
        inner = places.abs() if pad_mode == "reflect" else places.clamp(0)
        inner = last - (last - inner).abs() if pad_mode == "reflect" else inner.clamp(max=last)
        x = x.index_select(at, inner)
    return x


def _scatter(
    x: Tensor,
    places: Tensor,
    updates: Tensor,
    axis: int,
    *,
    reduction: str = "none",
    use_init_val: bool = True,
) -> Tensor:
    places = places.to(torch.int64)
    if reduction == "none":
        return x.scatter(axis, places, updates)
    named = {"sum": "sum", "prod": "prod", "max": "amax", "min": "amin", "mean": "mean"}[reduction]
    return x.scatter_reduce(axis, places, updates, named, include_self=use_init_val)


def _scatter_rows(x: Tensor, places: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    indices = tuple(places.to(torch.int64).unbind(-1))
    return x.index_put(indices, updates, accumulate=reduction == "sum")


def _group_norm(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float
) -> Tensor:
    return F.group_norm(x, num_groups, scale, bias, epsilon)


def _linear(x: Tensor, w: Tensor, bias: Tensor | None = None, *, output_type: str = "") -> Tensor:
    return F.linear(x, w, bias if bias is not None and bias.numel() else None)


def _static_power(x: Tensor, *, scale: float, power: float, shift: float, **_: Any) -> Tensor:
    return torch.pow(x * scale + shift, power)


def _rms(x: Tensor, gamma: Tensor, *, epsilon: float, output_type: str = "") -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * gamma


def _saturated(x: Tensor, *, destination_type: str) -> Tensor:
    limits = torch.iinfo(DTYPES[destination_type])
    return x.clamp(limits.min, limits.max).to(DTYPES[destination_type])


def _product(x: Tensor, y: Tensor, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    return torch.matmul(x.mT if transpose_a else x, y.mT if transpose_b else y)


MEANINGS: dict[str, Callable[..., Any]] = {
    "Negative": torch.neg,
    "Ceiling": torch.ceil,
    "Swish": lambda x, beta=None: F.silu(x) if beta is None else x * torch.sigmoid(x * beta),
    "SwishCPU": lambda x, alpha=1.0: x * torch.sigmoid(x * alpha),
    "HSwish": F.hardswish,
    "HSigmoid": F.hardsigmoid,
    "Mish": F.mish,
    "SoftPlus": F.softplus,
    "SoftSign": F.softsign,
    "IsNaN": torch.isnan,
    "IsInf": torch.isinf,
    "IsFinite": torch.isfinite,
    "LogicalNot": torch.logical_not,
    "BitwiseNot": torch.bitwise_not,
    "Gelu": lambda x, approximation_mode="ERF": F.gelu(
        x, approximate="tanh" if approximation_mode.lower() == "tanh" else "none"
    ),
    "Elu": lambda x, alpha=1.0: F.elu(x, alpha),
    "PRelu": lambda x, slope: torch.where(x > 0, x, x * _channels(slope, x)),
    "LeakyRelu": lambda x, negative_slope, **_: F.leaky_relu(x, negative_slope),
    "Clamp": lambda x, min, max: torch.clamp(x, min, max),
    "Round": lambda x, mode: torch.round(x) if "even" in mode.lower() else (x + 0.5).floor(),
    **{
        name: getattr(torch, name.lower())
        for name in "Abs Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf Exp Floor Log Relu Sigmoid "
        "Sign Sin Sinh Sqrt Tan Tanh".split()
    },
    "Add": torch.add,
    "Subtract": torch.sub,
    "Multiply": torch.mul,
    "Divide": torch.div,
    "Power": torch.pow,
    "Mod": torch.fmod,
    "FloorMod": torch.remainder,
    "Maximum": torch.maximum,
    "Minimum": torch.minimum,
    "SquaredDifference": lambda x, y: (x - y).square(),
    "Equal": torch.eq,
    "NotEqual": torch.ne,
    "Greater": torch.gt,
    "GreaterEqual": torch.ge,
    "Less": torch.lt,
    "LessEqual": torch.le,
    "LogicalAnd": torch.logical_and,
    "LogicalOr": torch.logical_or,
    "LogicalXor": torch.logical_xor,
    "Select": lambda c, x, y: torch.where(c.bool(), x, y),  # Comparisons that are read: f32.
    "Convert": lambda x, destination_type: x.to(DTYPES[destination_type]),
    "PowerStatic": _static_power,
    "FakeQuantize": fake_quantize,
    "ReduceMean": lambda x, axes, keep_dims=False: x.mean(_listed(axes), keep_dims),
    "ReduceSum": lambda x, axes, keep_dims=False: x.sum(_listed(axes), keep_dims, dtype=x.dtype),
    "ReduceMax": lambda x, axes, keep_dims=False: x.amax(_listed(axes), keep_dims),
    "ReduceMin": lambda x, axes, keep_dims=False: x.amin(_listed(axes), keep_dims),
    "ReduceProd": _reduction(torch.prod),
    "ReduceLogicalAnd": _reduction(torch.all),
    "ReduceLogicalOr": _reduction(torch.any),
    "CumSum": lambda x, axis, exclusive=False, reverse=False: x.cumsum(axis),
    "Softmax": lambda x, axis: x.softmax(axis),
    "LogSoftmax": lambda x, axis: x.log_softmax(axis),
    "MVN": _mvn,
    "GroupNormalization": _group_norm,
    "RMS": _rms,
    "MatMul": _product,
    "FullyConnected": _linear,
    "FullyConnectedQuantizedLegacy": lambda x, w, bias, scales, *_, **__: (
        _linear(x, w, bias if bias.numel() else None) * scales
    ),
    "ConvertTruncation": lambda x, destination_type: x.to(DTYPES[destination_type]),
    "ConvertSaturation": _saturated,
    "Interpolate_opset4": lambda x, sizes, scales, axes, **more: _interpolate(x, sizes, **more),
    "MaxPool_opset1": _max_pool,
    "Convolution": _convolution,
    "GroupConvolution": _convolution,
    "ConvolutionBackpropData": _transposed,
    "GroupConvolutionBackpropData": _transposed,
    "MaxPool": _max_pool,
    "AvgPool": _average_pool,
    "AdaptiveAvgPool": _adaptive_pool,
    "BatchNormInference": _batch_norm,
    "Interpolate": _interpolate,
    "ScaledDotProductAttention": _attention,
    "TopK": _top,
    "Gather": _gather,
    "GatherElements": lambda x, i, axis: x.gather(axis, i.to(torch.int64)),
    "GatherND": lambda x, i, batch_dims=0: x[tuple(i.to(torch.int64).unbind(-1))],
    "ScatterElementsUpdate": _scatter,
    "ScatterNDUpdate": _scatter_rows,
    "Reshape": _reshape,
    "Transpose": lambda x, order: x.permute(order or list(reversed(range(x.ndim)))),
    "Concat": lambda *parts, axis: torch.cat(parts, axis),
    "Slice": _slice,
    "Broadcast": lambda x, shape, axes=None, mode="numpy": x.expand(
        torch.broadcast_shapes(tuple(x.shape), tuple(shape))
    ),
    "DepthToSpace": _depth_to_space,
    "ShuffleChannels": lambda x, axis, group: (
        x.unflatten(axis, (group, -1)).transpose(axis, axis + 1).flatten(axis, axis + 1)
    ),
    "Tile": lambda x, repeats: x.repeat(repeats),
    "Pad": _pad,
    "Squeeze": lambda x, axes: x.squeeze(_listed(axes)),
    "Unsqueeze": lambda x, axes: _unsqueezed(x, _listed(axes)),
    "Split": lambda x, axis, num_splits: x.tensor_split(num_splits, axis),
    "VariadicSplit": lambda x, axis, lengths: x.split(lengths, axis),
    "ShapeOf": lambda x, output_type="i64": torch.tensor(x.shape, dtype=DTYPES[output_type]),
}
"""What each operator computes, by its name."""


def _channels(slope: Tensor, x: Tensor) -> Tensor:
    """Return slopes in the shape that broadcasts: one for each place on the second axis."""
    if slope.ndim == 1 and x.ndim > 1 and slope.numel() == x.shape[1]:
        return slope.reshape(1, -1, *[1] * (x.ndim - 2))
    return slope


def _unsqueezed(x: Tensor, axes: list[int]) -> Tensor:
    for axis in sorted(a % (x.ndim + len(axes)) for a in axes):
        x = x.unsqueeze(axis)
    return x
