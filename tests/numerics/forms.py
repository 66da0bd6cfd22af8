"""Op forms whose classes of numbers are compared: each a function of tensors and of weights.

A form is what a model writes, `x.amax(-1)` or `linear(x, w) * 0.5`. Forms are exported many at a
time, each over inputs of its own, so that what one becomes does not touch another.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from specials import (
    images,
    measured_pairs,
    measured_values,
    pairs,
    rows,
    value_pairs,
    value_triples,
    values,
)

Function = Callable[..., torch.Tensor]
INPUTS: dict[str, Callable[[torch.dtype], tuple[torch.Tensor, ...]]] = {
    "rows": rows,
    "pairs": pairs,
    "images": images,
    "values": values,
    "value pairs": value_pairs,
    "value triples": value_triples,
    "measured values": measured_values,
    "measured pairs": measured_pairs,
}
"""What forms take: functions of `specials`."""


@dataclass(frozen=True)
class Form:
    """One op form.

    Attributes:
        name: how it is written.
        function: of a `Weights` and the inputs.
        kind: what it takes: a key of `INPUTS`.
    """

    name: str
    function: Function
    kind: str = "rows"

    def inputs(self, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        """Its special inputs in a dtype."""
        return INPUTS[self.kind](dtype)


class Weights(torch.nn.Module):
    """What forms with weights are computed with: fixed numbers of ordinary size."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(7)

        def number(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=random)

        held = {
            "w": number(8, 8),
            "b": number(8),
            "k": number(4, 2, 3, 3),
            "kb": number(4),
            "depth": number(2, 1, 3, 3),
            "t": number(2, 4, 2, 2),
            "scale": number(8).abs() + 0.5,
            "shift": number(8),
            "mean": number(4),
            "var": number(4).abs() + 0.5,
            "slope": number(8).abs(),
            "low": -number(8).abs() - 0.5,
            "high": number(8).abs() + 0.5,
        }
        for name, tensor in held.items():
            self.register_buffer(name, tensor.to(dtype))
        self.register_buffer("mask", number(8) > 0)
        self.register_buffer("later", torch.ones(2, 2, dtype=torch.bool).triu(1))


