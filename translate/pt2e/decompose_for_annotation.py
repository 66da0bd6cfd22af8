"""Decomposition, before PT2E annotates, of ops whose parts have int8 kernels but the whole has not.

The decompositions are functions of tensors (`QUANTIZABLE`), whose calls are written into the graph.
Users of a single step of a recurrent layer read that step. Batch norm after a linear layer is
folded into it. Input and output are `torch.fx` graphs.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from stepwell.ir.compat.torch.torch_private import TorchDispatchMode, pytree
from stepwell.translate.decompositions.traced.quantizable import QUANTIZABLE
from stepwell.translate.decompositions.traced.recurrences import QUANTIZABLE_RECURRENCES
from stepwell.translate.pt2e.graph_writing import GraphWriter, tensor_of

aten = torch.ops.aten
ZEROS = frozenset((aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default))


def decompose(model: GraphModule, recurrences: bool = True) -> GraphModule:
    """Return an equivalent module of smaller ops; the module is changed in place.

    Args:
        model: an exported graph.
        recurrences: whether recurrent layers are decomposed too, step by step.
    """
    for node in list(model.graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in QUANTIZABLE:
            _Tracer(model, node).replace(QUANTIZABLE[node.target])
        elif node.target is aten.batch_norm.default:
            _fold_batch_norm(model, node)
        elif recurrences and node.target in QUANTIZABLE_RECURRENCES:
            _unroll(model, node)
    model.graph.eliminate_dead_code()
    model.recompile()
    return model


class _Tracer(TorchDispatchMode):
    """Writes the calls of a function of tensors before a node that it replaces.

    A tensor of the graph is a fake tensor; others are constants, and calls of constants alone are
    computed. In inference mode PyTorch does not decompose composite operators before.
    """

    def __init__(self, model: GraphModule, node: Node, omits_zeros: bool = False) -> None:
        super().__init__()
        self.model, self.node, self.write = model, node, GraphWriter(model, node)
        self.omits_zeros = omits_zeros
        self.nodes: dict[int, tuple[Node, torch.Tensor]] = {}

    def replace(self, function: Any) -> Node | None:
        """Replace the node by the results of a function, unless it returns `NotImplemented`.

        Return the first of them.
        """
        args = map_arg((self.node.args, self.node.kwargs), self.tensor)
        with torch.inference_mode(), self:
            found = function(*args[0], **args[1])
        if found is NotImplemented:
            return None
        if isinstance(found, torch.Tensor):
            nodes = [self.node_of(found)]
            self.write.replace(nodes[0])
        else:
            if any(found[user.args[1]] is None and user.users for user in self.node.users):
                return None
            nodes = [self.node_of(value) for value in found]
            self.write.replace_results(nodes)
        return nodes[0]

    def tensor(self, node: Node) -> Any:
        """Return the constant of a node, or a fake tensor for its value; None for omitted zeros."""
        if self.omits_zeros and node.target in ZEROS:
            return None
        constant = tensor_of(self.model, node)
        value = node.meta["val"] if constant is None else constant
        if isinstance(value, torch.Tensor):
            value = value.detach()  # Two nodes may hold one tensor.
            self.nodes[id(value)] = node, value
        return value

    def node_of(self, value: Any) -> Any:
        """Return the node of a tensor, which is a buffer for a constant."""
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self.nodes:
            name = "x".join(map(str, value.shape))
            node = self.write.constant(f"stepwell_{name}", value.detach())
            self.nodes[id(value)] = node, value
        return self.nodes[id(value)][0]

    def is_constant(self, value: Any) -> bool:
        """Whether an argument is known now."""
        known = self.nodes.get(id(value))
        return known is None or known[0].op == "get_attr"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Write a call, or compute it."""
        with torch.inference_mode(False), torch.no_grad():
            if all(map(self.is_constant, pytree.tree_leaves((args, kwargs)))):
                return func(*args, **(kwargs or {}))
            args, kwargs = pytree.tree_map(self.node_of, (args, kwargs or {}))
            return self.tensor(self.write.call(func, *args, **kwargs))


def _unroll(model: GraphModule, node: Node) -> None:
    """Replace a recurrent layer with constant weights by its steps."""
    params, time = cast("list[Node]", node.args[2]), int(bool(node.args[8]))
    if any(tensor_of(model, value) is None for value in params):
        return
    steps = _Tracer(model, node, omits_zeros=True).replace(QUANTIZABLE_RECURRENCES[node.target])
    if steps is None or steps.target is not aten.cat.default or (*steps.args, 0)[1] != time:
        return
    nodes = [cast(Node, row.args[0]) for row in cast("list[Node]", steps.args[0])]
    pending = [steps]
    while pending:
        value = pending.pop()
        for user in list(value.users):
            if (
                user.target is aten.slice.Tensor
                and user.meta["val"].shape == value.meta["val"].shape
            ):
                pending.append(user)
            elif user.target is aten.select.int and user.args[1] in (time, time - 3):
                user.replace_all_uses_with(nodes[cast(int, user.args[2])])


def _fold_batch_norm(model: GraphModule, node: Node) -> None:
    """Fold a batch norm into the weight and bias of the linear layer that only it uses."""
    linear: Any = node.args[0]
    if linear.target is not aten.linear.default or len(linear.users) != 1:
        return
    if len(linear.meta["val"].shape) != 2 or node.args[5]:
        return
    attributes = [tensor_of(model, value) for value in node.args[1:5]]
    weight = tensor_of(model, linear.args[1])
    bias = tensor_of(model, (*linear.args, None)[2])
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
