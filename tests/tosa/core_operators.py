"""The core ATen operators (`torch.Tag.core`), each with a natural call.

`python bench/tosa_operators.py` lowers them one by one and writes docs/tosa_operators.md;
test_core_operators.py lowers all that have a TOSA form as one graph.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

aten = torch.ops.aten
Call = Callable[[Any], Any]

OF_TENSORS = {
    "x": """
    abs asinh atan ceil cos cosh erf exp expm1 floor gelu hardtanh isinf isnan leaky_relu
    logical_not mean neg nonzero prod reciprocal relu round sigmoid sign sin sinh tanh trunc""",
    "unit": "acos asin atanh tan",
    "positive": "log log10 log1p log2 rsqrt sqrt",
    "x y": """
    atan2 eq.Tensor ge.Tensor gt.Tensor le.Tensor logical_and lt.Tensor maximum minimum
    mul.Tensor ne.Tensor sub.Tensor""",
    "integers others": "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor",
    "x positive": "div.Tensor fmod.Tensor remainder.Tensor",
}
"""Operators that take these tensors and nothing else."""
OF_NUMBERS = {
    ("x", 0.25): "ge.Scalar gt.Scalar le.Scalar lt.Scalar",
    ("integers", 6): "bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar",
}


def call_of(name: str, tensors: str, *numbers: float) -> Call:
    """A call of an operator, or of an overload."""
    operator, _, overload = name.partition(".")
    function = getattr(getattr(aten, operator), overload or "default")
    return lambda v: function(*(getattr(v, tensor) for tensor in tensors.split()), *numbers)


_CALLS: dict[str, Call] = {
    **{n: call_of(n, given) for given, names in OF_TENSORS.items() for n in names.split()},
    **{n: call_of(n, *given) for given, names in OF_NUMBERS.items() for n in names.split()},
    "_adaptive_avg_pool2d": lambda v: aten._adaptive_avg_pool2d(v.image, [4, 2]),
    "_adaptive_avg_pool3d": lambda v: aten._adaptive_avg_pool3d(v.volume, [2, 3, 1]),
    "_cdist_forward": lambda v: aten._cdist_forward(v.x, v.y, 2.0, None),
    "_embedding_bag": lambda v: aten._embedding_bag(v.matrix, v.rows, v.rows[:1] * 0)[0],
    "_fft_r2c": lambda v: torch.view_as_real(aten._fft_r2c(v.image, [3], 0, True)),
    "_fft_c2r": lambda v: aten._fft_c2r(torch.view_as_complex(v.pairs), [1], 2, 4),
    "_local_scalar_dense": lambda v: v.x * aten._local_scalar_dense(v.one),
    "_log_softmax": lambda v: aten._log_softmax(v.x, 1, False),
    "_native_batch_norm_legit": lambda v: aten._native_batch_norm_legit(
        v.image, None, None, v.line, v.line, False, 0.1, 1e-5
    )[0],
    "_native_batch_norm_legit.no_stats": lambda v: aten._native_batch_norm_legit.no_stats(
        v.image, v.line, v.line, True, 0.1, 1e-5
    )[0],
    "_native_batch_norm_legit_no_training": lambda v: aten._native_batch_norm_legit_no_training(
        v.image, v.line, v.line, v.line, v.line, 0.1, 1e-5
    )[0],
    "_pdist_forward": lambda v: aten._pdist_forward(v.matrix),
    "_softmax": lambda v: aten._softmax(v.x, -1, False),
    "_to_copy": lambda v: aten._to_copy(v.x, dtype=torch.int32),
    "acosh": lambda v: aten.acosh(v.positive + 1),
    "adaptive_avg_pool1d": lambda v: aten.adaptive_avg_pool1d(v.x, [2]),
    "add.Scalar": lambda v: aten.add.Scalar(v.x, 2, 3),
    "add.Tensor": lambda v: aten.add.Tensor(v.x, v.y, alpha=2),
    "addmm": lambda v: aten.addmm(v.line, v.matrix, v.square, beta=0.5, alpha=2),
    "alias": lambda v: aten.alias(v.x) + 1,
    "amax": lambda v: aten.amax(v.x, [1, 2]),
    "amin": lambda v: aten.amin(v.x, [-1], True),
    "any": lambda v: aten.any(v.mask),
    "any.dim": lambda v: aten.any.dim(v.mask, 1),
    "any.dims": lambda v: aten.any.dims(v.mask, [0, 2], True),
    "arange.start_step": lambda v: v.line + aten.arange.start_step(0, 8, 2),
    "argmax": lambda v: aten.argmax(v.x, 1),
    "argmin": lambda v: aten.argmin(v.x, -1, True),
    "as_strided": lambda v: aten.as_strided(v.x, [2, 2, 4], [12, 4, 1], 4) + 1,
    "avg_pool1d": lambda v: aten.avg_pool1d(v.x, [2], [2]),
    "avg_pool2d": lambda v: aten.avg_pool2d(v.image, [3, 3], [2, 2], [1, 1]),
    "avg_pool3d": lambda v: aten.avg_pool3d(v.volume, [2, 2, 2], [1, 2, 2], [1, 1, 0]),
    "bitwise_not": lambda v: aten.bitwise_not(v.integers),
    "bmm": lambda v: aten.bmm(v.x, v.y.mT),
    "cat": lambda v: aten.cat([v.x, v.y], 1),
    "clamp": lambda v: aten.clamp(v.x, -0.5),
    "clamp.Tensor": lambda v: aten.clamp.Tensor(v.x, v.unit, v.positive),
    "clone": lambda v: aten.clone(v.x) + 1,
    "col2im": lambda v: aten.col2im(v.columns, [5, 5], [2, 2], [1, 1], [0, 0], [1, 1]),
    "constant_pad_nd": lambda v: aten.constant_pad_nd(v.x, [1, 2, 0, 1], 3.0),
    "convolution": lambda v: aten.convolution(
        v.image, v.filters, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1
    ),
    "copy": lambda v: aten.copy(v.x, v.line),
    "cumsum": lambda v: aten.cumsum(v.x, 1),
    "diagonal": lambda v: aten.diagonal(v.x, 1, 1, 2) + 1,
    "div.Scalar": lambda v: aten.div.Scalar(v.x, 3),
    "div.Scalar_mode": lambda v: aten.div.Scalar_mode(v.integers, 3, rounding_mode="floor"),
    "div.Tensor_mode": lambda v: aten.div.Tensor_mode(v.x, v.positive, rounding_mode="trunc"),
    "elu": lambda v: aten.elu(v.x, 1.5, 2.0, 0.5),
    "embedding": lambda v: aten.embedding(v.matrix, v.rows),
    "eq.Scalar": lambda v: aten.eq.Scalar(v.integers, 3),
    "expand": lambda v: aten.expand(v.line, [3, -1]) + 1,
    "fill.Scalar": lambda v: v.x + aten.fill.Scalar(v.x, 3),
    "flip": lambda v: aten.flip(v.x, [0, 2]),
    "fmod.Scalar": lambda v: aten.fmod.Scalar(v.x, 0.5),
    "full": lambda v: v.x + aten.full([3, 1], 2.0),
    "full_like": lambda v: v.x + aten.full_like(v.x, 2.0),
    "gather": lambda v: aten.gather(v.x, 1, v.places),
    "grid_sampler_2d": lambda v: aten.grid_sampler_2d(v.image, v.grid, 0, 0, False),
    "index.Tensor": lambda v: aten.index.Tensor(v.x, [None, v.rows]),
    "index_put": lambda v: aten.index_put(v.x, [None, v.rows[:2]], v.line),
    "index_select": lambda v: aten.index_select(v.x, 1, v.rows),
    "logical_or": lambda v: aten.logical_or(v.mask, v.integers),
    "logical_xor": lambda v: aten.logical_xor(v.mask, v.x > 0),
    "masked_scatter": lambda v: aten.masked_scatter(v.x, v.mask, v.y),
    "max.dim": lambda v: aten.max.dim(v.x, 1),
    "max_pool2d_with_indices": lambda v: aten.max_pool2d_with_indices(
        v.image, [3, 3], [2, 2], [1, 1]
    )[0],
    "max_pool3d_with_indices": lambda v: aten.max_pool3d_with_indices(
        v.volume, [2, 2, 2], [1, 2, 2], [1, 1, 0]
    )[0],
    "mean.dim": lambda v: aten.mean.dim(v.x, [1]),
    "min.dim": lambda v: aten.min.dim(v.x, 2, True),
    "mm": lambda v: aten.mm(v.matrix, v.square),
    "mul.Scalar": lambda v: aten.mul.Scalar(v.x, 3),
    "native_dropout": lambda v: aten.native_dropout(v.x, 0.5, False)[0],
    "native_group_norm": lambda v: aten.native_group_norm(v.image, None, None, 1, 4, 64, 2, 1e-5)[
        0
    ],
    "native_layer_norm": lambda v: aten.native_layer_norm(v.x, [4], v.line, v.line, 1e-5)[0],
    "ne.Scalar": lambda v: aten.ne.Scalar(v.integers, 3),
    "permute": lambda v: aten.permute(v.x, [2, 0, 1]) + 1,
    "pow.Scalar": lambda v: aten.pow.Scalar(2, v.x),
    "pow.Tensor_Scalar": lambda v: aten.pow.Tensor_Scalar(v.positive, 1.5),
    "pow.Tensor_Tensor": lambda v: aten.pow.Tensor_Tensor(v.positive, v.x),
    "prod.dim_int": lambda v: aten.prod.dim_int(v.x, 1),
    "reflection_pad1d": lambda v: aten.reflection_pad1d(v.x, [1, 2]),
    "reflection_pad2d": lambda v: aten.reflection_pad2d(v.image, [1, 2, 3, 0]),
    "reflection_pad3d": lambda v: aten.reflection_pad3d(v.volume, [1, 2, 0, 1, 1, 1]),
    "remainder.Scalar": lambda v: aten.remainder.Scalar(v.x, 0.5),
    "repeat": lambda v: aten.repeat(v.x, [2, 1, 3]),
    "replication_pad2d": lambda v: aten.replication_pad2d(v.image, [1, 2, 3, 0]),
    "replication_pad3d": lambda v: aten.replication_pad3d(v.volume, [1, 2, 0, 1, 1, 1]),
    "scalar_tensor": lambda v: v.x + aten.scalar_tensor(2.5),
    "scatter.src": lambda v: aten.scatter.src(v.x, 1, v.places[:, :1], v.y),
    "scatter.value": lambda v: aten.scatter.value(v.x, 1, v.places, 2.5),
    "scatter_add": lambda v: aten.scatter_add(v.x, 1, v.places, v.y),
    "scatter_reduce.two": lambda v: aten.scatter_reduce.two(v.x, 1, v.places, v.y, "amax"),
    "select.int": lambda v: aten.select.int(v.x, 1, -1) + 1,
    "select_scatter": lambda v: aten.select_scatter(v.x, v.matrix[:2], 1, 1),
    "slice.Tensor": lambda v: aten.slice.Tensor(v.image, 3, 1, 8, 3) + 1,
    "slice_scatter": lambda v: aten.slice_scatter(v.x, v.y[:, :2], 1, 1, 3),
    "sort": lambda v: aten.sort(v.x, 2, True),
    "split_with_sizes": lambda v: aten.split_with_sizes(v.x, [1, 2], 1)[1] + 1,
    "squeeze.dim": lambda v: aten.squeeze.dim(v.image, 0) + 1,
    "squeeze.dims": lambda v: aten.squeeze.dims(v.image, [0, 1]) + 1,
    "sub.Scalar": lambda v: aten.sub.Scalar(v.x, 2, 3),
    "sum.dim_IntList": lambda v: aten.sum.dim_IntList(v.x, [0, 2]),
    "topk": lambda v: aten.topk(v.x, 2),
    "unsqueeze": lambda v: aten.unsqueeze(v.x, 1) + 1,
    "upsample_bilinear2d.vec": lambda v: aten.upsample_bilinear2d.vec(
        v.image, None, False, [2.0, 2.0]
    ),
    "upsample_nearest2d.vec": lambda v: aten.upsample_nearest2d.vec(v.image, [12, 20], None),
    "var.correction": lambda v: aten.var.correction(v.x, [1], correction=0),
    "var.dim": lambda v: aten.var.dim(v.x, [1, 2]),
    "view": lambda v: aten.view(v.x, [6, 4]) + 1,
    "where.self": lambda v: aten.where.self(v.mask, v.x, v.y),
}
CALLS = dict(sorted(_CALLS.items()))
"""By name, a call; its tensors are the attributes of what it takes."""

ROUNDED = frozenset(
    """_adaptive_avg_pool2d _adaptive_avg_pool3d _cdist_forward _fft_c2r _fft_r2c _log_softmax
    _native_batch_norm_legit.no_stats _native_batch_norm_legit_no_training _softmax acos acosh
    adaptive_avg_pool1d addmm asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool3d bmm
    convolution cos cosh cumsum div.Scalar div.Tensor elu erf exp expm1 gelu
    grid_sampler_2d leaky_relu log log10 log1p log2 mean mean.dim mm native_group_norm
    native_layer_norm pow.Scalar pow.Tensor_Scalar
    pow.Tensor_Tensor prod prod.dim_int reciprocal rsqrt sigmoid sin sinh sqrt sum.dim_IntList tan
    tanh upsample_bilinear2d.vec var.correction var.dim""".split()
)
"""Results of floating-point arithmetic, which are within 1e-5 of torch's; all others are equal."""

