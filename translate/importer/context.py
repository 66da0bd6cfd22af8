"""State of an import: the block to which a call is appended, and what a whole import shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node
from xdsl.dialects.builtin import UnknownLoc
from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.diagnostics import Problem, StepwellError, describe_location, quoted
from stepwell.ir.weight_bytes import dense_bytes
from stepwell.ir.weights import WeightStore
from stepwell.translate.importer.locations import Locations
from stepwell.translate.importer.mutation import Write
from stepwell.translate.importer.values import why_not_plain

Held = SSAValue | list[Any] | None
"""The value of a node, or a list of values for a call with several results."""


@dataclass
class Importing:
    """State shared by the graphs of one import."""

    weights: WeightStore
    locations: Locations = field(default_factory=Locations)
    problems: list[Problem] = field(default_factory=list[Problem])

    def hold(self, key: str, tensor: torch.Tensor, node: Node) -> None:
        """Add a tensor of the program to the store; methods share tensors by name.

        A tensor that is not a plain array of numbers is refused when a node reads it. A lazy
        negation or conjugation is materialized.
        """
        reason = why_not_plain(tensor) if node.users else None
        if reason is not None:
            fact, help = reason
            self.refuse(node, f"weight {quoted(key)} {fact}", help)
        elif key not in self.weights:
            resolved = tensor.resolve_neg().resolve_conj() if node.users else tensor
            self.weights.add(key, resolved, trainable=tensor.requires_grad)
        elif not _same_tensor(self.weights.get(key), tensor):
            self.refuse(
                node,
                f"two methods give weight {key!r} different values",
                "export both from the same model",
            )

    def refuse(self, node: Node, fact: str, help: str | None = None) -> None:
        """Record an unsupported construct; all of them are reported at the end."""
        where = describe_location(self.locations.of(node))
        self.problems.append(Problem(fact, where, help))


def _same_tensor(held: torch.Tensor, tensor: torch.Tensor) -> bool:
    if held.dtype != tensor.dtype or held.shape != tensor.shape:
        return False
    if held.data_ptr() == tensor.data_ptr() and held.stride() == tensor.stride():
        return True
    return dense_bytes(held) == dense_bytes(tensor)


class Importer(ABC):
    """Appends the ops of one graph to one block; `values` maps nodes to their values."""

    def __init__(self, shared: Importing, module: GraphModule, block: Block, prefix: str) -> None:
        self.shared = shared
        self.module = module
        self.block = block
        self.prefix = prefix
        self.values: dict[Node, Held] = {}
        self.writes: Mapping[Node, tuple[Write, ...]] = {}
        """The in-place writes of the graph's calls."""
        self.returned: dict[Node, list[Any]] = {}
        """Call of a sub-graph that is inlined in this block → the nodes that it returns."""

    @abstractmethod
    def body(self) -> None:
        """Import every node but placeholders and the output."""

    @abstractmethod
    def call(self, node: Node) -> None:
        """Import a `call_function` node; an unsupported one is recorded, and the import goes on."""

    @abstractmethod
    def operator_call(self, node: Node, overload: Any) -> SchemaOp | None:
        """Return the op for a node that calls an overload, not inserted; None if an operand is
        missing.
        """

    @abstractmethod
    def inner(self, module: GraphModule, block: Block, prefix: str) -> Importer:
        """Return an importer of a sub-graph."""

    def value(self, node: Any) -> SSAValue:
        """Return the single value of an imported node."""
        held = self.values.get(node)
        if not isinstance(held, SSAValue):
            raise StepwellError(f"{node} has no single value")
        return held

    def argument(self, item: Any) -> Any:
        """Return an argument with values in place of nodes, at any nesting."""
        if isinstance(item, list | tuple):
            return [self.argument(part) for part in item]
        return self.value(item) if isinstance(item, Node) else item

    def insert(self, op: Operation, node: Node) -> None:
        """Append an op to the block, with a node's location."""
        if isinstance(op.location, UnknownLoc):
            op.location = self.shared.locations.of(node)
        self.block.add_op(op)

    def emit(self, node: Node, name: str, *args: Any, **kwargs: Any) -> SSAValue:
        """Append the ATen op of a name (`"slice_scatter.default"`) and return its result."""
        named = {key: self.argument(item) for key, item in kwargs.items()}
        op = op_class(f"aten.{name}").make(*map(self.argument, args), **named)
        self.insert(op, node)
        return op.results[0]

    def append(self, op: Operation, node: Node) -> None:
        """Append an op to the block, with its results as the node's value."""
        self.insert(op, node)
        results = op.results
        if isinstance(node.meta.get("val"), tuple | list):
            self.values[node] = _regroup(node.meta["val"], list(results))
        elif results:
            results[0].name_hint = node.name
            self.values[node] = results[0]
        else:
            self.values[node] = None


def _regroup(shape: Any, results: list[SSAValue]) -> list[Any]:
    """Nest results as a schema's `getitem` indexes them: `(Tensor[], Tensor)` is a list and a
    value.
    """
    rest = iter(results)

    def take(item: Any) -> Any:
        return [take(part) for part in item] if isinstance(item, tuple | list) else next(rest)

    return [take(item) for item in shape]
