"""The arguments of each kernel for `generate_kernel_dtypes.py`, which tries element types."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

Make = Callable[..., torch.Tensor]
"""Creates a tensor of the probed type: `make(2, 3)`."""

Types = Sequence[torch.dtype]
Sample = Callable[[Make, Types], tuple[Any, ...]]
"""The arguments of a call; a dictionary at the end contains keyword arguments."""

_INDEX = torch.tensor([[1, 0, 1]])
_MASK = torch.tensor([[True, False, True], [False, True, True]])
_POOL: tuple[Any, ...] = ([2, 2], [2, 2], [0, 0])
_CONV: tuple[Any, ...] = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)


SAMPLES: dict[str, Sample] = {
    "_adaptive_avg_pool2d": lambda t, _: (t(1, 2, 4, 4), [2, 2]),
    "_cdist_forward": lambda t, _: (t(2, 3), t(4, 3), 2.0, None),
    "_log_softmax": lambda t, _: (t(2, 3), 1, False),
    "_native_batch_norm_legit.no_stats": lambda t, _: (t(2, 3, 4), t(3), t(3), True, 0.1, 1e-5),
    "_native_batch_norm_legit_no_training": lambda t, _: (
        t(2, 3, 4), t(3), t(3), t(3), t(3), 0.1, 1e-5,
    ),
    "_softmax": lambda t, _: (t(2, 3), 1, False),
    "_upsample_bilinear2d_aa": lambda t, _: (t(1, 2, 4, 4), [8, 8], False),
    "addmm": lambda t, _: (t(2, 4), t(2, 3), t(3, 4)),
    "as_strided_copy": lambda t, _: (t(2, 3), [3, 2], [1, 3]),
    "amax": lambda t, _: (t(2, 3), [1]),
    "amin": lambda t, _: (t(2, 3), [1]),
    "any.dim": lambda t, _: (t(2, 3), 1),
    "avg_pool2d": lambda t, _: (t(1, 2, 4, 4), *_POOL),
    "bmm": lambda t, _: (t(2, 3, 4), t(2, 4, 3)),
    "cat": lambda t, _: ([t(2, 3), t(1, 3)], 0),
    "constant_pad_nd": lambda t, _: (t(2, 3), [1, 1]),
    "convolution": lambda t, _: (t(1, 2, 4, 4), t(3, 2, 2, 2), t(3), *_CONV),
    "cumsum": lambda t, _: (t(2, 3), 1),
    "custom_sdpa": lambda t, _: (t(1, 2, 2, 4), t(1, 5, 2, 4), t(1, 5, 2, 4), 1),
    "diagonal_copy": lambda t, _: (t(3, 3),),
    "embedding": lambda t, _: (t(4, 3), _INDEX),
    "expand_copy": lambda t, _: (t(1, 3), [2, 3]),
    "fast_hadamard_transform": lambda t, _: (t(2, 8),),
    "flip": lambda t, _: (t(2, 3), [1]),
    "gather": lambda t, _: (t(2, 3), 0, _INDEX),
    "glu": lambda t, _: (t(2, 4), 1),
    "grid_sampler_2d": lambda t, _: (t(1, 2, 4, 4), t(1, 3, 3, 2), 0, 0, False),
    "index.Tensor": lambda t, _: (t(2, 3), [None, torch.tensor([2, 0])]),
    "index_put": lambda t, _: (t(2, 3), [torch.tensor([1])], t(1, 3)),
    "index_select": lambda t, _: (t(2, 3), 1, torch.tensor([2, 0])),
    "linear": lambda t, _: (t(2, 3), t(4, 3), t(4)),
    "masked_fill.Scalar": lambda t, _: (t(2, 3), _MASK, 1),
    "masked_scatter": lambda t, _: (t(2, 3), _MASK, t(2, 3)),
    "masked_select": lambda t, _: (t(2, 3), _MASK),
    "max_pool2d_with_indices": lambda t, _: (t(1, 2, 4, 4), *_POOL),
    "mean.dim": lambda t, _: (t(2, 3), [1]),
    "mm": lambda t, _: (t(2, 3), t(3, 4)),
    "narrow_copy": lambda t, _: (t(2, 3), 1, 0, 2),
    "native_group_norm": lambda t, _: (t(2, 4, 3), t(4), t(4), 2, 4, 3, 2, 1e-5),
    "native_layer_norm": lambda t, _: (t(2, 3), [3], t(3), t(3), 1e-5),
    "permute_copy": lambda t, _: (t(2, 3), [1, 0]),
    "pixel_shuffle": lambda t, _: (t(1, 4, 2, 2), 2),
    "pixel_unshuffle": lambda t, _: (t(1, 1, 4, 4), 2),
    "reflection_pad1d": lambda t, _: (t(2, 3, 4), [1, 1]),
    "reflection_pad2d": lambda t, _: (t(2, 3, 4), [1, 1, 1, 1]),
    "reflection_pad3d": lambda t, _: (t(2, 3, 4, 4), [1, 1, 1, 1, 1, 1]),
    "repeat": lambda t, _: (t(2, 3), [2, 1]),
    "replication_pad1d": lambda t, _: (t(2, 3, 4), [1, 1]),
    "replication_pad2d": lambda t, _: (t(2, 3, 4), [1, 1, 1, 1]),
    "replication_pad3d": lambda t, _: (t(2, 3, 4, 4), [1, 1, 1, 1, 1, 1]),
    "roll": lambda t, _: (t(2, 3), [1], [1]),
    "scatter.src": lambda t, _: (t(2, 3), 0, _INDEX, t(1, 3)),
    "scatter.value": lambda t, _: (t(2, 3), 0, _INDEX, 1),
    "scatter_add": lambda t, _: (t(2, 3), 0, _INDEX, t(1, 3)),
    "select_copy.int": lambda t, _: (t(2, 3), 1, 0),
    "select_scatter": lambda t, _: (t(2, 3), t(2), 1, 0),
    "slice_copy.Tensor": lambda t, _: (t(2, 3), 1, 0, 2),
    "slice_scatter": lambda t, _: (t(2, 3), t(2, 2), 1, 0, 2),
    "split_copy.Tensor": lambda t, _: (t(2, 4), 2, 1),
    "split_with_sizes_copy": lambda t, _: (t(2, 4), [1, 3], 1),
    "stack": lambda t, _: ([t(2, 3), t(2, 3)], 0),
    "t_copy": lambda t, _: (t(2, 3),),
    "topk": lambda t, _: (t(2, 4), 2),
    "transpose_copy.int": lambda t, _: (t(2, 3), 0, 1),
    "unbind_copy.int": lambda t, _: (t(2, 3),),
    "unfold_copy": lambda t, _: (t(2, 4), 1, 2, 1),
    "upsample_bilinear2d.vec": lambda t, _: (t(1, 2, 4, 4), [8, 8], False, None),
    "upsample_nearest2d.vec": lambda t, _: (t(1, 2, 4, 4), [8, 8], None),
    "var.correction": lambda t, _: (t(2, 3), [1]),
    "where.self": lambda t, _: (_MASK, t(2, 3), t(2, 3)),
}  # fmt: skip
"""Arguments by operator if its schema does not determine them; keyword arguments last."""

_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32)
_REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_SCALE = (torch.float32, torch.float64)
_ZERO = (torch.int64, torch.int32)


def _limits(dtype: torch.dtype) -> tuple[int, int, torch.dtype]:
    numbers = torch.iinfo(dtype)
    return max(numbers.min, -(2**15)), min(numbers.max, 2**15), dtype


def _scales(types: Sequence[torch.dtype], *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Quarters, which every float type represents, and zero points."""
    count = math.prod(shape)
    scales = (torch.arange(count) % 3 + 1).to(types[0]) / 4
    return scales.reshape(shape), (torch.arange(count) % 2).to(types[1]).reshape(shape)


