"""Decompose, before PT2E annotates, ops that have no int8 kernel but whose parts have one.

The decompositions are functions of tensors (`QUANTIZABLE`), whose calls are written into the graph.
Users that select one step of a recurrent layer read that step. Input and output are `torch.fx`
graphs, in which torchao has folded batch norms into the layers before them.
"""

from __future__ import annotations

import operator
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from stepwell.ir.compat.torch.torch_private import TorchDispatchMode, pytree
from stepwell.translate.decompositions.traced.quantizable import QUANTIZABLE
from stepwell.translate.decompositions.traced.recurrences import QUANTIZABLE_RECURRENCES

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
        elif recurrences and node.target in QUANTIZABLE_RECURRENCES:
            _unroll(model, node)
    model.graph.eliminate_dead_code()
    model.recompile()
    return model


class _Tracer(TorchDispatchMode):
    """Writes the calls of a function of tensors before a node that it replaces.

    A tensor of the graph is a fake tensor. Parameters are constants; buffers are not, as the graph
    may write them. Calls of constants alone are computed. In inference mode PyTorch decomposes no
    composite operators.
    """

    def __init__(self, model: GraphModule, node: Node, omits_zeros: bool = False) -> None:
        super().__init__()
        self.model, self.node, self.omits_zeros = model, node, omits_zeros
        self.nodes: dict[int, tuple[Node, torch.Tensor]] = {}
        self.mode: Any = None

    def replace(self, function: Any) -> Node | None:
        """Replace the node by the results of a function, unless it returns `NotImplemented`.

        Return the first result.
        """
        args, kwargs = map_arg((self.node.args, self.node.kwargs), self.tensor)
        with torch.inference_mode(), self:
            found = function(*args, **kwargs)
        if found is NotImplemented:
            return None
        if isinstance(found, torch.Tensor):
            self.node.replace_all_uses_with(self.node_of(found))
            self.model.graph.erase_node(self.node)
            return self.node_of(found)
        if any(found[user.args[1]] is None and user.users for user in self.node.users):
            return None
        for user in list(self.node.users):
            assert user.target is operator.getitem
            user.replace_all_uses_with(self.node_of(found[user.args[1]]))
            self.model.graph.erase_node(user)
        self.model.graph.erase_node(self.node)
        return self.node_of(found[0])

    def tensor(self, node: Node) -> Any:
        """Return the constant of a node, or a fake tensor for its value; None for omitted zeros."""
        if self.omits_zeros and node.target in ZEROS:
            return None
        value = constant_of(self.model, node)
        value = value if isinstance(value, torch.nn.Parameter) else node.meta["val"]
        if isinstance(value, torch.Tensor):
            value = value.detach()  # Two nodes may hold one tensor.
            self.nodes[id(value)] = node, value
            self.mode = getattr(value, "fake_mode", self.mode)
        return value

    def node_of(self, value: Any) -> Any:
        """Return the node of a tensor, which is a buffer for a constant."""
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self.nodes:
            self.nodes[id(value)] = self.buffer(value.detach()), value
        return self.nodes[id(value)][0]

    def buffer(self, tensor: torch.Tensor) -> Node:
        """Add a buffer of the module; equal ones share it."""
        free = "stepwell_" + "x".join(map(str, tensor.shape))
        while hasattr(self.model, free):
            if torch.equal(cast(torch.Tensor, getattr(self.model, free)), tensor):
                break
            free += "_"
        else:
            self.model.register_buffer(free, tensor)
        with self.model.graph.inserting_before(self.node):
            made = self.model.graph.get_attr(free)
        made.meta["val"] = self.mode.from_tensor(tensor, static_shapes=True)
        return made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Write a call into the graph, or compute it if its tensors are constants."""
        with torch.inference_mode(False), torch.no_grad():
            if not any(hasattr(leaf, "fake_mode") for leaf in pytree.tree_leaves((args, kwargs))):
                return func(*args, **(kwargs or {}))
            args, kwargs = pytree.tree_map(self.node_of, (args, kwargs or {}))
            with self.model.graph.inserting_before(self.node):
                made = self.model.graph.call_function(func, args, kwargs)
            made.meta = {k: v for k, v in self.node.meta.items() if k == "nn_module_stack"}
            values, named = map_arg((args, kwargs), lambda node: node.meta["val"])
            made.meta["val"] = func(*values, **named)
            return self.tensor(made)


def constant_of(model: GraphModule, node: Node) -> torch.Tensor | None:
    """Return the parameter or buffer that a get_attr names."""
    if node.op != "get_attr":
        return None
    found: Any = model
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return cast(torch.Tensor, found)


def _unroll(model: GraphModule, node: Node) -> None:
    """Replace a recurrent layer with constant weights by its steps."""
    params, time = cast("list[Node]", node.args[2]), int(bool(node.args[8]))
    if any(constant_of(model, value) is None for value in params):
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
