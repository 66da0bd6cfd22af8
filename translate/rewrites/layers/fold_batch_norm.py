"""Fusion: fold a batch norm into the preceding layer, or into a product and a sum.

In evaluation mode batch norm is x·s + t with s = γ/√(σ² + ε) and t = β − μ·s for each channel. A
convolution or linear layer before it absorbs both into its weight and bias, which are computed in
f64 once. Without such a layer a product and a sum with constants remain.

rule fold-batch-norm
    `batch_norm(convolution(x, w, b))` to `convolution(x, w·s, b·s + t)`.
Before:
    %c = $layer of LAYERS(%x, %w, …)
    %y = aten.batch_norm.default(%c, …)
After:
    %s = scaled(%w, $constants, %c)
    %t = shifted($constants, %c)
    %y = $layer(%x, …, weight=%s, bias=%t)
with $constants = constants_of(%y)
where takes_in_constants(%c)
loses REORDERED
bound of roundings: "channels are scaled before the sum, not behind it"
for %w = weight : tensor<4 x 3 x f32>
for %g = weight : tensor<4 x f32>
for %b = weight : tensor<4 x f32>
for %m = weight : tensor<4 x f32>
for %v = weight : tensor<4 x f32>
for $layer = "aten.linear.default", %x = "tensor<2x3xf32>", %v = "#positive"
for %weight = %g, %bias = %b, %running_mean = %m, %running_var = %v
for $training = false, $momentum = 0.1, $eps = 1e-5, $cudnn_enabled = false
not for %x = "tensor<2x4x3xf32>"

rule batch-norm-to-affine
    `batch_norm(x)` to `x·s + t`, where no layer takes both in.
Before:
    %y = aten.batch_norm.default(%x, …) : (…) -> $T
After:
    %s = scale_of($constants, %y)
    %t = shift_of($constants, %y)
    %p = aten.mul.Tensor(%x, %s) : … -> $T
    %y = aten.add.Tensor(%p, %t)
with $constants = constants_of(%y)
where not takes_in_constants(%x) for cost
loses REORDERED
bound of roundings: "channels are scaled before the sum, not behind it"
for %m = weight : tensor<4 x f32>
for %v = weight : tensor<4 x f32>
for %x = "tensor<2x4xf32>", $T = "tensor<2x4xf32>", %v = "#positive"
for %running_mean = %m, %running_var = %v, $weight = none, $bias = none
for $training = false, $momentum = 0.1, $eps = 1e-5, $cudnn_enabled = false
not for %u = weight : tensor<4 x 5 x f32>; %x = aten.linear.default(%i, %u); %i = "tensor<2x5xf32>"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.declared import numerics
from stepwell.ir.platform.weight_rows import blocks_of_rows
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.constants.recipes import derive
from stepwell.translate.rules import read_rules

STATISTICS = ("running_mean", "running_var", "weight", "bias")


@recipe("batch-norm-scale")
def batch_norm_scale(
    *statistics: torch.Tensor, given: Sequence[str], epsilon: float, shape: Sequence[int]
) -> torch.Tensor:
    """Compute γ/√(σ² + ε) of every channel, in `shape`."""
    held = dict(zip(given, statistics, strict=True))
    return _scale(held, epsilon).to(statistics[0].dtype).reshape(list(shape))


@recipe("batch-norm-shift")
def batch_norm_shift(
    *statistics: torch.Tensor, given: Sequence[str], epsilon: float, shape: Sequence[int]
) -> torch.Tensor:
    """Compute β − μ·s + c·s of every channel, in `shape`; c is the bias of the layer before."""
    held = {n: t.double() for n, t in zip(given, statistics, strict=True)}
    shift = held.get("layer_bias", 0.0) - held["running_mean"]
    shift = shift * _scale(held, epsilon) + held.get("bias", 0.0)
    return shift.to(statistics[0].dtype).reshape(list(shape))


@recipe("scale-output-channels", lambda held: None if held["transposed_groups"] else "of all")
def scale_output_channels(
    kernel: torch.Tensor,
    *statistics: torch.Tensor,
    given: Sequence[str],
    epsilon: float,
    transposed_groups: int,
) -> torch.Tensor:
    """Multiply every output channel of a kernel by its scale.

    Args:
        kernel: [out, in / groups, …], or [in, out / groups, …] if transposed; the strides are kept.
        transposed_groups: the groups of a transposed convolution, 0 for any other layer.
    """
    scale = _scale(dict(zip(given, statistics, strict=True)), epsilon)
    if transposed_groups:
        grouped = kernel.double().unflatten(0, (transposed_groups, -1))
        spread = scale.reshape(transposed_groups, 1, -1, *(1,) * (kernel.dim() - 2))
        return (grouped * spread).flatten(0, 1).to(kernel.dtype)
    spread = scale.reshape(-1, *(1,) * (kernel.dim() - 1))
    scaled = kernel.new_empty(kernel.shape)
    for rows in blocks_of_rows(kernel):
        scaled[rows] = kernel[rows].double() * spread[rows]
    return scaled


def _scale(tensors: dict[str, torch.Tensor], epsilon: float) -> torch.Tensor:
    scale = (tensors["running_var"].double() + epsilon).rsqrt()
    return scale * tensors["weight"].double() if "weight" in tensors else scale


LAYERS = (aten.ConvolutionDefault, aten.LinearDefault)


@dataclass(frozen=True)
class Constants:
    """The keys of a batch norm's weights, by name, and its epsilon."""

    keys: Mapping[str, str]
    epsilon: float

    def parameters(self, **more: str) -> dict[str, Any]:
        """Return the arguments of the recipes."""
        return {"given": [*self.keys, *more], "epsilon": self.epsilon}