def _rising(dtype: torch.dtype, count: int) -> torch.Tensor:
    return torch.arange(1, count + 1).to(dtype) / 4


def _whole(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return (torch.arange(math.prod(shape)) % 7 - 3).to(dtype).reshape(shape)


def _steps(value: torch.Tensor, dtype: torch.dtype) -> tuple[Any, ...]:
    return value, 0.25, 1, *_limits(dtype)[:2]


QUANTIZED: dict[str, tuple[tuple[Types, ...], Sample]] = {
    "choose_qparams.tensor": (
        (_REAL, _WHOLE), lambda t, d: (t(2, 3), *_limits(d[1])[:2], 1e-5, d[1]),
    ),
    "choose_qparams_per_token_asymmetric": (
        (_REAL, _WHOLE), lambda t, d: (t(2, 3), d[1]),
    ),
    "quantize_per_tensor": (
        (_REAL, _WHOLE), lambda t, d: (t(2, 3), 0.25, 1, *_limits(d[1])),
    ),
    "quantize_per_tensor.tensor": (
        (_REAL[:3], _WHOLE, _SCALE, _ZERO),
        lambda t, d: (t(2, 3), *_scales(d[2:], 1), *_limits(d[1])),
    ),
    "quantize_per_channel": (
        (_REAL[:3], _WHOLE, _SCALE, _ZERO),
        lambda t, d: (t(2, 3), *_scales(d[2:], 3), 1, *_limits(d[1])),
    ),
    "quantize_per_token": (
        (_REAL[:3], _WHOLE, _SCALE, _ZERO),
        lambda t, d: (t(2, 3), *_scales(d[2:], 2, 1), *_limits(d[1])),
    ),
    "dequantize_per_tensor": (
        (_WHOLE, _REAL), lambda t, d: (t(2, 3), 0.25, 1, *_limits(d[0]), {"out_dtype": d[1]}),
    ),
    "dequantize_per_tensor.tensor": (
        (_WHOLE, _REAL, _SCALE, _ZERO),
        lambda t, d: (t(2, 3), *_scales(d[2:], 1), *_limits(d[0]), {"out_dtype": d[1]}),
    ),
    "dequantize_per_channel": (
        (_WHOLE, _REAL, _SCALE, _ZERO),
        lambda t, d: (t(2, 3), *_scales(d[2:], 3), 1, *_limits(d[0]), {"out_dtype": d[1]}),
    ),
    "dequantize_per_token": (
        (_WHOLE, _REAL, _SCALE, _ZERO),
        lambda t, d: (t(2, 3), *_scales(d[2:], 2, 1), *_limits(d[0]), d[1]),
    ),
    "add": (
        ((torch.uint8, torch.int8, torch.int16),),
        lambda t, d: (*_steps(t(2, 3), d[0]), *_steps(t(2, 3), d[0]), 0.25, 1, *_limits(d[0])[:2]),
    ),
    "embedding_byte": (
        ((torch.uint8, torch.int8), _REAL),
        lambda t, d: (t(4, 3), _rising(d[1], 4), None, *_limits(d[0])[:2], torch.tensor([1, 3])),
    ),
    "embedding_byte.dtype": (
        ((torch.uint8, torch.int8), _REAL, _REAL),
        lambda t, d: (
            t(4, 3), _rising(d[1], 4), None, *_limits(d[0])[:2], torch.tensor([1, 3]),
            {"dtype": d[2]},
        ),
    ),
    "embedding_4bit": (
        ((torch.uint8,), _REAL),
        lambda t, d: (t(4, 3), _rising(d[1], 4), None, -8, 7, torch.tensor([1, 3])),
    ),
    "embedding_4bit.dtype": (
        ((torch.uint8,), _REAL, _REAL),
        lambda t, d: (
            t(4, 3), _rising(d[1], 4), None, -8, 7, torch.tensor([1, 3]), {"dtype": d[2]}
        ),
    ),
    "embedding_2bit": (
        ((torch.uint8,), _REAL),
        lambda t, d: (t(4, 3), _rising(d[1], 4), None, -2, 1, torch.tensor([1, 3])),
    ),
    "embedding_2bit.dtype": (
        ((torch.uint8,), _REAL, _REAL),
        lambda t, d: (
            t(4, 3), _rising(d[1], 4), None, -2, 1, torch.tensor([1, 3]), {"dtype": d[2]}
        ),
    ),
    "mixed_linear": (
        (_REAL, (torch.int8,)),
        lambda t, d: (t(2, 3), _whole(d[1], 4, 3), _rising(d[0], 4), None),
    ),
    "mixed_mm": (
        (_REAL, (torch.int8,)),
        lambda t, d: (t(2, 3), _whole(d[1], 3, 4), _rising(d[0], 3), None),
    ),
}  # fmt: skip
"""The types to combine for an operator that quantizes, and its arguments."""

UNPROBED = {
    "native_dropout": "random", "rand": "random", "randn": "random", "empty": "no values",
    "_empty_dim_order": "no values", "_fft_c2r": "complex", "_fft_r2c": "complex",
    "_conj_physical": "complex", "view_as_real_copy": "complex",
    "convolution_backward": "no forward program", "repeat_interleave": "counts, not data",
    "max_pool2d_with_indices_backward": "no forward program", "_h2d_copy": "another device",
}  # fmt: skip
