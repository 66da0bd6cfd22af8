"""Import of calls that are no operators: arithmetic on run-time numbers, and control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from xdsl.dialects.builtin import DenseArrayBase, i32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from stepwell.dialects import control, sym
from stepwell.dialects.symbols import flat_types, type_of
from stepwell.ir.compat.torch.torch_private import HigherOrderOperator
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.translate.importer.aliases import WRAPPERS, is_wrapper
from stepwell.translate.importer.functionalized import NAMES, import_functionalized
from stepwell.translate.importer.interface import Importer


def import_python_call(importer: Importer, node: Node, target: Any) -> None:
    """Import a call of a Python function or a higher-order operator.

    Raises:
        UnsupportedError: the IR has no equivalent.
    """
    cls = sym.OPS.get(target)
    if cls is not None:
        given = node.args[0] if target is torch.sym_sum else node.args
        assert isinstance(given, list | tuple)
        arguments = [importer.value(a) if isinstance(a, Node) else a for a in given]
        importer.append(cls.make(arguments, type_of(node.meta["val"])), node)
        return
    if is_wrapper(target):
        _inline(importer, node)
        return
    rule = _HIGHER_ORDER.get(getattr(target, "__name__", ""))
    if rule is None or not isinstance(target, HigherOrderOperator):
        if _name(target) in NAMES:
            import_functionalized(importer, node)
            return
        raise UnsupportedError("it has no form in the IR", help=_REASONS.get(_name(target)))
    importer.append(rule(importer, node), node)


def _name(target: Any) -> str:
    return str(getattr(target, "__name__", target))


_REASONS = {
    "executorch_call_delegate": "import the program before it is lowered to a backend",
    "flex_attention": "call scaled_dot_product_attention, with score_mod's summand as its mask",
}


def _values(importer: Importer, nodes: Any) -> list[SSAValue]:
    if any(not isinstance(item, Node) for item in nodes):
        raise UnsupportedError("a constant is given to a sub-graph", help="capture it as a tensor")
    return [importer.value(item) for item in nodes]


def _sub_graph(
    importer: Importer, graph: Any, block: Block
) -> tuple[Importer, list[Node], list[Node]]:
    """Return an importer of a sub-graph of the graph module, its nodes and its inputs."""
    module = getattr(importer.module, str(graph.target))
    assert isinstance(module, GraphModule)
    nodes = list(module.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    prefix = f"{importer.prefix}{graph.target}."
    return importer.inner(module, block, prefix), nodes, placeholders


def _returned(nodes: list[Node]) -> list[Any]:
    returned = nodes[-1].args[0]
    return list(returned) if isinstance(returned, list | tuple) else [returned]


def _inline(importer: Importer, node: Node) -> None:
    """Inline a wrapped sub-graph at its call: no mode changes the results of its ops."""
    graph, *inputs = node.args[WRAPPERS[_name(node.target)] :]
    inner, nodes, placeholders = _sub_graph(importer, graph, importer.block)
    values = _values(importer, inputs)
    inner.values, inner.returned = importer.values, importer.returned
    inner.values |= zip(placeholders, values, strict=True)
    inner.body(nodes)
    importer.returned[node] = _returned(nodes)
    importer.values[node] = [inner.values.get(item) for item in _returned(nodes)]


def _region(importer: Importer, graph: Any) -> Region:
    """Return the region of a sub-graph of the graph module."""
    block = Block()
    inner, nodes, placeholders = _sub_graph(importer, graph, block)
    for node in placeholders:
        argument = block.insert_arg(type_of(node.meta["val"]), len(block.args))
        argument.name_hint = node.name
        argument.location = importer.shared.locations.of(node)
        inner.values[node] = argument
    inner.body(nodes)
    outputs = _returned(nodes)
    if any(not isinstance(item, Node) for item in outputs):
        raise UnsupportedError("a branch returns a constant", help="return it as a tensor")
    if all(isinstance(inner.values.get(item), SSAValue) for item in outputs):
        block.add_op(control.YieldOp(*(inner.value(item) for item in outputs)))
    return Region(block)


def _create(
    cls: type[Operation], groups: Sequence[list[SSAValue]], node: Node, regions: list[Region]
) -> Operation:
    properties: dict[str, Attribute] = {}
    if cls is not control.CondOp:
        sizes = [len(group) for group in groups]
        properties["operandSegmentSizes"] = DenseArrayBase.from_list(i32, sizes)
    return cls.create(
        operands=[value for group in groups for value in group],
        result_types=flat_types(node.meta["val"]),
        properties=properties,
        regions=regions,
    )


def _cond(importer: Importer, node: Node) -> Operation:
    predicate, if_true, if_false, *rest = node.args
    if not isinstance(predicate, Node):
        raise UnsupportedError("the predicate is a constant", help="export folds such a branch")
    inputs = _values(importer, rest[0] if rest else ())
    regions = [_region(importer, if_true), _region(importer, if_false)]
    return _create(control.CondOp, ([importer.value(predicate)], inputs), node, regions)


def _while_loop(importer: Importer, node: Node) -> Operation:
    condition, body, carried, *rest = node.args
    groups = (_values(importer, carried), _values(importer, rest[0] if rest else ()))
    regions = [_region(importer, condition), _region(importer, body)]
    return _create(control.WhileLoopOp, groups, node, regions)


def _map(importer: Importer, node: Node) -> Operation:
    body, sequences, additional = node.args
    groups = (_values(importer, sequences), _values(importer, additional))
    return _create(control.MapOp, groups, node, [_region(importer, body)])


def _scan(importer: Importer, node: Node) -> Operation:
    body, initial, sequences, *rest = node.args
    groups = (
        _values(importer, initial),
        _values(importer, sequences),
        _values(importer, rest[0] if rest else ()),
    )
    return _create(control.ScanOp, groups, node, [_region(importer, body)])


_HIGHER_ORDER: dict[str, Callable[[Importer, Node], Operation]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "map_impl": _map,
    "scan": _scan,
}
