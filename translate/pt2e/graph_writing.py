"""Writes calls into an exported graph, before the node that they will replace."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg


class GraphWriter:
    """Adds calls before a node, with their metadata."""

    def __init__(self, model: GraphModule, before: Node) -> None:
        self.model, self.before = model, before

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Add a call of an operator."""
        with self.model.graph.inserting_before(self.before):
            function = self.model.graph.call_function(target, args, kwargs)
        function.meta = {k: v for k, v in self.before.meta.items() if k in ("nn_module_stack",)}
        values, named = map_arg((args, kwargs), lambda node: node.meta.get("val"))
        function.meta["val"] = target(*values, **named)
        return function

    def constant(self, name: str, tensor: torch.Tensor) -> Node:
        """Add a buffer of the module; equal ones share it."""
        free = name
        while hasattr(self.model, free):
            if torch.equal(cast(torch.Tensor, getattr(self.model, free)), tensor):
                break
            free += "_"
        if not hasattr(self.model, free):
            self.model.register_buffer(free, tensor)
        with self.model.graph.inserting_before(self.before):
            made = self.model.graph.get_attr(free)
        value = self.before.meta["val"]
        mode = getattr(value, "fake_mode", None)
        made.meta["val"] = tensor if mode is None else mode.from_tensor(tensor, static_shapes=True)
        return made

    def replace(self, value: Node) -> None:
        """Replace the node by a value."""
        self.before.replace_all_uses_with(value)
        self.model.graph.erase_node(self.before)

    def replace_results(self, values: Sequence[Node]) -> None:
        """Replace the results of a tuple by values."""
        for user in list(self.before.users):
            assert user.target is operator.getitem
            user.replace_all_uses_with(values[cast(int, user.args[1])])
            self.model.graph.erase_node(user)
        self.model.graph.erase_node(self.before)


def tensor_of(model: GraphModule, value: Any) -> torch.Tensor | None:
    """Return the parameter or buffer that a get_attr names."""
    if not isinstance(value, Node) or value.op != "get_attr":
        return None
    found: Any = model
    for part in str(value.target).split("."):
        found = getattr(found, part)
    return cast(torch.Tensor, found)
