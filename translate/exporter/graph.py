"""Export of one block to one FX graph: each op becomes a call with its example value."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from stepwell.dialects import control, sym
from stepwell.dialects.aten.interpretation import plan_of
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import torch_overload
from stepwell.dialects.symbols import Symbols
from stepwell.ir.compat.torch.lazy_imports import symbolic_shapes
from stepwell.ir.compat.torch.torch_private import enable_python_dispatcher
from stepwell.ir.diagnostics import (
    Problem,
    describe_op,
    module_path,
    node_name,
    op_name,
    source_line,
)
from stepwell.translate.importer.graph import WRITTEN_AS

Writer = Callable[["GraphExporter", Any], None]
"""Writes an op into a graph, and returns its results there."""


@dataclass
class Exporting:
    """State shared by the graphs of one export."""

    symbols: Symbols
    problems: list[Problem] = field(default_factory=list[Problem])
    graphs: dict[str, int] = field(default_factory=dict[str, int])
    writers: Mapping[type[Operation], Writer] = field(default_factory=dict[type[Operation], Any])
    """Writers of ops that are not PyTorch's."""

    def graph_name(self, stem: str) -> str:
        """Return an unused attribute name for a sub-graph: `true_graph_0`."""
        number = self.graphs.get(stem, 0)
        self.graphs[stem] = number + 1
        return f"{stem}_{number}"


