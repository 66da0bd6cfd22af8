"""Define kernels as sequences of operators: for the error analysis, and for certificates.

A step is a PyTorch function that runs on any tensors, also on those whose elements are errors or
expressions.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def _softmax(x: Tensor, axis: int, half: bool) -> Tensor:
    power = (x - x.amax(axis, True).detach()).exp()
    return power / power.sum(axis, True)


def _log_softmax(x: Tensor, axis: int, half: bool) -> Tensor:
    shifted = x - x.amax(axis, True)
    return shifted - shifted.exp().sum(axis, True).log()


def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (1 + inner.tanh())
    # The kernel's own erf is 1 less what Abramowitz and Stegun's 7.1.26 gives, whose error is
    # 1.5e-7 whatever the size, or oneDNN's: 6e-7 off was measured, near 0.
    rest = _approximated((x.abs() * math.sqrt(0.5)).erfc(), 10)
    return x * 0.5 * (1 + x.sign() * _approximated(1 - rest, 3))


def _times(x: Tensor, factor: float) -> Tensor:
    """Return a product; a product with 1 is exact."""
    return x if factor == 1 else x * factor


def _approximated(x: Tensor, roundings: int) -> Tensor:
    """Return a value to which the error analysis adds a number of roundings (products with 1)."""
    for _ in range(roundings):
        x = x * 1.0
    return x


def _softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    scaled = _times(x, beta)
    logarithm = scaled.exp().log1p()
    return torch.where(scaled > threshold, x, logarithm if beta == 1 else logarithm / beta)


def _elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    power = _times(x, input_scale).expm1()
    return torch.where(x > 0, _times(x, scale), _times(power, alpha * scale))


def _logit(x: Tensor, eps: float | None = None) -> Tensor:
    share = x if eps is None else x.clamp(eps, 1 - eps)
    return (share / (1 - share)).log()


def _log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.clamp(max=0) - (-x.abs()).exp().log1p(), torch.zeros_like(x)


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, ...]:
    axes = [*range(x.dim() - len(shape), x.dim())]
    mean = x.mean(axes, keepdim=True)
    centered = x - mean
    inverse = ((centered * centered).mean(axes, keepdim=True) + eps).rsqrt()
    return _affine(centered * inverse, weight, bias), mean, inverse


def _group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    images: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, ...]:
    rows = x.reshape(images, groups, -1)
    result, mean, inverse = _layer_norm(rows, rows.shape[2:], None, None, eps)
    lying = [1, channels, *[1] * (x.dim() - 2)]
    given = (each if each is None else each.reshape(lying) for each in (weight, bias))
    return (
        _affine(result.reshape(x.shape), *given),
        mean.reshape(images, groups),
        inverse.reshape(images, groups),
    )


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    lying = [1, -1, *[1] * (x.dim() - 2)]
    axes = [axis for axis in range(x.dim()) if axis != 1]
    if training or mean is None or variance is None:
        mean = x.mean(axes)
        centered = x - mean.reshape(lying)
        variance = (centered * centered).mean(axes)
    factor = (variance + eps).rsqrt()
    factor = factor if weight is None else factor * weight
    shift = -mean * factor if bias is None else bias - mean * factor  # As the CPU's kernel does.
    return (x * factor.reshape(lying) + shift.reshape(lying),)


def _legit(x: Tensor, *args: Any) -> tuple[Tensor, ...]:
    *given, training, momentum, eps = args
    weight, bias, mean, variance = given if len(given) == 4 else (*given, None, None)
    return _batch_norm(x, weight, bias, mean, variance, training, momentum, eps)


def _inference(x: Tensor, weight: Any, bias: Any, mean: Any, variance: Any, *rest: Any) -> Any:
    return _batch_norm(x, weight, bias, mean, variance, False, *rest)


def _variance(x: Tensor, axes: Any = None, correction: Any = 1, keepdim: bool = False) -> Tensor:
    chosen = [*range(x.dim())] if not axes else [axes] if isinstance(axes, int) else [*axes]
    count = math.prod(x.shape[axis] for axis in chosen)
    centered = x - x.mean(chosen, keepdim=True)
    less = 1 if correction is None else float(correction)
    return (centered * centered).sum(chosen, keepdim) / max(count - less, 0)


def _deviation(x: Tensor, axes: Any = None, **kwargs: Any) -> Tensor:
    return _variance(x, axes, **kwargs).sqrt()


def _both(
    x: Tensor, axes: Any = None, correction: Any = 1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    chosen = axes or [*range(x.dim())]
    return _variance(x, axes, correction, keepdim), x.mean(chosen, keepdim=keepdim)


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    k, v = (
        t if t.shape[1] == q.shape[1] else t.repeat_interleave(q.shape[1] // t.shape[1], 1)
        for t in (k, v)
    )
    scores = (q * (q.shape[-1] ** -0.5 if scale is None else scale)) @ k.transpose(-2, -1)
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~allowed, -torch.inf)
    if attn_mask is not None:
        scores = scores + attn_mask
    power = (scores - scores.amax(-1, True)).exp()
    return (power @ v) / power.sum(-1, True), scores.sum(-1)


def _scaled_sum(x: Any, y: Any, *, alpha: float = 1) -> Any:
    return x + y * alpha


def _scaled_difference(x: Any, y: Any, *, alpha: float = 1) -> Any:
    return x - y * alpha


def _reversed(x: Any, y: Any, alpha: float = 1) -> Any:
    return y - x * alpha


def _addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return x + _times(a, value) * b


def _addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return x + _times(a, value) / b


def _lerp(a: Tensor, b: Tensor, w: Any) -> Tensor:
    difference = b - a
    weight = torch.as_tensor(w, dtype=a.dtype)
    near = a + difference * w
    far = b - difference * (1 - w)
    return torch.where(weight.abs() < 0.5, near, far)


def _product(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Return a product whose logarithm has an error of n roundings relative to the product."""
    result = torch.prod(x, *args, **kwargs)
    return _approximated(result, x.numel() // max(result.numel(), 1))


def _norm(x: Tensor, order: Any = 2, axes: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    chosen = [*range(x.dim())] if axes is None else axes
    if order == 2:
        return (x * x).sum(chosen, keepdim).sqrt()
    if order == 1:
        return x.abs().sum(chosen, keepdim)
    return x.abs().pow(order).sum(chosen, keepdim).pow(1 / order)


def _distance(a: Tensor, b: Tensor, p: float, mode: int | None) -> Tensor:
    if p != 2:
        return _norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, [-1])
    if mode == 2 or (mode is None and max(a.shape[-2], b.shape[-2]) <= 25):
        return _norm(a.unsqueeze(-2) - b.unsqueeze(-3), 2, [-1])
    squares = (a * a).sum(-1, True) + (b * b).sum(-1, True).mT - 2 * (a @ b.mT)
    return squares.clamp(min=0).sqrt()


def _celu(x: Tensor, alpha: float = 1) -> Tensor:
    return _elu(x, alpha, 1, 1 / alpha)


def _logaddexp(a: Tensor, b: Tensor) -> Tensor:
    return torch.maximum(a, b) + (-(a - b).abs()).exp().log1p()


_OF_ONE: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lambda x: 1 / (1 + (-x).exp()),
    "silu": lambda x: x / (1 + (-x).exp()),
    "mish": lambda x: x * _softplus(x).tanh(),
    "selu": lambda x: _elu(x, 1.6732632423543772, 1.0507009873554805),
    "hardswish": lambda x: x * (x + 3).clamp(0, 6) / 6,
    "hardsigmoid": lambda x: (x + 3).clamp(0, 6) / 6,
    "rsqrt": lambda x: 1 / x.sqrt(),
}
STEPS: dict[str, Callable[..., Any]] = {
    **_OF_ONE,
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _legit,
    "_native_batch_norm_legit_no_training": _inference,
    "var": _variance,
    "std": _deviation,
    "var_mean": _both,
    "linalg_vector_norm": _norm,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "gelu": _gelu,
    "softplus": _softplus,
    "elu": _elu,
    "celu": _celu,
    "log_sigmoid_forward": _log_sigmoid,
    "logit": _logit,
    "logaddexp": _logaddexp,
    "add": _scaled_sum,
    "sub": _scaled_difference,
    "rsub": _reversed,
    "lerp": _lerp,
    "_cdist_forward": _distance,
    "prod": _product,
}
"""Operator → the sequence of PyTorch operators in its kernel."""


