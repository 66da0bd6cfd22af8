"""Functionalization of in-place operators.

Export keeps in-place operators such as `x.add_(1)`. In SSA form the write is a new value, which
replaces the tensor from there on. A write to a view is written back to the viewed tensor, up to the
tensor that owns the memory. Every other view that is read later is recomputed from the new value:

    y = x.t()[0]; z = x[1]; y.add_(1); z * 2
    y' = y + 1; x' = select_scatter(x.t(), y', 0, 0).t(); z' = x'[1]; z' * 2

The alias analysis (`aliases`) proves which tensors share memory, and how. Where it cannot, and
under vmap or autocast, PyTorch's own functionalization is used
(`ExportedProgram.run_decompositions`, which decomposes only the operators whose aliases it must
know). It replaces PyTorch's globals, and is called apart from other code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from stepwell.dialects.aten.interpretation import WRITES_UNDECLARED
from stepwell.dialects.aten.registry import functional_overload
from stepwell.ir.compat.torch.torch_globals import torch_alone
from stepwell.ir.compat.torch.torch_private import pytree, schema_of
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.translate.importer.aliases import (
    Aliases,
    View,
    arguments,
    base_name,
    has_schema,
    is_wrapper,
    sub_graph,
    twins,
    wrapped,
)
from stepwell.translate.importer.view_inverses import can_be_put_back

_TRAINING_FLAGS = ("training", "train", "use_input_stats")
_OF_SHAPE = frozenset(
    "t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ resize_ resize_as_ "
    "set_".split()
)
"""Operators that change the metadata of a tensor object, and no memory."""


@dataclass(frozen=True)
class Renewal:
    """A tensor that gets a new value after a write to its memory."""

    nodes: tuple[Node, ...]
    """All nodes that are this tensor."""
    piece: Node
    """The tensor that is a view of the other."""
    view: View
    """The view between them."""
    is_base: bool
    """Whether the base gets a new value, by writing the view back; otherwise the view does."""


@dataclass(frozen=True)
class Write:
    """A write of a call to one of its arguments."""

    argument: str
    same: tuple[Node, ...]
    renewals: tuple[Renewal, ...]


@dataclass
class Writes:
    """The writes of in-place operators, computed before the graph is imported."""

    placeholders: dict[Node, None] = field(default_factory=dict[Node, None])
    """Inputs of the graph that are written, in the order of their first write."""
    calls: dict[Node, tuple[Write, ...]] = field(default_factory=dict[Node, tuple[Write, ...]])
    """Call that writes → its writes."""


class AliasObserved(Exception):
    """Raised if the alias analysis fails, so that only PyTorch can functionalize the program. The
    message names the node.
    """


def _needs_torch(node: Node) -> str | None:
    """Return the reason why only PyTorch can functionalize a node, or None."""
    if node.op != "call_function":
        return None
    target: Any = node.target
    if getattr(target, "__module__", "") == "torch._functorch.predispatch":
        return "belongs to a vmap"
    if getattr(target, "__name__", "") == "wrap_with_autocast":
        device, _, enabled, *_ = node.args
        return "computes under autocast" if enabled and device == "cpu" else None
    return None


def is_written(target: Any) -> bool:
    """Whether a call of this target writes to an argument, by its schema."""
    schema = getattr(target, "_schema", None)
    return schema is not None and bool(getattr(schema, "is_mutable", False))


def writes_statistics(node: Node) -> bool:
    """Whether a call updates running statistics, which its schema does not state."""
    if node.op != "call_function" or not has_schema(node.target):
        return False
    target: Any = node.target
    schema = schema_of(target)
    statistics = WRITES_UNDECLARED.get(
        schema.name.replace("::", ".") + "." + (schema.overload_name or "default"), ()
    )
    given = arguments(node)
    if not statistics or any(given.get(name) is None for name in statistics):
        return False
    return any(given.get(flag) for flag in _TRAINING_FLAGS)


def functional(exported: ExportedProgram) -> tuple[ExportedProgram, Writes]:
    """Return a program whose writes can be imported, and those writes.

    Returns:
        The program itself if its in-place operators can be made functional as they are, else the
        result of PyTorch's functionalization.

    Raises:
        UnsupportedError: PyTorch refuses to functionalize the program.
    """
    try:
        return exported, find_writes(exported)
    except AliasObserved as observed:
        reason = str(observed)
    try:
        with torch_alone():
            rewritten = exported.run_decompositions({})
    except Exception as error:  # PyTorch may raise any exception here.
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UnsupportedError(
            f"{reason}, and torch cannot functionalize the program: {first}"
        ) from error
    try:
        return rewritten, find_writes(rewritten)
    except AliasObserved as observed:
        raise UnsupportedError(f"{observed}, also after torch functionalized the program") from None


def find_writes(exported: ExportedProgram) -> Writes:
    """Return the in-place writes of a graph.

    Raises:
        AliasObserved: the memory that a write changes is not certain.
        UnsupportedError: a write changes memory that two buffers view differently.
    """
    writes = Writes()
    graphs = list(_graphs(exported.graph_module))
    for _, nodes in graphs:
        for node in nodes:
            if reason := _needs_torch(node):
                raise AliasObserved(f"node {node.name} {reason}")
    for module, nodes in graphs:
        writing = [node for node in nodes if _is_writing(node)]
        if not writing:
            continue
        is_method = module is exported.graph_module
        _Planner(module, exported if is_method else None, writes).plan(writing)
    return writes


def _is_writing(node: Node) -> bool:
    return node.op == "call_function" and (is_written(node.target) or writes_statistics(node))


def _graphs(module: GraphModule) -> Iterator[tuple[GraphModule, list[Node]]]:
    """Yield the graph of a method and of each sub-graph that control flow calls.

    Sub-graphs under a mode of PyTorch are inlined at their calls.
    """
    own: list[Node] = []
    called: list[GraphModule] = []

    def read(at: GraphModule) -> None:
        under_modes = [
            sub_graph(at, wrapped(n)[0])
            for n in at.graph.nodes
            if n.op == "call_function" and is_wrapper(n.target)
        ]
        own.extend(at.graph.nodes)
        for _, inner in at.named_children():
            if not isinstance(inner, GraphModule):
                continue
            if any(inner is one for one in under_modes):
                read(inner)
            else:
                called.append(inner)

    read(module)
    yield module, own
    for inner in called:
        yield from _graphs(inner)


class _Planner:
    """Determines the tensors whose value changes at each write of one graph."""

    def __init__(
        self, module: GraphModule, exported: ExportedProgram | None, found: Writes
    ) -> None:
        owners, self.mixed = ({}, set()) if exported is None else twins(exported)
        self.aliases = Aliases(module, owners)
        self.found = found
        self.is_method = exported is not None
        self.fixed: set[str] = set()
        if exported is not None:
            signature = exported.graph_signature
            self.fixed = {*signature.inputs_to_parameters}
            self.fixed |= {*signature.inputs_to_lifted_tensor_constants}

    def plan(self, writing: list[Node]) -> None:
        """Determine the tensors whose value each write of the graph changes, in order."""
        for node in writing:
            targets = _written_arguments(node)
            if base_name(node.target) in _OF_SHAPE:
                self._check_shape_alone(node, next(iter(targets.values())))
            if _copies_onto_itself(node, self.aliases):
                targets = {}
            roots = [self.aliases.root(self.aliases.tensors[t]) for t in targets.values()]
            if len(set(roots)) < len(roots):
                raise AliasObserved(f"node {node.name} writes to one memory twice")
            self.found.calls[node] = tuple(
                self._write(node, name, target) for name, target in targets.items()
            )

    def _write(self, node: Node, argument: str, target: Node) -> Write:
        aliases = self.aliases
        tensor = aliases.tensors[target]
        path = aliases.path(tensor)
        for view in path:
            if not can_be_put_back(view):
                raise AliasObserved(f"node {node.name} writes to memory that {view.base} shares")
        root = aliases.root(tensor)
        self._note_root(node, root)
        pieces = [tensor, *(view.base for view in path)]
        up = [
            Renewal(aliases.same(view.base), piece, view, is_base=True)
            for piece, view in zip(pieces, path, strict=False)
        ]
        down = [
            Renewal(aliases.same(other), other, aliases.views[other], is_base=False)
            for other in self._read_again(node, root, set(pieces))
        ]
        return Write(argument, aliases.same(tensor), (*up, *down))

    def _note_root(self, node: Node, root: Node) -> None:
        if root.op not in ("placeholder", "get_attr"):
            return
        same = [n for n in self.aliases.same(root) if n.op == "placeholder"]
        if not self.is_method or root.op == "get_attr" or any(n.name in self.fixed for n in same):
            raise AliasObserved(f"node {node.name} writes to constant {root.name}")
        if any(n in self.mixed for n in same):
            raise UnsupportedError(
                f"node {node.name} writes to {root.name}, of which another buffer is a view",
                help="register one of them, and take the view in forward",
            )
        # Placeholders of sub-graphs are other names for the method's tensors.
        self.found.placeholders |= dict.fromkeys(n for n in same if n.graph is root.graph)

    def _read_again(self, node: Node, root: Node, renewed: set[Node]) -> list[Node]:
        """Return tensors in the same memory that are read after a write, and their bases."""
        aliases = self.aliases
        at = aliases.order[node]
        wanted: set[Node] = set()
        for other in aliases.views:
            if aliases.order[aliases.views[other].node] > at or aliases.root(other) is not root:
                continue
            if other in renewed or not aliases.is_read_after(other, at):
                continue
            for view in aliases.path(other):
                if not view.sure:
                    raise AliasObserved(
                        f"node {node.name} writes to memory that {view.node.name} may share"
                    )
            while other not in renewed | wanted:
                wanted.add(other)
                other = aliases.views[other].base
        return sorted(wanted, key=aliases.order.__getitem__)

    def _check_shape_alone(self, node: Node, target: Node) -> None:
        """Check that a tensor whose own shape changes shares its memory with no other tensor."""
        aliases = self.aliases
        tensor = aliases.tensors[target]
        alone = all(aliases.root(other) is not tensor for other in aliases.views)
        if tensor in aliases.views or not alone or tensor.op == "placeholder":
            raise AliasObserved(f"node {node.name} changes the shape of a tensor that is shared")


def _written_arguments(node: Node) -> dict[str, Node]:
    """Return the tensors that a call writes to, by argument name."""
    given = arguments(node)
    target: Any = node.target
    if not is_written(target):
        names = WRITES_UNDECLARED[f"aten.{base_name(target)}.default"]
        if base_name(target) != "batch_norm":
            raise AliasObserved(f"node {node.name} updates running statistics in training")
        return {name: given[name] for name in names}
    written = [
        a.name for a in schema_of(target).arguments if a.alias_info and a.alias_info.is_write
    ]
    found = {name: given.get(name) for name in written}
    if not all(isinstance(value, Node) for value in found.values()):
        raise AliasObserved(f"node {node.name} writes to a list of tensors")
    if functional_form(target) is None and not _is_custom(target):
        raise AliasObserved(f"{target} has no functional form of its own")
    return {name: value for name, value in found.items() if value is not None}


def _is_custom(target: Any) -> bool:
    """Whether a node calls a custom operator that writes and returns none of the written
    tensors.
    """
    schema = schema_of(target)
    return target.namespace not in ("aten", "prims", "prim") and not any(
        result.alias_info is not None for result in schema.returns
    )


def _copies_onto_itself(node: Node, aliases: Aliases) -> bool:
    """Whether a node is the second half of `x[i] += y`, which assigns the written view to
    itself.
    """
    if base_name(node.target) != "copy_":
        return False
    given = arguments(node)
    source, target = given["src"], given["self"]
    if not isinstance(source, Node):
        return False
    return _place(aliases, source) == _place(aliases, target)


def _place(aliases: Aliases, node: Node) -> tuple[Any, ...]:
    """Return a key that is equal for two tensors over the same part of the same memory."""
    tensor = aliases.tensors[node]
    found: list[Any] = [aliases.root(tensor)]
    for view in aliases.path(tensor):
        if not view.sure:
            return (tensor,)
        given = arguments(view.node)
        given.pop("self", None)
        found += [view.node.target, view.index, *pytree.tree_leaves(sorted(given.items()))]
    return tuple(found)


_RENAMED: dict[str, str] = {
    "normal_": "normal_functional",
    "detach_": "detach",
    "lift_fresh_": "lift_fresh",
}


def functional_form(target: Any) -> Any:
    """Return the functional overload of an operator that writes, also under another name."""
    return functional_overload(target, _RENAMED.get(base_name(target)))