def constants_of(value: SSAValue) -> Constants | Refusal:
    """Refuse unless in evaluation mode with weights as statistics and affine parameters."""
    op = cast(SchemaOp, value.owner)
    if op.arg("training"):
        return Refusal(
            "the batch norm was exported in training mode and normalizes by the batch; call model.eval()"
        )
    values = {name: op.arg(name) for name in STATISTICS if op.arg(name) is not None}
    keys = {name: weight_key(value) for name, value in values.items()}
    known = {name: key for name, key in keys.items() if key is not None}
    if len(known) != len(keys):
        return Refusal("the statistics are computed or updated by the program")
    if any(len(dims(value.type)) != 1 for value in values.values()):
        return Refusal("a parameter has several axes")
    return Constants(known, op.arg("eps"))


def takes_in_constants(value: SSAValue) -> bool:
    """Whether the value is the result of a layer whose weights can absorb a scale and a shift."""
    return layer_before(value) is not None


def scaled(rw: Rewriter, weight: SSAValue, constants: Constants, value: SSAValue) -> SSAValue:
    """Return the weight of the layer whose result is `value`, with every output channel scaled."""
    layer, key = cast(SchemaOp, value.owner), weight_key(weight)
    assert key is not None
    transposed = isinstance(layer, aten.ConvolutionDefault) and layer.arg("transposed")
    groups = layer.arg("groups") if transposed else 0
    keys = [key, *constants.keys.values()]
    name = "scale-output-channels"
    return derive(rw, name, keys, **constants.parameters(), transposed_groups=groups)


def shifted(rw: Rewriter, constants: Constants, value: SSAValue) -> SSAValue:
    """Return the bias of the layer that produces a value, scaled and shifted."""
    bias = cast(SchemaOp, value.owner).arg("bias")
    more = {} if bias is None else {"layer_bias": cast(str, weight_key(bias))}
    keys = [*constants.keys.values(), *more.values()]
    return derive(rw, "batch-norm-shift", keys, **constants.parameters(**more), shape=[-1])


def scale_of(rw: Rewriter, constants: Constants, like: SSAValue) -> SSAValue:
    """Return the factor of every channel, as a weight."""
    return _of_channels(rw, "batch-norm-scale", constants, like)


def shift_of(rw: Rewriter, constants: Constants, like: SSAValue) -> SSAValue:
    """Return the addend of every channel, as a weight."""
    return _of_channels(rw, "batch-norm-shift", constants, like)


def _of_channels(rw: Rewriter, name: str, constants: Constants, like: SSAValue) -> SSAValue:
    shape = [-1, *[1] * (len(dims(like.type)) - 2)]
    keys = list(constants.keys.values())
    return derive(rw, name, keys, **constants.parameters(), shape=shape)


def layer_before(value: SSAValue) -> SchemaOp | None:
    """Return the convolution or linear layer over weights that computes a value for one user."""
    layer = value.owner
    if not isinstance(layer, aten.ConvolutionDefault | aten.LinearDefault):
        return None
    if isinstance(layer, aten.LinearDefault) and len(dims(value.type)) != 2:
        return None
    if not value.has_one_use() or weight_key(layer.arg("weight")) is None:
        return None
    bias = layer.arg("bias")
    return layer if bias is None or weight_key(bias) is not None else None


RULES = read_rules(__doc__, vars(numerics) | globals())
