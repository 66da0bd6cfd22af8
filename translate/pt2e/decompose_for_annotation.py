"""Takes apart, before PT2E annotates it, what has no int8 kernel as a whole but parts that have.

Layer norm becomes two products with ones (mean and variance, each already spread over its row), a
subtraction, two products and a table for 1/√; batch norm after a linear layer folds into it; fused
attention becomes its two matrix products and a softmax; a recurrent layer its steps. `torch.fx` in,
`torch.fx` out.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from stepwell.translate.pt2e.graph_writing import Writer, tensor_of
from stepwell.translate.pt2e.recurrences_for_annotation import unrolled

aten = torch.ops.aten


def decompose(model: GraphModule, recurrences: bool = True) -> GraphModule:
    """The same function in smaller ops; the module is changed in place and returned.

    Args:
        model: an exported graph.
        recurrences: whether recurrent layers are taken apart too, step by step.
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
    write = Writer(model, node)
    ones = torch.full((shape[0], shape[0]), 1.0 / shape[0])
    spread = write.constant(f"stepwell_mean_{shape[0]}", ones)
    x = node.args[0]
    centred = write.call(aten.sub.Tensor, x, write.call(aten.linear.default, x, spread))
    squares = write.call(aten.mul.Tensor, centred, centred)
    variance = write.call(aten.linear.default, squares, spread)
    inverse = write.call(aten.rsqrt.default, write.call(aten.add.Tensor, variance, eps))
    value = write.call(aten.mul.Tensor, centred, inverse)
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
    write = Writer(model, node)
    turned = write.call(aten.transpose.int, key, -2, -1)
    scores = write.call(aten.matmul.default, query, turned)
    scaled = write.call(aten.mul.Tensor, scores, scale or 1.0 / math.sqrt(width))
    weights = write.call(aten.softmax.int, scaled, -1)
    write.replace(write.call(aten.matmul.default, weights, value))


def _fold_batch_norm(model: GraphModule, node: Node) -> None:
    """A batch norm of a linear layer that only it uses changes that layer's weight and bias."""
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
    write = Writer(model, node)
    name = f"stepwell_{linear.name}"
    folded = write.call(
        aten.linear.default,
        linear.args[0],
        write.constant(f"{name}_weight", (weight * factor[:, None]).detach()),
        write.constant(f"{name}_bias", (shift * factor + (0.0 if beta is None else beta)).detach()),
    )
    write.replace(folded)
