"""Decomposition, before PT2E annotates, of ops whose parts have int8 kernels but the whole has not.

Layer norm becomes two products with ones (mean and variance, each already broadcast over its row),
a subtraction, two products and a table for 1/√. Group norms and standard deviations are decomposed
likewise with means. A PReLU becomes a ReLU and a product, a gate its halves and a sigmoid. Batch
norm after a linear layer is folded into it. Fused attention becomes its two matrix products and a
softmax; the logarithm of a softmax becomes exponentials, their sum and tables; a recurrent layer
becomes its steps. Input and output are `torch.fx` graphs.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from stepwell.translate.pt2e.graph_writing import GraphWriter, tensor_of
from stepwell.translate.pt2e.recurrences_for_annotation import unrolled
from stepwell.translate.pt2e.resizes_for_annotation import RESIZES

aten = torch.ops.aten


def decompose(model: GraphModule, recurrences: bool = True) -> GraphModule:
    """Return an equivalent module of smaller ops; the module is changed in place.

    Args:
        model: an exported graph.
        recurrences: whether recurrent layers are decomposed too, step by step.
    """
    for node in list(model.graph.nodes):
        if node.op != "call_function":
            continue
        if node.target is aten.layer_norm.default:
            _layer_norm(model, node)
        elif node.target is aten.scaled_dot_product_attention.default:
            _attention(model, node)
        elif node.target is aten.batch_norm.default:
            _fold_batch_norm(model, node)
        elif node.target in PARTS:
            PARTS[node.target](model, node)
        elif recurrences:
            unrolled(model, node)
    model.graph.eliminate_dead_code()
    model.recompile()
    return model


def _argument(node: Node, index: int, name: str, default: Any) -> Any:
    if len(node.args) > index:
        return node.args[index]
    return node.kwargs.get(name, default)


def _layer_norm(model: GraphModule, node: Node) -> None:
    shape = cast("list[int]", node.args[1])
    if len(shape) != 1:
        return
    weight, bias = _argument(node, 2, "weight", None), _argument(node, 3, "bias", None)
    eps = cast(float, _argument(node, 4, "eps", 1e-5))
    write = GraphWriter(model, node)
    ones = torch.full((shape[0], shape[0]), 1.0 / shape[0])
    spread = write.constant(f"stepwell_mean_{shape[0]}", ones)
    x = node.args[0]
    centered = write.call(aten.sub.Tensor, x, write.call(aten.linear.default, x, spread))
    squares = write.call(aten.mul.Tensor, centered, centered)
    variance = write.call(aten.linear.default, squares, spread)
    inverse = write.call(aten.rsqrt.default, write.call(aten.add.Tensor, variance, eps))
    value = write.call(aten.mul.Tensor, centered, inverse)
    if weight is not None:
        value = write.call(aten.mul.Tensor, value, weight)
    if bias is not None:
        value = write.call(aten.add.Tensor, value, bias)
    write.replace(value)


def _attention(model: GraphModule, node: Node) -> None:
    query, key, value = cast("tuple[Node, ...]", node.args[:3])
    mask = _argument(node, 3, "attn_mask", None)
    if mask is not None or _argument(node, 5, "is_causal", False):
        return
    scale = _argument(node, 6, "scale", None)
    width = query.meta["val"].shape[-1]
    write = GraphWriter(model, node)
    turned = write.call(aten.transpose.int, key, -2, -1)
    scores = write.call(aten.matmul.default, query, turned)
    scaled = write.call(aten.mul.Tensor, scores, scale or 1.0 / math.sqrt(width))
    weights = write.call(aten.softmax.int, scaled, -1)
    write.replace(write.call(aten.matmul.default, weights, value))


def _fold_batch_norm(model: GraphModule, node: Node) -> None:
    """Fold a batch norm into the weight and bias of the linear layer that only it uses."""
    linear = cast(Node, node.args[0])
    if linear.target is not aten.linear.default or len(linear.users) != 1:
        return
    if len(linear.meta["val"].shape) != 2 or _argument(node, 5, "training", False):
        return
    attributes = [tensor_of(model, value) for value in node.args[1:5]]
    weight = tensor_of(model, linear.args[1])
    bias = tensor_of(model, _argument(linear, 2, "bias", None))
    gamma, beta, mean, variance = attributes
    if weight is None or mean is None or variance is None:
        return
    eps = cast(float, node.args[7])
    factor = torch.rsqrt(variance + eps) * (1.0 if gamma is None else gamma)
    shift = (0.0 if bias is None else bias) - mean
    write = GraphWriter(model, node)
    name = f"stepwell_{linear.name}"
    folded = write.call(
        aten.linear.default,
        linear.args[0],
        write.constant(f"{name}_weight", (weight * factor[:, None]).detach()),
        write.constant(f"{name}_bias", (shift * factor + (0.0 if beta is None else beta)).detach()),
    )
    write.replace(folded)


# -- norms over several axes, and slopes per channel ---------------------------------------------


def _centered(write: GraphWriter, x: Any, axes: list[int], keeps: bool = True) -> tuple[Node, Node]:
    """Return the difference to the mean along axes, and the mean of its squares."""
    centered = write.call(aten.sub.Tensor, x, write.call(aten.mean.dim, x, axes, True))
    squares = write.call(aten.mul.Tensor, centered, centered)
    return centered, write.call(aten.mean.dim, squares, axes, keeps)


def _by_channel(
    model: GraphModule, write: GraphWriter, value: Any, rank: int, name: str
) -> Node | None:
    """Return a per-channel parameter in the shape for images; None if it is none."""
    tensor = tensor_of(model, value)
    if tensor is None:
        return None
    return write.constant(f"stepwell_{name}", tensor.detach().reshape(1, -1, *([1] * (rank - 2))))


def _norm_of_groups(model: GraphModule, node: Node) -> None:
    x = cast(Node, node.args[0])
    shape = list(x.meta["val"].shape)
    is_group = node.target is aten.group_norm.default
    if not all(isinstance(size, int) for size in shape) or len(shape) < 3:
        return
    if not is_group and (node.args[3] is not None or not node.args[5]):
        return  # An instance norm with stored statistics.
    groups = cast(int, node.args[1]) if is_group else shape[1]
    names = (2, 3) if is_group else (1, 2)
    weight, bias = (_argument(node, at, name, None) for at, name in
                    zip(names, ("weight", "bias"), strict=True))  # fmt: skip
    eps = cast(float, _argument(node, 4 if is_group else 7, "eps", 1e-5))
    write = GraphWriter(model, node)
    rows = write.call(aten.reshape.default, x, [shape[0], groups, math.prod(shape[1:]) // groups])
    centered, variance = _centered(write, rows, [-1])
    inverse = write.call(aten.rsqrt.default, write.call(aten.add.Tensor, variance, eps))
    scaled = write.call(aten.mul.Tensor, centered, inverse)
    value = write.call(aten.reshape.default, scaled, shape)
    for parameter, operator, kind in (
        (weight, aten.mul.Tensor, "weight"), (bias, aten.add.Tensor, "bias")
    ):  # fmt: skip
        channel = _by_channel(model, write, parameter, len(shape), f"{node.name}_{kind}")
        if channel is not None:
            value = write.call(operator, value, channel)
    write.replace(value)


def _standard_deviation(model: GraphModule, node: Node) -> None:
    x = cast(Node, node.args[0])
    shape, axes = x.meta["val"].shape, _argument(node, 1, "dim", None)
    if not all(isinstance(size, int) for size in shape) or not axes:
        return
    if node.target in (aten.std.correction, aten.var.correction):
        given = cast("float | None", node.kwargs.get("correction", 1))
        less, keeps = 1 if given is None else given, bool(node.kwargs.get("keepdim", False))
    else:
        less = 1 if _argument(node, 2, "unbiased", True) else 0
        keeps = bool(_argument(node, 3, "keepdim", False))
    count = math.prod(shape[axis] for axis in axes)
    if count <= less:
        return
    write = GraphWriter(model, node)
    _, variance = _centered(write, x, list(axes), keeps)
    if less:
        variance = write.call(aten.mul.Tensor, variance, count / (count - less))
    is_root = node.target in (aten.std.dim, aten.std.correction)
    write.replace(write.call(aten.sqrt.default, variance) if is_root else variance)


def _root_mean_square_norm(model: GraphModule, node: Node) -> None:
    x, axes = node.args[0], list(range(-len(cast("list[int]", node.args[1])), 0))
    eps = _argument(node, 3, "eps", None)
    write = GraphWriter(model, node)
    squares = write.call(aten.mul.Tensor, x, x)
    mean = write.call(aten.mean.dim, squares, axes, True)
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    inverse = write.call(aten.rsqrt.default, write.call(aten.add.Tensor, mean, eps))
    value = write.call(aten.mul.Tensor, x, inverse)
    weight = _argument(node, 2, "weight", None)
    write.replace(value if weight is None else write.call(aten.mul.Tensor, value, weight))


def _euclidean(model: GraphModule, node: Node) -> None:
    axes = _argument(node, 2, "dim", None)
    if _argument(node, 1, "ord", 2) != 2 or not axes or node.kwargs.get("dtype") is not None:
        return
    write = GraphWriter(model, node)
    squares = write.call(aten.mul.Tensor, node.args[0], node.args[0])
    keeps = bool(_argument(node, 3, "keepdim", False))
    total = write.call(aten.sum.dim_IntList, squares, list(axes), keeps)
    write.replace(write.call(aten.sqrt.default, total))


def _prelu(model: GraphModule, node: Node) -> None:
    x, slope = cast("tuple[Node, Node]", node.args[:2])
    write = GraphWriter(model, node)
    channel = _by_channel(model, write, slope, x.meta["val"].dim(), f"{node.name}_slope")
    if channel is None or x.meta["val"].dim() < 2:
        return
    below = write.call(aten.mul.Tensor, write.call(aten.clamp_max.default, x, 0.0), channel)
    write.replace(write.call(aten.add.Tensor, write.call(aten.relu.default, x), below))


def _gated(model: GraphModule, node: Node) -> None:
    """Replace by the product of one half of an axis and the sigmoid of the other."""
    x, axis = cast(Node, node.args[0]), cast(int, _argument(node, 1, "dim", -1))
    half = x.meta["val"].shape[axis] // 2
    write = GraphWriter(model, node)
    first = write.call(aten.slice.Tensor, x, axis, 0, half)
    gate = write.call(aten.sigmoid.default, write.call(aten.slice.Tensor, x, axis, half, 2 * half))
    write.replace(write.call(aten.mul.Tensor, first, gate))


# -- softmax, extrema ----------------------------------------------------------------------------


LONGEST_LOGARITHM = 64
"""Steps of the sum are a 255th of the row: for a sum of 1, its logarithm is off by 0.12 at most."""


def _log_softmax(model: GraphModule, node: Node) -> None:
    """Decompose it for short rows, of which int8 resolves the logarithm of the sum."""
    row = cast(Node, node.args[0]).meta["val"].shape[node.args[1]]
    if not isinstance(row, int) or row > LONGEST_LOGARITHM:
        return
    write, x, axis = GraphWriter(model, node), node.args[0], node.args[1]
    below = write.call(aten.sub.Tensor, x, write.call(aten.amax.default, x, [axis], True))
    powers = write.call(aten.exp.default, below)
    total = write.call(aten.sum.dim_IntList, powers, [axis], True)
    write.replace(write.call(aten.sub.Tensor, below, write.call(aten.log.default, total)))


def _choice_of_number(model: GraphModule, node: Node) -> None:
    first, second, number = node.args
    if not isinstance(number, int | float) or not math.isfinite(number):
        return
    write = GraphWriter(model, node)
    other = write.constant(f"stepwell_{node.name}", torch.tensor([float(number)]))
    is_fill = node.target is aten.masked_fill.Scalar
    sides = (second, other, first) if is_fill else (first, second, other)
    write.replace(write.call(aten.where.self, *sides))


def _extreme_of_axis(model: GraphModule, node: Node) -> None:
    """Split the value and the index of a maximum (minimum) into two ops, if they are used."""
    x, axis, keeps = node.args[0], node.args[1], bool(_argument(node, 2, "keepdim", False))
    is_most = node.target is aten.max.dim
    write = GraphWriter(model, node)
    value = write.call(aten.amax.default if is_most else aten.amin.default, x, [axis], keeps)
    place = write.call(aten.argmax.default if is_most else aten.argmin.default, x, axis, keeps)
    write.replace_results([value, place])


PARTS = {
    **RESIZES,
    aten.group_norm.default: _norm_of_groups,
    aten.instance_norm.default: _norm_of_groups,
    aten.std.dim: _standard_deviation,
    aten.std.correction: _standard_deviation,
    aten.var.dim: _standard_deviation,
    aten.var.correction: _standard_deviation,
    aten.rms_norm.default: _root_mean_square_norm,
    aten.linalg_vector_norm.default: _euclidean,
    aten.prelu.default: _prelu,
    aten.glu.default: _gated,
    aten.log_softmax.int: _log_softmax,
    aten.where.ScalarOther: _choice_of_number,
    aten.masked_fill.Scalar: _choice_of_number,
    aten.max.dim: _extreme_of_axis,
    aten.min.dim: _extreme_of_axis,
}
"""Operator → its decomposition, which may not apply."""
