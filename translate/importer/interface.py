"""The interface of a graph's importer that the import of a single call uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch.fx import GraphModule, Node
from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp


class Importer(Protocol):
    """Appends the ops of one graph to one block: see `stepwell.translate.importer.graph`."""

    shared: Any
    module: GraphModule
    block: Block
    prefix: str
    values: dict[Node, Any]
    returned: Any

    def value(self, node: Any) -> SSAValue:
        """Return the single value of an imported node."""
        ...

    def append(self, op: Operation, node: Node) -> None:
        """Append an op to the block, with its results as the node's value."""
        ...

    def body(self, nodes: Sequence[Node]) -> None:
        """Import every node but placeholders and the output."""
        ...

    def call(self, node: Node) -> None:
        """Import a `call_function` node; an unsupported one is recorded, and the import goes on."""
        ...

    def operator_call(self, node: Node, overload: Any) -> SchemaOp | None:
        """Return the op of an overload for a node, not inserted; None if an operand is missing."""
        ...

    def inner(self, module: GraphModule, block: Block, prefix: str) -> Importer:
        """Return an importer of a sub-graph."""
        ...
