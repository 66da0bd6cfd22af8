"""Faults that are planted in artifacts: the verdict names the operator that is wrong.

`tools/artifact_faults.py` does the same with larger programs and ExecuTorch's flows.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sampled import sampled
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Node

import stepwell
from stepwell.validation.artifacts import validate


class Net(nn.Module):
    """A convolution, attention over its places, a residual and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.query, self.value = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, image: Tensor) -> Tensor:
        x = self.conv(image).relu().flatten(2).transpose(1, 2)
        q = self.query(x)
        scores = (q @ x.transpose(1, 2) * 0.25).softmax(-1)
        x = x - scores @ self.value(x)
        first, second = x.chunk(2, -1)
        return self.norm(torch.cat([first.tanh(), second], -1)) * 2.0


def argument(at: int, value: Any) -> Callable[[ExportedProgram, Node], None]:
    """Give a node another argument."""

    def change(_: ExportedProgram, node: Node) -> None:
        node.update_arg(at, value)

    return change


def transposed(program: ExportedProgram, node: Node) -> None:
    """Transpose a node's square weight."""
    name = program.graph_signature.inputs_to_parameters[node.args[1].name]  # type: ignore
    program.state_dict[name] = nn.Parameter(program.state_dict[name].mT.clone())


def swapped(_: ExportedProgram, node: Node) -> None:
    """Exchange a node's operands."""
    node.args = (node.args[1], node.args[0], *node.args[2:])


def exchanged(_: ExportedProgram, node: Node) -> None:
    """Exchange the operands in a node's list."""
    node.args = ([*reversed(node.args[0])], *node.args[1:])  # type: ignore


def dilated(_: ExportedProgram, node: Node) -> None:
    """Spread a convolution's kernel, at the same size of its result."""
    node.args = (*node.args[:4], [2, 2], [2, 2])


def missing(_: ExportedProgram, node: Node) -> None:
    """Give users of a node its operand."""
    node.replace_all_uses_with(node.args[0])  # type: ignore


FAULTS: dict[str, tuple[str, Callable[[ExportedProgram, Node], None]]] = {
    "an epsilon": ("layer_norm", argument(4, 0.1)),
    "an axis": ("softmax", argument(1, -2)),
    "a weight's axes": ("linear_1", transposed),
    "an order of operands": ("sub", swapped),
    "an order of parts": ("cat", exchanged),
    "a missing operator": ("tanh", missing),
    "a constant": ("mul_1", argument(1, 1.9)),
    "a dilation": ("conv2d", dilated),
}
"""A title, the node of the program that is wrong, and the change."""


@pytest.mark.parametrize("title", sampled(FAULTS, "an epsilon", "a weight's axes", "a dilation"))
def test_the_wrong_operator_is_named(title: str) -> None:
    torch.manual_seed(0)
    source = torch.export.export(Net().eval(), (torch.randn(1, 3, 4, 4),))
    name, change = FAULTS[title]
    wrong = copy.deepcopy(source)
    change(wrong, next(node for node in wrong.graph.nodes if node.name == name))
    found = validate(stepwell.lower(wrong, "xnnpack").to_pte(), source)
    assert not found.ok
    assert found.wrong is not None
    assert name in (found.wrong.node, *found.wrong.nodes), str(found)
    assert validate(stepwell.lower(source, "xnnpack").to_pte(), source).ok
