"""Change a program of ExecuTorch's edge dialect and give it back in that dialect.

Edge programs import like any other; export gives ATen's operators, so that every call is turned
into the edge operator of the same name, with the metadata that the stock flow put on the node of
that name, and checked by the program's own verifiers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from stepwell.ir.program import Program
from stepwell.ir.torch_private import OpOverload, operator_and_overload
from stepwell.translate.from_torch import from_exported_program
from stepwell.translate.to_torch import to_exported_program

_VALUES = {"val": None, "tensor_meta": None}
"""Metadata that belongs to the old program's fake tensors."""


def apply_to_edge(
    exported: ExportedProgram, change: Callable[[Program], int]
) -> ExportedProgram | None:
    """The program after a change, or None if the change found nothing to do.

    Args:
        exported: a program of the edge dialect, or a plain one, which then stays plain.
        change: changes the imported program in place; gives the number of changes.
    """
    program = from_exported_program(exported)
    if change(program) == 0:
        return None
    made = to_exported_program(program)
    before: dict[str, Node] = {node.name: node for node in exported.graph.nodes}
    is_edge = any(_is_edge(node.target) for node in exported.graph.nodes)
    for node in made.graph.nodes:
        if is_edge and isinstance(node.target, OpOverload):
            node.target = _edge_operator(node.target)
        if node.name in before:
            held = before[node.name].meta
            node.meta |= {key: held[key] for key in held if key not in node.meta | _VALUES}
    return ExportedProgram(
        made.graph_module,
        made.graph,
        made.graph_signature,
        made.state_dict,
        exported.range_constraints,
        exported.module_call_graph,
        exported.example_inputs,
        made.constants,
        verifiers=exported.verifiers,
    )


def _is_edge(target: Any) -> bool:
    return type(target).__name__ == "EdgeOpOverload"


def _edge_operator(target: OpOverload) -> Any:
    from stepwell.translate.executorch_private import edge_ops

    operator, overload = operator_and_overload(target)
    return getattr(getattr(getattr(edge_ops.edge, target.namespace), operator), overload)
