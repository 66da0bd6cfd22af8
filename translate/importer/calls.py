"""Import of calls that are not operators: arithmetic on dynamic numbers, and control flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation

from stepwell.dialects import control, sym
from stepwell.dialects.symbols import flat_types, type_of
from stepwell.ir.compat.torch.torch_private import HigherOrderOperator
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.translate.importer.aliases import is_wrapper, returned, sub_graph, wrapped
from stepwell.translate.importer.context import Importer
from stepwell.translate.importer.functionalized import NAMES, import_functionalized


def import_python_call(importer: Importer, node: Node, target: Any) -> None:
    """Import a call of a Python function or a higher-order operator.

    Raises:
        UnsupportedError: the IR has no equivalent.
    """
    cls = sym.op_of(target)
    if cls is not None:
        given = node.args[0] if target is torch.sym_sum else node.args
        assert isinstance(given, list | tuple)
        importer.append(cls.make(importer.argument(given), type_of(node.meta["val"])), node)
        return
    if is_wrapper(target):
        _inline(importer, node)
        return
    kind = _HIGHER_ORDER.get(_name(target))
    if kind is None or not isinstance(target, HigherOrderOperator):
        if _name(target) in NAMES:
            import_functionalized(importer, node)
            return
        raise UnsupportedError(
            "the call has no equivalent in the IR", help=_REASONS.get(_name(target))
        )
    importer.append(_control(importer, node, kind), node)


def _name(target: Any) -> str:
    return str(getattr(target, "__name__", target))


_REASONS = {
    "executorch_call_delegate": "import the program before it is lowered to a backend",
    "flex_attention": "call scaled_dot_product_attention, with score_mod's summand as its mask",
}


def _values(importer: Importer, nodes: Any) -> list[SSAValue]:
    if any(not isinstance(item, Node) for item in nodes):
        raise UnsupportedError("a constant is passed to a sub-graph", help="capture it as a tensor")
    return [importer.value(item) for item in nodes]


def _sub_graph(
    importer: Importer, graph: Node, block: Block
) -> tuple[Importer, GraphModule, list[Node]]:
    """Return an importer for a sub-graph of the graph module, the sub-graph and its inputs."""
    module = sub_graph(importer.module, graph)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    inner = importer.inner(module, block, f"{importer.prefix}{graph.target}.")
    return inner, module, placeholders


def _inline(importer: Importer, node: Node) -> None:
    """Inline a wrapped sub-graph at its call, since modes do not change the results of its ops."""
    graph, inputs = wrapped(node)
    inner, module, placeholders = _sub_graph(importer, graph, importer.block)
    values = _values(importer, inputs)
    inner.values, inner.returned = importer.values, importer.returned
    inner.values |= zip(placeholders, values, strict=True)
    inner.body()
    importer.returned[node] = returned(module)
    importer.values[node] = [inner.values.get(item) for item in returned(module)]


def _region(importer: Importer, graph: Any) -> Region:
    """Return the region of a sub-graph of the graph module."""
    block = Block()
    inner, module, placeholders = _sub_graph(importer, graph, block)
    for node in placeholders:
        argument = block.insert_arg(type_of(node.meta["val"]), len(block.args))
        argument.name_hint = node.name
        argument.location = importer.shared.locations.of(node)
        inner.values[node] = argument
    inner.body()
    outputs = returned(module)
    if any(not isinstance(item, Node) for item in outputs):
        raise UnsupportedError("a branch returns a constant", help="return it as a tensor")
    if all(isinstance(inner.values.get(item), SSAValue) for item in outputs):
        block.add_op(control.YieldOp(*(inner.value(item) for item in outputs)))
    return Region(block)


def _control(importer: Importer, node: Node, kind: ControlFlow) -> Operation:
    """Return the op of a call of a higher-order operator, with its sub-graphs as regions."""
    args: list[Any] = list(node.args)
    graphs, args[kind.graphs] = args[kind.graphs], []
    if kind.op is control.CondOp and not isinstance(args[0], Node):
        raise UnsupportedError(
            "the predicate of torch.cond is a constant", help="export folds such a branch"
        )
    groups = [
        importer.value(group) if isinstance(group, Node) else _values(importer, group)
        for group in (*args, *[()] * (kind.groups - len(args)))
    ]
    return kind.op.build(
        operands=groups,
        regions=[_region(importer, graph) for graph in graphs],
        result_types=[flat_types(node.meta["val"])],
    )


@dataclass(frozen=True)
class ControlFlow:
    """An op of control flow, with the arguments of its call that are sub-graphs and operand
    groups.
    """

    op: type[IRDLOperation]
    graphs: slice
    groups: int = 2


_HIGHER_ORDER = {
    "cond": ControlFlow(control.CondOp, slice(1, 3)),
    "while_loop": ControlFlow(control.WhileLoopOp, slice(0, 2)),
    "map_impl": ControlFlow(control.MapOp, slice(0, 1)),
    "scan": ControlFlow(control.ScanOp, slice(0, 1), groups=3),
}
