"""Change a program of ExecuTorch's edge dialect and return it in that dialect.

Edge programs are imported like any other. Export gives ATen operators, so every call is converted
to the edge operator of the same name, with the metadata that the stock flow put on the node of that
name, and checked by the program's own verifiers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from xdsl.ir import Operation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import torch_overload
from stepwell.ir.compat.torch.torch_private import OpOverload, operator_and_overload
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.program import Program
from stepwell.translate import executorch_private
from stepwell.translate.exporter.to_torch import to_exported_program
from stepwell.translate.importer.from_torch import from_exported_program

_VALUES = {"val": None, "tensor_meta": None}
"""Metadata that refers to the old program's fake tensors."""


def apply_to_edge(
    exported: ExportedProgram, change: Callable[[Program], int]
) -> ExportedProgram | None:
    """Return the program after a change, or None if the change did not apply.

    Args:
        exported: a program of the edge dialect, or a plain one, which then stays plain.
        change: changes the imported program in place and returns the number of changes.
    """
    program = from_exported_program(exported)
    if change(program) == 0:
        return None
    made = to_exported_program(program)
    is_edge = any(_is_edge(node.target) for node in exported.graph.nodes)
    if is_edge:
        _refuse_beyond_edge(exported, made)
    before: dict[str, Node] = {node.name: node for node in exported.graph.nodes}
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


def is_of_edge(op: type[Operation]) -> bool:
    """Whether edge programs may contain an op: core ATen, or no operator of PyTorch's."""
    if not issubclass(op, SchemaOp):
        return op.name.partition(".")[0] in ("builtin", "func", "stepwell", "sym", "control")
    return _is_core(torch_overload(op))


def _is_core(target: OpOverload) -> bool:
    return target.namespace != "aten" or torch.Tag.core in target.tags


def _refuse_beyond_edge(exported: ExportedProgram, made: ExportedProgram) -> None:
    """Raise StepwellError for new operators that are not core ATen's."""
    had = {node.target.name() for node in exported.graph.nodes if _is_edge(node.target)}
    targets = [node.target for node in made.graph.nodes if isinstance(node.target, OpOverload)]
    foreign = [t for t in dict.fromkeys(targets) if not _is_core(t) and t.name() not in had]
    if foreign:
        raise UnsupportedError(
            f"the rewrite made {', '.join(map(str, foreign))}, which edge programs cannot contain",
            help="StepwellPartitioner() runs all rewrites ahead of the edge dialect",
        )


def _is_edge(target: Any) -> bool:
    return type(target).__name__ == "EdgeOpOverload"


def _edge_operator(target: OpOverload) -> Any:
    operator, overload = operator_and_overload(target)
    return getattr(
        getattr(getattr(executorch_private.edge_ops.edge, target.namespace), operator), overload
    )
