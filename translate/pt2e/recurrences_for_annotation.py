"""Decomposition of recurrent layers into steps, so that PT2E can annotate the ops of a step.

`lstm`, `gru` and `rnn` are one node each in an exported graph, and no int8 kernel computes one. One
linear layer applies the input weights to the inputs of all steps. Then each step has a linear layer
of its state, a sum, tables for sigmoid and tanh, products and sums. An initial state of zeros is
omitted, and users of a single step read that step. Input and output are `torch.fx` graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from stepwell.translate.pt2e.graph_writing import GraphWriter, tensor_of

aten = torch.ops.aten

ZEROS = frozenset((aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default))


@dataclass(frozen=True)
class Layer:
    """One direction of one layer: weights `[G·H, I]` and `[G·H, H]`, biases `[G·H]` or none."""

    inputs: Node
    hidden: Node
    input_bias: Node | None = None
    hidden_bias: Node | None = None


def unrolled(model: GraphModule, node: Node) -> bool:
    """Replace a recurrent node by its steps; return False if it is not supported."""
    cell = CELLS.get(node.target)
    if cell is None:
        return False
    given = cast("tuple[Any, ...]", node.args)
    x, begin, params, has_biases, layers, _, train, both_ways, batch_first = given[:9]
    shape = x.meta["val"].shape
    state = list(begin) if isinstance(begin, (list, tuple)) else [begin]
    is_known = all(isinstance(size, int) for size in shape)
    is_constant = all(tensor_of(model, value) is not None for value in params)
    each = 4 if has_biases else 2
    if train or not (is_known and is_constant and len(params) == each * layers * (1 + both_ways)):
        return False
    work = _Unrolling(GraphWriter(model, node), cell, 1 if batch_first else 0)
    results: list[list[Node]] = [[] for _ in state]
    for layer in range(layers):
        nodes: list[Node] = []
        for way in range(1 + both_ways):
            at = layer * (1 + both_ways) + way
            held = Layer(*params[at * each : (at + 1) * each])
            first = [_begin(work.write, value, at) for value in state]
            steps, last = work.layer(x, held, first, backwards=bool(way))
            nodes.append(steps)
            for into, value in zip(results, last, strict=True):
                into.append(value)
        x = nodes[0] if len(nodes) == 1 else work.write.call(aten.cat.default, nodes, 2)
    ends = [_stacked(work.write, values, 0) for values in results]
    _read_steps(node, x, 1 if batch_first else 0)
    work.write.replace_results([x, *ends])
    return True


def _read_steps(node: Node, steps: Node, time: int) -> None:
    """Let users of one step of the first result read the value of that step."""
    if steps.target is not aten.cat.default or steps.args[1] != time:
        return
    nodes = [cast(Node, row.args[0]) for row in cast("Sequence[Node]", steps.args[0])]
    pending = [user for user in node.users if user.args[1] == 0]
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


def _begin(write: GraphWriter, value: Node, at: int) -> Node | None:
    """Return the initial state of a layer; None if it is zeros."""
    if value.target in ZEROS:
        return None
    return write.call(aten.select.int, value, 0, at)


@dataclass
class _Unrolling:
    write: GraphWriter
    cell: Any
    time: int
    noted: dict[Any, Node] = field(default_factory=dict[Any, Node])

    def layer(
        self, x: Node, held: Layer, state: Sequence[Node | None], backwards: bool
    ) -> tuple[Node, list[Node]]:
        """Return all steps' results, and the final state."""
        projected = self.write.call(aten.linear.default, x, held.inputs, held.input_bias)
        count = x.meta["val"].shape[self.time]
        order = range(count - 1, -1, -1) if backwards else range(count)
        nodes: dict[int, Node] = {}
        for step in order:
            given = self.write.call(aten.select.int, projected, self.time, step)
            state = self.cell(self.write, given, state, held)
            nodes[step] = cast(Node, state[0])
        steps = _stacked(self.write, [nodes[i] for i in range(count)], self.time)
        return steps, [cast(Node, value) for value in state]


def _stacked(write: GraphWriter, values: Sequence[Node], axis: int) -> Node:
    """Stack values on a new axis: views, and one concatenation, which has a kernel of its own."""
    rows = [write.call(aten.unsqueeze.default, value, axis) for value in values]
    return rows[0] if len(rows) == 1 else write.call(aten.cat.default, rows, axis)


def _part(write: GraphWriter, value: Node, index: int, count: int) -> Node:
    """Return one of `count` gates."""
    size = value.meta["val"].shape[-1] // count
    return write.call(aten.slice.Tensor, value, -1, index * size, (index + 1) * size)


def _sum(write: GraphWriter, node: Node, hidden: Node | None, layer: Layer) -> Node:
    """Return the sum of input and state products."""
    if hidden is None:
        if layer.hidden_bias is None:
            return node
        return write.call(aten.add.Tensor, node, layer.hidden_bias)
    said = write.call(aten.linear.default, hidden, layer.hidden, layer.hidden_bias)
    return write.call(aten.add.Tensor, node, said)


def _lstm(
    write: GraphWriter, node: Node, state: Sequence[Node | None], layer: Layer
) -> Sequence[Node | None]:
    hidden, cell = state
    gates = _sum(write, node, hidden, layer)
    taken, kept, fresh, shown = (
        write.call(
            aten.tanh.default if at == 2 else aten.sigmoid.default, _part(write, gates, at, 4)
        )
        for at in range(4)
    )
    new = write.call(aten.mul.Tensor, taken, fresh)
    if cell is not None:
        new = write.call(aten.add.Tensor, write.call(aten.mul.Tensor, kept, cell), new)
    return write.call(aten.mul.Tensor, shown, write.call(aten.tanh.default, new)), new


def _gru(
    write: GraphWriter, node: Node, state: Sequence[Node | None], layer: Layer
) -> Sequence[Node | None]:
    (hidden,) = state
    hidden_bias = layer.hidden_bias
    if hidden is not None:
        hidden_bias = write.call(aten.linear.default, hidden, layer.hidden, layer.hidden_bias)

    def gate(at: int) -> Node:
        value = _part(write, node, at, 3)
        if hidden_bias is not None:
            value = write.call(aten.add.Tensor, value, _part(write, hidden_bias, at, 3))
        return write.call(aten.sigmoid.default, value)

    reset, update = gate(0), gate(1)
    fresh = _part(write, node, 2, 3)
    if hidden_bias is not None:
        limited = write.call(aten.mul.Tensor, reset, _part(write, hidden_bias, 2, 3))
        fresh = write.call(aten.add.Tensor, fresh, limited)
    fresh = write.call(aten.tanh.default, fresh)
    rest = write.call(aten.rsub.Scalar, update, 1)
    new = write.call(aten.mul.Tensor, rest, fresh)
    if hidden is not None:
        new = write.call(aten.add.Tensor, new, write.call(aten.mul.Tensor, update, hidden))
    return (new,)


def _rnn(function: Any) -> Any:
    def step(
        write: GraphWriter, node: Node, state: Sequence[Node | None], layer: Layer
    ) -> Sequence[Node | None]:
        return (write.call(function, _sum(write, node, state[0], layer)),)

    return step


CELLS: dict[Any, Any] = {
    aten.lstm.input: _lstm,
    aten.gru.input: _gru,
    aten.rnn_tanh.input: _rnn(aten.tanh.default),
    aten.rnn_relu.input: _rnn(aten.relu.default),
}
"""The function that computes a step from its projected input, the state and the weights."""
