"""What the import of one call asks of the import of the graph that it stands in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch.fx import GraphModule, Node
from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp


class Importer(Protocol):
    """Appends the ops of one graph to one block: `stepwell.translate.importer.graph`."""

    shared: Any
    module: GraphModule
    block: Block
    prefix: str
    values: dict[Node, Any]
    returned: Any

    def value(self, node: Any) -> SSAValue:
        """The one value of a node that has been imported."""
        ...

    def append(self, op: Operation, node: Node) -> None:
        """Put an op at the end of the block, with its results as the node's value."""
        ...

    def body(self, nodes: Sequence[Node]) -> None:
        """Import every node but placeholders and the output."""
        ...

    def call(self, node: Node) -> None:
        """Import a `call_function` node; what has no form is noted and the import goes on."""
        ...

    def operator_call(self, node: Node, overload: Any) -> SchemaOp | None:
        """The op of an overload with a node's arguments, not inserted; None without an operand."""
        ...

    def inner(self, module: GraphModule, block: Block, prefix: str) -> Importer:
        """An importer of a sub-graph."""
        ...