REFUSED: dict[str, str] = {
    "_embedding_bag": "_embedding_bag.default: TOSA has no operator for it",
    "_local_scalar_dense": "_local_scalar_dense.default: what it gives is as large",
    "_native_batch_norm_legit": "_native_batch_norm_legit_functional.default: TOSA has no",
    "_pdist_forward": "_pdist_forward.default: TOSA has no operator for it",
    "div.Tensor_mode": "the divisor is known only at run time, so the quotient may be rounded",
    "fmod.Tensor": "the divisor is known only at run time, so the quotient may be rounded",
    "masked_scatter": "masked_scatter.default: TOSA has no operator for it",
    "nonzero": "nonzero.default: what it gives is as large",
    "remainder.Tensor": "the divisor is known only at run time, so the quotient may be rounded",
}
"""What is said of the calls that have no TOSA form."""

WHY: dict[str, str] = {
    "_embedding_bag": "sums of bags of several lengths",
    "_local_scalar_dense": "a number of run time inside an operator's arguments",
    "_native_batch_norm_legit": "writes running statistics",
    "_pdist_forward": "distances within one list; `cdist` lowers",
    "div.Tensor_mode": "TOSA does not divide floats exactly; of integers it lowers",
    "fmod.Tensor": "TOSA does not divide floats exactly; by powers of two it lowers",
    "masked_scatter": "how many elements are read is known only at run time",
    "nonzero": "how many elements there are is known only at run time",
    "remainder.Tensor": "as `fmod.Tensor`",
}
"""The reason, for the table."""

