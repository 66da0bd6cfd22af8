"""Fold a batch norm into the convolution or linear layer before it, or into a product and a sum.

In evaluation mode batch norm is x·s + t with s = γ/√(σ² + ε) and t = β − μ·s for each channel. The
layer before it takes both into its weight and bias, which are computed in f64 once; without such
a layer a product and a sum with constants remain.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<4x3x1x1xf32>
    %g = stepwell.weight <"g"> "parameter" : tensor<4xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<4xf32>
    %m = stepwell.weight <"m"> "buffer" : tensor<4xf32>
    %v = stepwell.weight <"#positive"> "buffer" : tensor<4xf32>
    %c = aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x5x5xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x5x5xf32>
    %y = aten.batch_norm.default(%c, %g, %b, %m, %v, false, 0.1, 1.0e-5, false) : (tensor<1x4x5x5xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x5x5xf32>
After:
    %0 = stepwell.weight <"w#scale-output-channels.c7a8571f8423"> "constant" : tensor<4x3x1x1xf32>
    %1 = stepwell.weight <"m#batch-norm-shift.e4d522b6830a"> "constant" : tensor<4xf32>
    %y = aten.convolution.default(%x, %0, %1, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x5x5xf32>, tensor<4x3x1x1xf32>, tensor<4xf32>) -> tensor<1x4x5x5xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.core import weight_key
from stepwell.ir.numerics import REORDERED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.ir.weights import blocks_of_rows, recipe
from stepwell.translate.rewrites.building import become, emit, emit_as
from stepwell.translate.rewrites.constants.recipes import derive

STATISTICS = ("running_mean", "running_var", "weight", "bias")


@recipe("batch-norm-scale")
def batch_norm_scale(
    *statistics: torch.Tensor, given: Sequence[str], epsilon: float, shape: Sequence[int]
) -> torch.Tensor:
    """γ/√(σ² + ε) of every channel, in `shape`."""
    held = dict(zip(given, statistics, strict=True))
    return _scale(held, epsilon).to(statistics[0].dtype).reshape(list(shape))


@recipe("batch-norm-shift")
def batch_norm_shift(
    *statistics: torch.Tensor, given: Sequence[str], epsilon: float, shape: Sequence[int]
) -> torch.Tensor:
    """β − μ·s + c·s of every channel, in `shape`; c is the bias of the layer before."""
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
    """A kernel with every output channel times its scale.

    Args:
        kernel: [out, in / groups, …], or [in, out / groups, …] if transposed; strides as they are.
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
        scaled[rows] = kernel[rows].double().mul_(spread[rows])
    return scaled


def _scale(held: dict[str, torch.Tensor], epsilon: float) -> torch.Tensor:
    scale = (held["running_var"].double() + epsilon).rsqrt()
    return scale * held["weight"].double() if "weight" in held else scale


@dataclass(frozen=True)
class Folded:
    """A batch norm over constants; `layer` is the op before it that takes it in."""

    op: SchemaOp
    given: tuple[str, ...]
    keys: tuple[str, ...]
    layer: SchemaOp | None


@dataclass(frozen=True)
class FoldBatchNorm(Rewrite[Folded]):
    """`batch_norm(convolution(x, w, b))` to `convolution(x, w·s, b·s + t)`."""

    name: ClassVar[str] = "fold-batch-norm"
    bound: ClassVar[Bound] = roundings("channels are scaled before the sum, not behind it")
    deviation: ClassVar[Deviation | None] = REORDERED
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.BatchNormDefault,)

    def match(self, op: SchemaOp, program: Program) -> Folded | Refusal | None:
        """Evaluation mode, statistics and affine parameters are weights."""
        if op.arg("training"):
            return Refusal(
                "exported in training mode: it normalises by the batch; call model.eval()"
            )
        values = {name: op.arg(name) for name in STATISTICS}
        values = {name: value for name, value in values.items() if value is not None}
        keys = {name: weight_key(value) for name, value in values.items()}
        known = {name: key for name, key in keys.items() if key is not None}
        if len(known) != len(keys):
            return Refusal("the statistics are computed or updated by the program")
        if any(len(dims(value.type)) != 1 for value in values.values()):
            return Refusal("a parameter has several axes")
        layer = layer_before(op.operands[0])
        return Folded(op, tuple(known), tuple(known.values()), layer)

    def build(self, match: Folded, rw: Rewriter) -> None:
        """Write the layer with derived weights, or a product and a sum."""
        op, result = match.op, match.op.results[0]
        held = dims(result.type)
        parameters = {"given": list(match.given), "epsilon": op.arg("eps")}
        if match.layer is None:
            shape = [-1, *[1] * (len(held) - 2)]
            scale = derive(rw, "batch-norm-scale", match.keys, **parameters, shape=shape)
            shift = derive(rw, "batch-norm-shift", match.keys, **parameters, shape=shape)
            product = aten.MulTensor.make(op.operands[0], scale, result_types=[result.type])
            become(rw, op, aten.AddTensor, emit(rw, product), shift)
            return
        layer = match.layer
        kernel, bias = weight_key(layer.arg("weight")), layer.arg("bias")
        assert kernel is not None
        transposed = isinstance(layer, aten.ConvolutionDefault) and layer.arg("transposed")
        groups = layer.arg("groups") if transposed else 0
        scaled = derive(
            rw,
            "scale-output-channels",
            [kernel, *match.keys],
            **parameters,
            transposed_groups=groups,
        )
        keys, given = list(match.keys), list(match.given)
        if bias is not None:
            bias_key = weight_key(bias)
            assert bias_key is not None
            keys, given = [*keys, bias_key], [*given, "layer_bias"]
        shift = derive(rw, "batch-norm-shift", keys, given=given, epsilon=op.arg("eps"), shape=[-1])
        arguments = {**layer.present(), "weight": scaled, "bias": shift}
        new = type(layer).from_arguments(arguments, [result.type])
        rw.replace(op, [emit_as(rw, new, result)])


def layer_before(value: SSAValue) -> SchemaOp | None:
    """The convolution or linear layer over weights that computes a value for one user only."""
    layer = value.owner
    if not isinstance(layer, aten.ConvolutionDefault | aten.LinearDefault):
        return None
    if isinstance(layer, aten.LinearDefault) and len(dims(value.type)) != 2:
        return None
    if not value.has_one_use() or weight_key(layer.arg("weight")) is None:
        return None
    bias = layer.arg("bias")
    return layer if bias is None or weight_key(bias) is not None else None
