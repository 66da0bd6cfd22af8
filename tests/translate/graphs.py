"""What the translation tests share: a graph as plain data, and models by name."""

import importlib
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg


def rows(exported: ExportedProgram) -> list[tuple[str, ...]]:
    """Every node of the graph and its sub-graphs: op, name, target, arguments."""
    found: list[tuple[str, ...]] = []
    for _, module in exported.graph_module.named_modules():
        if isinstance(module, torch.fx.GraphModule):
            found.extend(_row(node) for node in module.graph.nodes)
    return found


def _row(node: Node) -> tuple[str, ...]:
    args, kwargs = (map_arg(a, lambda n: f"%{n.name}") for a in (node.args, node.kwargs))
    return node.op, node.name, str(node.target), str(args), str(kwargs)


def examples(exported: ExportedProgram) -> list[tuple[Any, ...]]:
    """The example value of every node: shape, dtype and strides, or the number."""
    found: list[tuple[Any, ...]] = []
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            found.append((node.name, str(value.shape), value.dtype, str(value.stride())))
        else:
            found.append((node.name, str(value)))
    return found


def export(name: str) -> tuple[ExportedProgram, tuple[Any, ...]]:
    """A model of examples/models, `file:callable`, exported, with its inputs."""
    file, function = name.split(":")
    made = getattr(importlib.import_module(file), function)()
    if isinstance(made, ExportedProgram):
        assert made.example_inputs is not None
        return made, made.example_inputs[0]
    module, inputs, *shapes = made
    assert isinstance(module, nn.Module)
    shapes = shapes[0] if shapes else None
    return torch.export.export(module, inputs, dynamic_shapes=shapes), inputs