NOT_CALLED: dict[str, tuple[str, ...]] = {
    "a gradient": (
        "_adaptive_avg_pool2d_backward",
        "avg_pool2d_backward",
        "convolution_backward",
        "embedding_dense_backward",
        "max_pool2d_with_indices_backward",
        "native_group_norm_backward",
        "native_layer_norm_backward",
    ),
    "random numbers": ("rand", "randn", "randperm"),
    "memory without values": ("empty.memory_format", "empty_strided", "resize_"),
    "writes into an argument": ("atan2.out",),
    "a number of the tensor's, not of its elements": (
        "sym_is_contiguous",
        "sym_numel",
        "sym_size.int",
        "sym_storage_offset",
        "sym_stride.int",
    ),
}
"""What no model that runs on a device computes."""


def inputs() -> dict[str, Tensor]:
    """What the calls take, by name; shapes differ, so that a slip shows."""
    torch.manual_seed(0)
    shape = (2, 3, 4)
    return {
        "x": torch.randn(shape),
        "y": torch.randn(shape),
        "positive": torch.rand(shape) + 0.5,
        "unit": torch.rand(shape) * 1.8 - 0.9,
        "mask": torch.rand(shape) > 0.5,
        "integers": torch.randint(-9, 9, shape, dtype=torch.int32),
        "others": torch.randint(-9, 9, shape, dtype=torch.int32),
        "image": torch.randn(1, 4, 8, 8),
        "volume": torch.randn(1, 2, 5, 6, 7),
        "columns": torch.randn(1, 12, 16),
        "filters": torch.randn(6, 4, 3, 3),
        "grid": torch.rand(1, 3, 3, 2) * 2 - 1,
        "pairs": torch.randn(2, 3, 2),
        "matrix": torch.randn(3, 4),
        "square": torch.randn(4, 4),
        "line": torch.rand(4) + 0.5,
        "one": torch.randn(1),
        "rows": torch.tensor([2, 0, 1, 2]),
        "places": torch.randint(0, 3, shape),
    }


def core_operators() -> set[str]:
    """Every operator with `torch.Tag.core`, as `add.Tensor` or `cat`."""
    found: set[str] = set()
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        operator, _, overload = rest.partition(".")
        if space != "aten":
            continue
        held = getattr(getattr(torch.ops.aten, operator), overload or "default", None)
        if held is not None and torch.Tag.core in held.tags:
            found.add(rest)
    return found


class Calls(nn.Module):
    """Some of the calls, each a tuple of tensors."""

    def __init__(self, names: list[str], given: list[str]) -> None:
        super().__init__()
        self.names, self.given = names, given

    def forward(self, *tensors: Tensor) -> tuple[Any, ...]:
        """All results, call by call."""
        values = SimpleNamespace(**dict(zip(self.given, tensors, strict=True)))
        return tuple(CALLS[name](values) for name in self.names)


def module_of(names: list[str]) -> tuple[Calls, tuple[Tensor, ...]]:
    """A module of the calls of these names, and the inputs that they read."""
    read: set[str] = set()

    class Record(SimpleNamespace):
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    every = inputs()
    for name in names:
        CALLS[name](Record(**every))
    given = [name for name in every if name in read]
    return Calls(names, given).eval(), tuple(every[name] for name in given)