class Forms(torch.nn.Module):
    """Several forms, each over inputs of its own; gives one output a form."""

    def __init__(self, forms: Sequence[Form], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weights = Weights(dtype)
        self.forms = tuple(forms)

    def forward(self, groups: list[list[torch.Tensor]]) -> list[torch.Tensor]:
        """Each form of its group of inputs."""
        pairs = zip(self.forms, groups, strict=True)
        return [form.function(self.weights, *group) for form, group in pairs]


def _unary(
    function: Callable[..., Any], w: Weights, x: torch.Tensor, arguments: tuple[Any, ...] = ()
) -> Any:
    return function(x, *arguments)


def _binary(function: Callable[..., Any], w: Weights, x: torch.Tensor, y: torch.Tensor) -> Any:
    return function(x, y)


def _masked_scores(w: Weights, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Scores of two queries and two keys, of which the first query sees one."""
    scores = (x.view(-1, 2, 4) @ y.view(-1, 2, 4).mT) * 0.5
    return scores.masked_fill(w.later, -torch.inf)


def _affine_of_channels(first: Function | None, w: Weights, x: torch.Tensor) -> torch.Tensor:
    """A scale and a shift of each channel as models write it, behind a convolution or not."""
    x = x if first is None else first(x, w.k, w.kb).relu()
    count = x.shape[1]
    return x * w.scale[:count].view(1, -1, 1, 1) + w.shift[:count].view(1, -1, 1, 1)


def _forms() -> list[Form]:
    found: list[Form] = []

    def add(name: str, function: Function, kind: str = "rows") -> None:
        found.append(Form(name, function, kind))

    unary: dict[str, Callable[[torch.Tensor], Any]] = {
        name: getattr(torch, name)
        for name in (
            "abs neg exp expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan tanh sigmoid "
            "asin acos atan sinh cosh asinh acosh atanh erf floor ceil round trunc frac sign "
            "square relu isnan isinf isfinite logical_not nan_to_num"
        ).split()
    }
    for name, function in unary.items():
        add(f"{name}(x)", partial(_unary, function))
    for name in (
        "relu6 hardtanh hardsigmoid hardswish silu mish softplus softsign tanhshrink elu selu celu "
        "leaky_relu logsigmoid hardshrink softshrink gelu"
    ).split():
        add(f"{name}(x)", partial(_unary, getattr(F, name)))
    add("gelu(x, tanh)", lambda w, x: F.gelu(x, approximate="tanh"))
    add("gelu by erf", lambda w, x: x * 0.5 * (1 + torch.erf(x * 0.7071067811865476)))
    add(
        "gelu by tanh",
        lambda w, x: 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
    )
    add("x * sigmoid(1.702 x)", lambda w, x: x * torch.sigmoid(1.702 * x))
    add("prelu(x)", lambda w, x: F.prelu(x, w.slope))
    add("prelu(x, one slope)", lambda w, x: F.prelu(x, w.slope[:1]))
    add("elu(x, 0.5)", lambda w, x: F.elu(x, 0.5))
    add("leaky_relu(x, 0.2)", lambda w, x: F.leaky_relu(x, 0.2))
    add("threshold(x, 0.5, -0.0)", lambda w, x: F.threshold(x, 0.5, -0.0))
    add("glu(x)", lambda w, x: F.glu(x, -1))
    for exponent in (-3, -2, -1, -0.5, 0.5, 1.5, 2, 3, 4, 5, 0, 1, 0.25):
        add(f"x ** {exponent}", lambda w, x, e=exponent: x**e)
    add("2 ** x", lambda w, x: 2**x)
    add("1 / x", lambda w, x: 1 / x)
    add("x / 2", lambda w, x: x / 2)
    add("x / 3", lambda w, x: x / 3)
    add("x / 1e-30", lambda w, x: x / 1e-30)
    add("x * 0.0", lambda w, x: x * 0.0)
    add("x * 1e-30", lambda w, x: x * 1e-30)
    add("x * 2 * 0.25", lambda w, x: x * 2 * 0.25)
    add("x + 0.0", lambda w, x: x + 0.0)
    add("x - x", lambda w, x: x - x)
    add("x + 1 - 1", lambda w, x: x + 1 - 1)
    add("1 - x", lambda w, x: 1 - x)
    add("x % 3", lambda w, x: x % 3)
    add("fmod(x, 3)", lambda w, x: torch.fmod(x, 3))
    add("x // 2", lambda w, x: x // 2)

    for name in (
        "add sub mul div maximum minimum atan2 pow fmod remainder eq ne lt le gt ge "
        "floor_divide logaddexp"
    ).split():
        add(f"{name}(x, y)", partial(_binary, getattr(torch, name)), "pairs")
    add("add(x, y, alpha=0.5)", lambda w, x, y: torch.add(x, y, alpha=0.5), "pairs")
    add("addcmul(x, x, y)", lambda w, x, y: torch.addcmul(x, x, y, value=0.5), "pairs")
    add("addcdiv(x, x, y)", lambda w, x, y: torch.addcdiv(x, x, y, value=0.5), "pairs")
    add("lerp(x, y, 0.25)", lambda w, x, y: torch.lerp(x, y, 0.25), "pairs")
    add("where(x > y, x, y)", lambda w, x, y: torch.where(x > y, x, y), "pairs")
    add("where(x > 0, x, -x)", lambda w, x: torch.where(x > 0, x, -x))
    add("where(mask, x, y)", lambda w, x, y: torch.where(w.mask, x, y), "pairs")
    add("where(mask, x, 0)", lambda w, x: torch.where(w.mask, x, 0.0))
    add("masked_fill(x, mask, -inf)", lambda w, x: x.masked_fill(w.mask, -torch.inf))
    add("masked_fill(x, mask, 0)", lambda w, x: x.masked_fill(w.mask, 0.0))
    add("masked_fill(x, x > 1, 1)", lambda w, x: x.masked_fill(x > 1, 1.0))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        add(f"{name}(x, 0.0)", partial(_unary, getattr(torch, name), arguments=(0.0,)))

    add("clamp(x, -1, 1)", lambda w, x: x.clamp(-1, 1))
    add("clamp(x, min=0)", lambda w, x: x.clamp(min=0))
    add("clamp(x, max=0)", lambda w, x: x.clamp(max=0))
    add("clamp(x, min=tensor)", lambda w, x: torch.clamp(x, min=w.low))
    add("clamp(x, max=tensor)", lambda w, x: torch.clamp(x, max=w.high))
    add("clamp(x, low, high)", lambda w, x: torch.clamp(x, w.low, w.high))
    add("clamp(x, y, None)", lambda w, x, y: torch.clamp(x, min=y), "pairs")
    add("maximum(x, weight)", lambda w, x: torch.maximum(x, w.low))
    add("minimum(weight, x)", lambda w, x: torch.minimum(w.high, x))
    add("clamp_min(x, tensor)", lambda w, x: torch.clamp_min(x, w.low))
    add("clamp_max(x, tensor)", lambda w, x: torch.clamp_max(x, w.high))
    add("threshold(x, 0, 0)", lambda w, x: F.threshold(x, 0.0, 0.0))
    add("log1p(exp(-|x|))", lambda w, x: torch.log1p(torch.exp(-x.abs())))
    add("relu(x + 1)", lambda w, x: F.relu(x + 1))
    add("clamp(clamp(x, 0, 6), 1, 3)", lambda w, x: x.clamp(0, 6).clamp(1, 3))

    for name in ("sum", "mean", "amax", "amin", "prod", "logsumexp", "any", "all"):
        function = getattr(torch, name)
        add(f"{name}(x, -1)", partial(_unary, function, arguments=(-1,)))
        add(f"{name}(x, -1, keepdim)", partial(_unary, function, arguments=(-1, True)))
    for name in ("sum", "mean", "amax", "amin"):
        function = getattr(torch, name)
        for where, axes in (("planes", (2, 3)), ("channels", 1), ("all", (1, 2, 3))):
            reduced = partial(_unary, function, arguments=(axes,))
            add(f"{name}(image, {where})", reduced, "images")
    add("max(x, -1).values", lambda w, x: x.max(-1).values)
    add("min(x, -1).values", lambda w, x: x.min(-1).values)
    add("max(x, 1, keepdim).values", lambda w, x: x.max(1, keepdim=True).values)
    add("argmax(x, -1)", lambda w, x: x.argmax(-1))
    add("argmin(x, -1)", lambda w, x: x.argmin(-1))
    add("var(x, -1)", lambda w, x: x.var(-1))
    add("var(x, -1, biased)", lambda w, x: x.var(-1, unbiased=False))
    add("std(x, -1)", lambda w, x: x.std(-1))
    add("norm(x, 2, -1)", lambda w, x: torch.linalg.vector_norm(x, 2, -1))
    add("norm(x, 1, -1)", lambda w, x: torch.linalg.vector_norm(x, 1, -1))
    add("norm(x, inf, -1)", lambda w, x: torch.linalg.vector_norm(x, torch.inf, -1))
    add("cumsum(x, -1)", lambda w, x: x.cumsum(-1))
    add("softmax(x, -1)", lambda w, x: x.softmax(-1))
    add("softmax(x * 0.5)", lambda w, x: (x * 0.5).softmax(-1))
    add("softmax(image, 1)", lambda w, x: x.softmax(1), "images")
    add("log_softmax(x, -1)", lambda w, x: x.log_softmax(-1))
    add("softmin(x, -1)", lambda w, x: F.softmin(x, -1))
    add("safe_softmax(x, -1)", lambda w, x: torch.ops.aten._safe_softmax(x, -1))
    add("normalize(x, -1)", lambda w, x: F.normalize(x, dim=-1))
    add("normalize(x, 1, -1)", lambda w, x: F.normalize(x, p=1.0, dim=-1))
    add("cosine_similarity(x, y)", lambda w, x, y: F.cosine_similarity(x, y, -1), "pairs")
    add("pairwise_distance(x, y)", lambda w, x, y: F.pairwise_distance(x, y), "pairs")
    add("layer_norm(x)", lambda w, x: F.layer_norm(x, [8]))
    add("layer_norm(x, affine)", lambda w, x: F.layer_norm(x, [8], w.scale, w.shift))
    add("linear(layer_norm(x))", lambda w, x: F.linear(F.layer_norm(x, [8], w.scale, w.shift), w.w))
    add("rms_norm(x)", lambda w, x: F.rms_norm(x, [8], w.scale))
    add(
        "x * rsqrt(mean(x²) + eps)",
        lambda w, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    )
    add("group_norm(image)", lambda w, x: F.group_norm(x, 2), "images")
    add("instance_norm(image)", lambda w, x: F.instance_norm(x), "images")

    add("linear(x)", lambda w, x: F.linear(x, w.w, w.b))
    add("linear(x) * 0.5", lambda w, x: F.linear(x, w.w) * 0.5)
    add("linear(x) * 2", lambda w, x: F.linear(x, w.w, w.b) * 2)
    add("linear(x) / 8", lambda w, x: F.linear(x, w.w, w.b) / 8)
    add("linear(x) * scale", lambda w, x: F.linear(x, w.w) * w.scale)
    add("linear(x) + shift", lambda w, x: F.linear(x, w.w) + w.shift)
    add("linear(x * s)", lambda w, x: F.linear(x * w.scale, w.w, w.b))
    add("linear(x * 0.125)", lambda w, x: F.linear(x * 0.125, w.w, w.b))
    add("linear(x * s + t)", lambda w, x: F.linear(x * w.scale + w.shift, w.w, w.b))
    add("(x @ W) * 0.125", lambda w, x: (x @ w.w) * 0.125)
    add("x @ W + b", lambda w, x: x @ w.w + w.b)
    add("relu(linear(x))", lambda w, x: F.relu(F.linear(x, w.w, w.b)))
    add("relu(linear(x)) * 0.5", lambda w, x: F.relu(F.linear(x, w.w, w.b)) * 0.5)
    add("linear(linear(x))", lambda w, x: F.linear(F.linear(x, w.w), w.w))
    add("x @ y.T * 0.125", lambda w, x, y: (x @ y.T) * 0.125, "pairs")
    add(
        "bmm(x * 0.125, y)",
        lambda w, x, y: torch.bmm(x.unsqueeze(1) * 0.125, y.unsqueeze(2)),
        "pairs",
    )
    add("einsum(x, y)", lambda w, x, y: torch.einsum("nc,nc->n", x, y), "pairs")
    add(
        "attention(x, y)",
        lambda w, x, y: F.scaled_dot_product_attention(*(v.view(-1, 1, 2, 4) for v in (x, y, y))),
        "pairs",
    )
    add(
        "attention by hand",
        lambda w, x, y: ((x.view(-1, 2, 4) @ y.view(-1, 2, 4).mT) * 0.5).softmax(-1),
        "pairs",
    )
    add(
        "masked scores by hand",
        lambda w, x, y: _masked_scores(w, x, y).softmax(-1),
        "pairs",
    )
    add(
        "masked attention by hand",
        lambda w, x, y: _masked_scores(w, x, y).softmax(-1) @ y.view(-1, 2, 4),
        "pairs",
    )
    add("conv2d(image)", lambda w, x: F.conv2d(x, w.k, w.kb), "images")
    add("conv2d(image, padded)", lambda w, x: F.conv2d(x, w.k, w.kb, padding=1), "images")
    add("conv2d(image) * 0.5", lambda w, x: F.conv2d(x, w.k, w.kb) * 0.5, "images")
    add("conv2d(image * 0.5)", lambda w, x: F.conv2d(x * 0.5, w.k, w.kb), "images")
    add("relu(conv2d(image))", lambda w, x: F.relu(F.conv2d(x, w.k, w.kb)), "images")
    add("depthwise(image)", lambda w, x: F.conv2d(x, w.depth, groups=2, padding=1), "images")
    add("transposed(image)", lambda w, x: F.conv_transpose2d(x, w.t, stride=2), "images")
    add("conv1d(rows)", lambda w, x: F.conv1d(x.view(-1, 2, 4), w.k[:, :, 0], w.kb), "rows")
    add(
        "batch_norm(conv2d(image))",
        lambda w, x: F.batch_norm(F.conv2d(x, w.k, w.kb), w.mean, w.var),
        "images",
    )
    add("batch_norm(image)", lambda w, x: F.batch_norm(x, w.mean[:2], w.var[:2]), "images")
    for name, first in (("conv2d(image) * s + t", F.conv2d), ("image * s + t", None)):
        add(name, partial(_affine_of_channels, first), "images")
    add("max_pool2d(image)", lambda w, x: F.max_pool2d(x, 2), "images")
    add("max_pool2d(image, padded)", lambda w, x: F.max_pool2d(x, 3, 2, 1), "images")
    add("avg_pool2d(image)", lambda w, x: F.avg_pool2d(x, 2), "images")
    add("avg_pool2d(image, padded)", lambda w, x: F.avg_pool2d(x, 3, 2, 1), "images")
    add(
        "avg_pool2d(image, inside)",
        lambda w, x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        "images",
    )
    add("adaptive_avg_pool2d(1)", lambda w, x: F.adaptive_avg_pool2d(x, 1), "images")
    add("adaptive_avg_pool2d(2)", lambda w, x: F.adaptive_avg_pool2d(x, 2), "images")
    add("adaptive_max_pool2d(2)", lambda w, x: F.adaptive_max_pool2d(x, 2), "images")
    add(
        "interpolate(nearest)",
        lambda w, x: F.interpolate(x, scale_factor=2.0, mode="nearest"),
        "images",
    )
    add(
        "interpolate(bilinear)",
        lambda w, x: F.interpolate(x, size=(9, 11), mode="bilinear"),
        "images",
    )
    add(
        "interpolate(bilinear, corners)",
        lambda w, x: F.interpolate(x, size=(12, 12), mode="bilinear", align_corners=True),
        "images",
    )
    add("pad(image, reflect)", lambda w, x: F.pad(x, (1, 1, 1, 1), mode="reflect"), "images")
    add("pad(image, 0)", lambda w, x: F.pad(x, (1, 1, 1, 1)), "images")
    add("pixel_shuffle", lambda w, x: F.pixel_unshuffle(x, 2), "images")
    add("cat([x, y])", lambda w, x, y: torch.cat([x, y], 1), "pairs")
    add("flip(x)", lambda w, x: x.flip(1))
    add("x.T.contiguous", lambda w, x: x.T.contiguous())
    add("roll(x)", lambda w, x: x.roll(1, 1))
    add("to half and back", lambda w, x: x.half().to(x.dtype))
    add("to bfloat16 and back", lambda w, x: x.bfloat16().to(x.dtype))
    add("to double and back", lambda w, x: x.double().to(x.dtype))
    add("(x > 0) as floats", lambda w, x: (x > 0).to(x.dtype))
    add("masked mean", lambda w, x: (x * w.mask).sum(-1) / w.mask.sum(-1))
    add("tril(x)", lambda w, x: x.tril())
    add("sum of squares", lambda w, x: (x * x).sum(-1))
    add(
        "standardize",
        lambda w, x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5),
    )
    add("x / (norm + eps)", lambda w, x: x / (x.norm(dim=-1, keepdim=True) + 1e-6))
    add("swiglu", lambda w, x: F.silu(F.linear(x, w.w)) * F.linear(x, w.w, w.b))
    return found


FORMS = tuple(_forms())


def _of_integers() -> list[Form]:
    found: list[Form] = []

    def add(name: str, function: Function, kind: str = "rows") -> None:
        found.append(Form(name, function, kind))

    for by in (3, -3):
        add(f"x // {by}", lambda w, x, by=by: x // by)
        add(f"x % {by}, signed", lambda w, x, by=by: x % by)
        add(f"fmod(x, {by}), signed", lambda w, x, by=by: torch.fmod(x, by))
        add(f"div(x, {by}, trunc)", lambda w, x, by=by: torch.div(x, by, rounding_mode="trunc"))
    add("x // (|y| or 1)", lambda w, x, y: x // (y.abs() | 1), "pairs")
    add("x % (|y| or 1)", lambda w, x, y: x % (y.abs() | 1), "pairs")
    for name in ("and", "or", "xor"):
        add(f"{name}(x, y)", partial(_binary, getattr(torch, f"bitwise_{name}")), "pairs")
    add("not x", lambda w, x: ~x)
    add("x << 1", lambda w, x: x << 1)
    add("x >> 1", lambda w, x: x >> 1)
    add("x << (y & 3)", lambda w, x, y: x << (y & 3), "pairs")
    add("x >> (y & 3)", lambda w, x, y: x >> (y & 3), "pairs")
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float32):
        add(f"x.to({str(dtype)[6:]})", lambda w, x, to=dtype: x.to(to))
    add("x.bool()", lambda w, x: x.bool())
    add("x.float() * 0.5", lambda w, x: x.float() * 0.5)
    add("sum(x, -1) in int32", lambda w, x: x.sum(-1, dtype=torch.int32))
    add("sort(x)", lambda w, x: x.sort(-1).values)
    add("topk(x, 3)", lambda w, x: x.topk(3, -1).values)
    add("x * 3 + 1", lambda w, x: x * 3 + 1)
    return found


INTEGER_FORMS = (*FORMS, *_of_integers())
"""What is run on integers: the forms that eager has for them, and those of integers alone."""

DECLARED = {
    "attention(x, y)": "a row of scores that overflow to −∞ has lost the guard",
    "adaptive_max_pool2d(2)": "XNNPACK's pooling may lose a NaN, as in max_pool2d",
    "cumsum(x, -1)": "sums of neighbors may overflow before an infinity in front of them is added",
}
"""Forms for which the default is worse than stock, with the reason (`docs/semantics.md`)."""

DECLARED_OF_SINGLES = dict.fromkeys(
    ("group_norm(image)", "instance_norm(image)"),
    "XNNPACK's inverse root of a variance that overflows is NaN; the kernel that the stock flow "
    "calls has zeros for some of them, and NaN for others",
)
"""Those of float32 alone."""

DECLARED_OF_HALVES = dict.fromkeys(
    ("x @ y.T * 0.125", "conv1d(rows)"),
    "XNNPACK's layers of halves limit a NaN to −∞ where the CPU has no half arithmetic",
)
"""Those of float16 alone: the stock flow leaves products and lines outside, and layers not."""

DECLARED_OF_BFLOATS = dict.fromkeys(
    ("x @ W + b", "x @ y.T * 0.125", "bmm(x * 0.125, y)", "conv2d(image, padded)"),
    "a sum in f32 overflows in another order than in the kernel that the stock flow calls",
)
"""Those of bfloat16 alone: the stock flow leaves its layers to kernels."""


DECLARED_OF = {
    torch.float32: DECLARED_OF_SINGLES,
    torch.float16: DECLARED_OF_HALVES,
    torch.bfloat16: DECLARED_OF_BFLOATS,
}

_BY_ORDER = "NEON's kernel adds up in another order: only sums that overflow on their way differ"
_OF_HALVES = "products of halves limit a NaN on cores without half arithmetic"
DECLARED_ON_ARM = {
    torch.float32: dict.fromkeys(("x @ y.T * 0.125", "conv1d(rows)"), _BY_ORDER),
    torch.float16: {
        **dict.fromkeys(("x @ y.T * 0.125", "conv1d(rows)"), _BY_ORDER),
        **dict.fromkeys(("masked scores by hand", "masked attention by hand"), _OF_HALVES),
    },
    torch.bfloat16: dict.fromkeys(
        (
            "x @ y.T * 0.125",
            "conv1d(rows)",
            "conv2d(image)",
            "relu(conv2d(image))",
            "batch_norm(conv2d(image))",
            "conv2d(image) * s + t",
        ),
        _BY_ORDER,
    ),
}
"""Those of an Arm core alone."""

DEGREES = {
    **dict.fromkeys(
        ("layer_norm(x)", "layer_norm(x, affine)", "linear(layer_norm(x))", "group_norm(image)"), 0
    ),
    **dict.fromkeys(
        (
            "x * 2 * 0.25",
            "linear(x) * 0.5",
            "linear(x) / 8",
            "linear(x * s)",
            "linear(x * s + t)",
            "(x @ W) * 0.125",
            "conv2d(image)",
            "conv2d(image, padded)",
            "conv2d(image) * 0.5",
            "conv2d(image * 0.5)",
            "relu(conv2d(image))",
            "batch_norm(conv2d(image))",
            "conv2d(image) * s + t",
        ),
        1,
    ),
}
"""Forms whose results grow with large inputs as this power of them: what they are without overflow
on the way is computed in the same dtype, of smaller inputs.
"""


def declared(name: str, dtype: torch.dtype, *, on_arm: bool = False) -> bool:
    """Whether a form may be worse than stock, for a reason that is written down."""
    if on_arm and name in DECLARED_ON_ARM.get(dtype, {}):
        return True
    return name in DECLARED or name in DECLARED_OF.get(dtype, {})