class GraphExporter:
    """Writes a block into `graph`; sub-graphs become attributes of `root`."""

    def __init__(self, shared: Exporting, graph: Graph, root: torch.nn.Module) -> None:
        self.shared = shared
        self.graph = graph
        self.root = root
        self.values: dict[SSAValue, Any] = {}
        self.names: set[str] = set()

    def placeholder(self, name: str, value: SSAValue | None, example: Any) -> Node:
        """Add an input to the graph."""
        node = self.graph.placeholder(name)
        if node.name != name and name not in self.names:
            node.name = name  # FX renames Python's builtins; export does not.
        node.target = node.name
        self.names.add(node.name)
        node.meta["val"] = example
        if value is not None:
            self.values[value] = node
        return node

    def operation(self, op: Operation) -> None:
        """Write one op; problems are recorded."""
        if isinstance(op, SchemaOp):
            self._schema_op(op)
        elif isinstance(op, sym.SymOp):
            self._sym_op(op)
        elif isinstance(op, sym.ConstantOp):
            self.values[op.result] = op.number
        elif type(op) in _CONTROL:
            self._control(op)
        elif type(op) in self.shared.writers:
            self.shared.writers[type(op)](self, op)
        else:
            self.refuse(op, "the op has no equivalent in a PyTorch program")

    def refuse(self, op: Operation, reason: str) -> None:
        """Record an op that cannot be exported; all such ops are reported together."""
        self.shared.problems.append(Problem(f"{op_name(op)}: {reason}", describe_op(op)))
        for result in op.results:
            self.values[result] = None

    def _schema_op(self, op: SchemaOp) -> None:
        target = torch_overload(type(op))
        written = op.attributes.get(WRITTEN_AS)
        if isinstance(written, StringAttr):
            target = getattr(target.overloadpacket, written.data)
        converters = {a.name: convert for a, convert in plan_of(type(op)).arguments}
        positional, keywords = op.bind()
        names = [a.name for a in op.SCHEMA.arguments]
        args = tuple(
            self._argument(value, converters[name])
            for name, value in zip(names, positional, strict=False)
        )
        kwargs = {name: self._argument(v, converters[name]) for name, v in keywords.items()}
        if target in _VIEWS and not _is_viewable(args[0], args[1]):
            target = torch.ops.aten.reshape.default
        if op.SCHEMA.is_mutable:
            self._functionalized(op, target, dict(zip(names, args, strict=False)) | kwargs)
        else:
            self.call(op, target, args, kwargs)

    def _functionalized(self, op: SchemaOp, target: Any, given: dict[str, Any]) -> None:
        """Export a custom operator that writes to arguments as an `auto_functionalized_v2` call."""
        bases: list[Any] = []
        for argument in op.SCHEMA.written:
            given[f"_{argument.name}_base_index"] = len(bases)
            bases.append(given.pop(argument.name))
        for argument in op.SCHEMA.arguments:
            if argument.default and not argument.written:
                given.setdefault(argument.name, argument.default[0])
        given["_all_bases"] = bases
        self.call(op, torch.ops.higher_order.auto_functionalized_v2, (target,), given)

    def call(
        self,
        op: Operation,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        example: tuple[Any] | None = None,
    ) -> None:
        """Append a call; `example` is its example value if running the call would not compute
        it.
        """
        node = self.graph.create_node(
            "call_function", target, args, kwargs, name=node_name(op.location)
        )
        if example is None:
            value = self._run(op, target, args, kwargs)
            if value is _FAILED:
                return
        else:
            value = example[0]
        self._describe(node, op)
        node.meta["val"] = value
        bindings = symbolic_shapes.compute_unbacked_bindings(self.shared.symbols.env, value)
        if bindings:
            node.meta["unbacked_bindings"] = bindings
        if isinstance(value, tuple | list):
            self._unpack(node, list(op.results), value, op)
        elif op.results:
            self.values[op.results[0]] = node

    def _run(
        self, op: Operation, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Compute the call's example value by PyTorch's own shape functions.

        New guards on symbolic sizes are ignored: they were checked when the program was exported,
        and a guard could fix an input's size (as in `upsample_linear1d`).
        """
        examples, named = _examples(args), _examples(kwargs)
        symbols = self.shared.symbols
        try:
            with symbols.env.suppress_guards(), symbols.on_fakes():
                with contextlib.suppress(RuntimeError):
                    return target(*examples, **named)
                with enable_python_dispatcher():  # PyTorch's C++ kernels require plain integers.
                    return target(*examples, **named)
        except Exception as error:  # PyTorch's shape functions may raise any exception.
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            self.refuse(op, f"torch refuses the call: {reason}")
            return _FAILED

    def _unpack(self, node: Node, results: list[SSAValue], value: Any, op: Operation) -> None:
        """Add an `operator.getitem` for each result that is used or was named."""
        rest = iter(results)
        for index, item in enumerate(cast(Sequence[Any], value)):
            nested = isinstance(item, tuple | list)
            if item is None:  # An operator that returns nothing, and writes.
                continue
            count = len(cast(Sequence[Any], item)) if nested else 1
            taken = [next(rest) for _ in range(count)]
            wanted = [v for v in taken if v.name_hint or any(True for _ in v.uses)]
            if not wanted:
                continue
            name = None if nested else taken[0].name_hint
            part = self.graph.create_node(
                "call_function", operator.getitem, (node, index), {}, name=name
            )
            self._describe(part, op)
            part.meta["val"] = item
            if nested:
                self._unpack(part, taken, item, op)
            else:
                self.values[taken[0]] = part

    def _describe(self, node: Node, op: Operation) -> None:
        """Set the source line and module path of a node as export records them."""
        if (line := source_line(op.location)) is not None:
            file, _, number = line.rpartition(":")
            node.meta["stack_trace"] = f'File "{file}", line {number}, in forward'
        path = module_path(op.location) or ""
        stack = {"L__self__": ("", "torch.nn.modules.module.Module")}
        parts = path.split(".") if path else []
        for end in range(1, len(parts) + 1):
            inner = ".".join(parts[:end])
            stack[f"L__self__.{inner}"] = (inner, "torch.nn.modules.module.Module")
        node.meta["nn_module_stack"] = stack

    def _argument(self, value: Any, convert: Any) -> Any:
        if isinstance(value, SSAValue):
            return self.values[value]
        if isinstance(value, list):
            return [self._argument(item, convert) for item in cast(list[Any], value)]
        if value is None or convert is None:
            return value
        return convert(value)

    def _sym_op(self, op: sym.SymOp) -> None:
        function = type(op).function()
        arguments = op.bind([self.values[value] for value in op.values])
        given: Any = (arguments,) if function is torch.sym_sum else tuple(arguments)
        self.call(op, function, given, {})

    # -- control flow ------------------------------------------------------------------------

    def _control(self, op: Operation) -> None:
        operator_name, stems, names = _CONTROL[type(op)]
        is_over_slices = isinstance(op, control.MapOp | control.ScanOp)
        groups = [
            self._group(getattr(op, name), list if is_over_slices else tuple) for name in names
        ]
        if is_over_slices:
            body_inputs = op.regions[-1].block.args
            examples = [self.shared.symbols.fake(arg.type) for arg in body_inputs]
        else:
            lists = groups[1:] if isinstance(op, control.CondOp) else groups
            examples = [_examples(value) for group in lists for value in group]
        nodes: list[Node] = []
        returned: list[Any] = []
        for stem, region in zip(stems, op.regions, strict=True):
            single = isinstance(op, control.WhileLoopOp) and region is op.condition
            name, returned = self._subgraph(stem, region, examples, single)
            nodes.append(self.graph.get_attr(name))
        if is_over_slices:
            returned = [self.shared.symbols.fake(result.type) for result in op.results]
        predicate = [groups.pop(0)] if isinstance(op, control.CondOp) else []
        target = getattr(torch.ops.higher_order, operator_name)
        self.call(op, target, (*predicate, *nodes, *groups), {}, (tuple(returned),))

    def _group(self, values: Any, kind: type[list[Any]] | type[tuple[Any, ...]]) -> Any:
        """Return the nodes of an operand, or of a group of operands as a list or a tuple."""
        if isinstance(values, SSAValue):
            return self.values[values]
        return kind(self.values[value] for value in cast(Sequence[SSAValue], values))

    def _subgraph(
        self, stem: str, region: Region, examples: Sequence[Any], single: bool
    ) -> tuple[str, list[Any]]:
        block: Block = region.block
        graph, root = Graph(), torch.nn.Module()
        inner = GraphExporter(self.shared, graph, root)
        for argument, example in zip(block.args, examples, strict=True):
            name = node_name(argument.location) or argument.name_hint
            inner.placeholder(name or f"arg{argument.index}_1", argument, example)
        for op in block.ops:
            if not isinstance(op, control.YieldOp):
                inner.operation(op)
        last = block.last_op
        assert last is not None
        outputs = tuple(inner.values[value] for value in last.operands)
        graph.output(outputs[0] if single else outputs)
        name = self.shared.graph_name(stem)
        self.root.add_module(name, GraphModule(root, graph))
        return name, [_examples(value) for value in outputs]


_FAILED = object()

_CONTROL: dict[type[Operation], tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    control.CondOp: ("cond", ("true_graph", "false_graph"), ("predicate", "inputs")),
    control.WhileLoopOp: (
        "while_loop",
        ("while_loop_cond_graph", "while_loop_body_graph"),
        ("carried", "additional"),
    ),
    control.MapOp: ("map_impl", ("body_graph",), ("sequences", "additional")),
    control.ScanOp: ("scan", ("scan_combine_graph",), ("initial", "sequences", "additional")),
}
"""Op → higher-order operator, the names of its sub-graphs, the groups of its operands."""


_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)


def _is_viewable(operand: Any, sizes: Any) -> bool:
    """Whether PyTorch can view an example value's memory; rewrites do not guarantee this.

    Fake tensors can be viewed whatever their strides, tensors on the meta device cannot.
    """
    if operand is None:  # An operand of a refused op.
        return True
    example = operand.meta["val"]
    shape, strides, view = (
        _hints(each) for each in (example.shape, example.stride(), _examples(sizes))
    )
    if shape is None or strides is None or view is None:
        return True
    try:
        torch.empty_strided(shape, strides, device="meta").view(view)
    except RuntimeError:
        return False
    return True


def _hints(sizes: Sequence[int | torch.SymInt]) -> list[int] | None:
    """Return sizes, symbolic ones as their values at export; None if a value is unknown."""
    hints = [size if isinstance(size, int) else size.node.hint for size in sizes]
    return None if None in hints else hints


def _examples(value: Any) -> Any:
    """Replace nodes by their example values, at any nesting of a call's arguments."""
    if isinstance(value, Node):
        return value.meta["val"]
    if isinstance(value, tuple | list):
        items = cast(Sequence[Any], value)
        return type(items)(_examples(item) for item in items)  # pyright: ignore[reportCallIssue]
    if isinstance(value, dict):
        return {name: _examples(item) for name, item in cast(dict[str, Any], value).items()}
    return value