# -- steps without a rounding analysis of their own ----------------------------------------------


def _mean(x: Tensor, axes: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    chosen = axes or [*range(x.dim())]
    total = x.sum(chosen, keepdim)
    return total / (x.numel() // total.numel())


def _softmax_of_any(x: Tensor, axis: int, *_: Any) -> Tensor:
    return torch.softmax(x, axis)


Sizes = Sequence[int]


def _pairs(*sizes: Sizes) -> list[list[int]]:
    return [[*each] * (3 - len(each)) for each in sizes]


def _average_of_windows(
    x: Tensor,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0, 0),
    ceil: bool = False,
    counts_padding: bool = True,
    divisor: int | None = None,
) -> Tensor:
    if ceil:
        raise NotImplementedError
    size, *window = _pairs(kernel, stride or kernel, padding)
    ones, channels = torch.ones(x.shape[-3], 1, *size), x.shape[-3]
    total = torch.conv2d(x, ones, None, *window, 1, channels)
    if divisor is None and not counts_padding:
        return total / torch.conv2d(torch.ones(x.shape), ones, None, *window, 1, channels)
    return total / (divisor or math.prod(size))


def _average_of_parts(x: Tensor, sizes: Sizes) -> Tensor:
    window = [given // size for given, size in zip(x.shape[-2:], sizes, strict=True)]
    if [each * size for each, size in zip(window, sizes, strict=True)] != [*x.shape[-2:]]:
        raise NotImplementedError
    return _average_of_windows(x, window)


def _greatest_of_windows(
    x: Tensor,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0, 0),
    dilation: Sizes = (1, 1),
    ceil: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the maxima of windows, and numbers that tell their places apart."""
    if ceil or any(each != 1 for each in dilation):
        raise NotImplementedError
    size, step, around = _pairs(kernel, stride or kernel, padding)
    padded = torch.constant_pad_nd(x, [around[1]] * 2 + [around[0]] * 2, -torch.inf)
    windows = padded.unfold(-2, size[0], step[0]).unfold(-2, size[1], step[1]).flatten(-2)
    places = torch.arange(math.prod(windows.shape[:-1])).reshape(windows.shape[:-1])
    return windows.amax(-1), windows.argmax(-1) ^ places


FOLLOWED: dict[str, Callable[..., Any]] = {
    "zeros_like": lambda x, dtype=None, **_: torch.zeros(x.shape, dtype=dtype or x.dtype),
    "ones_like": lambda x, dtype=None, **_: torch.ones(x.shape, dtype=dtype or x.dtype),
    "full_like": lambda x, number, dtype=None, **_: torch.full(
        x.shape, number, dtype=dtype or x.dtype
    ),
    "new_zeros": lambda x, size, dtype=None, **_: torch.zeros(size, dtype=dtype or x.dtype),
    "new_ones": lambda x, size, dtype=None, **_: torch.ones(size, dtype=dtype or x.dtype),
    "new_full": lambda x, size, number, dtype=None, **_: torch.full(
        size, number, dtype=dtype or x.dtype
    ),
    "mean": _mean,
    "var": _variance,
    "var_mean": _both,
    "_safe_softmax": _softmax_of_any,
    "avg_pool2d": _average_of_windows,
    "_adaptive_avg_pool2d": _average_of_parts,
    "max_pool2d_with_indices": _greatest_of_windows,
}
"""Kernels whose steps certificates follow, because PyTorch's own decompositions write in place or
are of other kinds. `_safe_softmax` differs from softmax where a whole row is masked.
"""
