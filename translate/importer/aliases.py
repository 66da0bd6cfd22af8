"""Alias analysis: which nodes of a graph are one tensor, which are views of another, and how.

A node is *the same tensor* as another (`detach`, an in-place call and the tensor it wrote), a
*view* of one, or *fresh*. The alias annotations of schemas state which operators may return views.
If such an operator may also copy (`reshape`, `contiguous`, a composite operator without
annotation), it is run on tensors without memory that have the graph's strides.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from stepwell.ir.compat.torch.torch_private import has_kernel_for_key, memory_of, pytree, schema_of
from stepwell.ir.declared.families import families_of
from stepwell.translate.importer.values import why_not_plain

WRAPPERS = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}
"""Calls of a sub-graph under a mode of PyTorch, and how many arguments precede it."""

_VIEWS = frozenset(
    "slice select diagonal transpose t numpy_T mT permute movedim swapaxes swapdims moveaxis view "
    "_unsafe_view unsqueeze squeeze unflatten view_as split split_with_sizes chunk tensor_split "
    "hsplit vsplit dsplit unbind narrow expand expand_as broadcast_to alias detach detach_ "
    "lift_fresh as_strided unfold real imag view_as_real view_as_complex mH adjoint "
    "matrix_H".split()
)
"""Operators whose result always shares their operand's memory."""

_FRESH = frozenset(
    "linear matmul conv1d conv2d conv3d scaled_dot_product_attention cross_entropy_loss "
    "conv_transpose1d conv_transpose2d conv_transpose3d where max_pool2d max_pool1d max_pool3d "
    "adaptive_avg_pool1d adaptive_avg_pool2d avg_pool1d relu6 selu prelu hstack vstack rnn_tanh "
    "lstm gru one_hot tile __and__ __or__ __xor__ std var max min argsort item square true_divide "
    "multiply subtract divide".split()
)
"""Composite operators that never return their operand, which their schema cannot state; neither do
normalizations.
"""

_DROPOUTS = frozenset({"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"})
"""Operators that return their operand itself outside of training."""


@dataclass(frozen=True)
class View:
    """A tensor of the graph that shares another one's memory."""

    base: Node
    node: Node
    """The call that creates it from `base`."""
    index: int | None = None
    """The index of the call's result, if it has several."""
    sure: bool = True
    """Whether it is a view on every run: a composite operator may have returned a copy."""


def is_wrapper(target: Any) -> bool:
    """Whether a node calls a sub-graph under a mode of PyTorch."""
    return getattr(target, "__name__", "") in WRAPPERS


def wrapped(node: Node) -> tuple[Node, list[Any]]:
    """Return the node of the sub-graph that a wrapper calls, and its arguments."""
    graph, *inputs = node.args[WRAPPERS[getattr(node.target, "__name__", "")] :]
    assert isinstance(graph, Node)
    return graph, inputs


def sub_graph(module: GraphModule, graph: Node) -> GraphModule:
    """Return the sub-graph of a graph module that a node names."""
    inner = getattr(module, str(graph.target))
    assert isinstance(inner, GraphModule)
    return inner


def returned(module: GraphModule) -> list[Any]:
    """Return the results of a sub-graph, in order."""
    found = next(n for n in reversed(module.graph.nodes) if n.op == "output").args[0]
    return list(found) if isinstance(found, list | tuple) else [found]


def arguments(node: Node) -> dict[str, Any]:
    """Return the arguments of an operator call by schema name, without omitted ones."""
    target: Any = node.target
    names = [argument.name for argument in schema_of(target).arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def has_schema(target: Any) -> bool:
    """Whether a node calls an operator overload."""
    schema = getattr(target, "_schema", None)
    return schema is not None and hasattr(schema, "overload_name")


def base_name(target: Any) -> str:
    """Return `slice` for `aten::slice.Tensor`."""
    return str(schema_of(target).name).rpartition("::")[2]


@dataclass
class Aliases:
    """The tensors of one graph, including sub-graphs under a mode of PyTorch."""

    module: GraphModule
    owners: Mapping[Node, Node] = field(default_factory=dict[Node, Node])
    """Placeholder → an earlier one with the identical tensor."""
    order: dict[Node, int] = field(default_factory=dict[Node, int])
    tensors: dict[Node, Node] = field(default_factory=dict[Node, Node])
    """Node → the first node that is this tensor."""
    views: dict[Node, View] = field(default_factory=dict[Node, View])
    """Tensor → its view of another one; other tensors own their memory."""
    _lists: dict[Node, View] = field(default_factory=dict[Node, View])
    """Call with several results → their views of an operand."""
    _returns: dict[Node, list[Any]] = field(default_factory=dict[Node, list[Any]])
    """Wrapper → the results of its sub-graph."""

    def __post_init__(self) -> None:
        for node, same in _flat(self.module, self._returns):
            self.order[node] = len(self.order)
            if same is not None:
                self.tensors[node] = self.tensors[same]
            elif node.op != "output":
                self._place(node)

    def root(self, tensor: Node) -> Node:
        """Return the tensor that owns the memory of a tensor."""
        while tensor in self.views:
            tensor = self.views[tensor].base
        return tensor

    def path(self, tensor: Node) -> list[View]:
        """Return the views that lead from a tensor to the tensor that owns its memory."""
        views: list[View] = []
        while tensor in self.views:
            views.append(self.views[tensor])
            tensor = self.views[tensor].base
        return views

    def same(self, tensor: Node) -> tuple[Node, ...]:
        """Return all nodes that are this very tensor."""
        return tuple(node for node, is_ in self.tensors.items() if is_ is tensor)

    def is_read_after(self, tensor: Node, at: int) -> bool:
        """Whether a node after a position reads a tensor."""
        return any(
            self.order.get(user, -1) > at for node in self.same(tensor) for user in node.users
        )

    def _place(self, node: Node) -> None:
        found = self._of(node)
        if isinstance(found, Node):
            self.tensors[node] = self.tensors[found]
            return
        self.tensors[node] = node
        if found is not None:
            self.views[node] = found

    def _of(self, node: Node) -> Node | View | None:
        """Return the node that a node renames or views, or None if it owns its memory."""
        if node.op != "call_function":
            return self.owners.get(node)
        if node.target is operator.getitem:
            source, index = node.args
            assert isinstance(source, Node)
            if source in self._returns:
                assert isinstance(index, int)
                item = self._returns[source][index]
                return item if isinstance(item, Node) else None
            view = self._lists.get(source)
            if view is None or not isinstance(index, int):
                return None
            return View(view.base, view.node, index, view.sure)
        if not has_schema(node.target):
            return None
        found = self._annotated(node)
        if isinstance(found, View) and isinstance(node.meta.get("val"), list | tuple):
            self._lists[node] = found
            return None
        return found

    def _annotated(self, node: Node) -> Node | View | None:
        target: Any = node.target
        schema, name, given = schema_of(target), base_name(target), arguments(node)
        for argument in schema.arguments:
            source = given.get(argument.name)
            if argument.alias_info is None or not isinstance(source, Node):
                continue
            if not any(result.alias_info is not None for result in schema.returns):
                continue
            if argument.alias_info.is_write:
                return source
            if argument.name == "self" and given.get("copy"):
                return None
            return self._view(node, source, name in _VIEWS)
        if name in _DROPOUTS:
            source = node.args[0]
            assert isinstance(source, Node)
            return None if given.get("train") else source
        if name in _FRESH or "normalization" in families_of(str(target)):
            return None
        if not has_kernel_for_key(target.name(), "CompositeImplicitAutograd"):
            return None
        for source in node.all_input_nodes:
            if isinstance(source.meta.get("val"), torch.Tensor):
                found = self._view(node, source, False)
                if found is not None:
                    return found
        return None

    def _view(self, node: Node, source: Node, always: bool) -> Node | View | None:
        base = self.tensors[source]
        if not always:
            shares = _shares_memory(node, source)
            if shares is False:
                return None
            if shares is None:
                return View(base, node, sure=False)
        if geometry(source) is not None and geometry(source) == geometry(node):
            return source
        return View(base, node)


def _flat(
    module: GraphModule, returns: dict[Node, list[Any]]
) -> Iterator[tuple[Node, Node | None]]:
    """Yield every node in order of execution, with the node that it merely renames, if any."""
    for node in module.graph.nodes:
        if node.op == "call_function" and is_wrapper(node.target):
            graph, inputs = wrapped(node)
            inner = sub_graph(module, graph)
            placed = [n for n in inner.graph.nodes if n.op == "placeholder"]
            for inside, given in zip(placed, inputs, strict=True):
                yield inside, given if isinstance(given, Node) else None
            for inside, same in _flat(inner, returns):
                if inside.op not in ("placeholder", "output"):
                    yield inside, same
            returns[node] = returned(inner)
        yield node, None


def geometry(node: Node) -> tuple[str, ...] | None:
    """Return the memory layout of a tensor; None for a node that is no tensor."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    shape, stride = str(tuple(value.shape)), str(tuple(value.stride()))
    return shape, stride, str(value.storage_offset()), str(value.dtype)


def is_row_major(node: Node) -> bool:
    """Whether a tensor is row-major and without gaps, for all sizes."""
    value = node.meta["val"]
    expected: Any = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if str(stride) != str(expected) and str(size) != "1":
            return False
        expected = size * expected
    return True


def _shares_memory(node: Node, source: Node) -> bool | None:
    """Whether a call returns an operand's memory; None if that is undecidable."""
    name = base_name(node.target)
    if name in ("to", "contiguous", "type_as", "clone", "resolve_conj", "resolve_neg"):
        return geometry(node) == geometry(source)  # Otherwise they copy.
    stand_ins: dict[Node, torch.Tensor] = {}
    for input_node in node.all_input_nodes:
        value = input_node.meta.get("val")
        if not isinstance(value, torch.Tensor) or not _is_static(value):
            return True if name in ("reshape", "flatten") and is_row_major(source) else None
        stand_ins[input_node] = torch.empty_strided(
            tuple(value.shape), value.stride(), dtype=value.dtype, device="meta"
        )
    args, kwargs = pytree.tree_map_only(Node, stand_ins.__getitem__, (node.args, node.kwargs))
    target: Any = node.target
    try:
        with torch.no_grad():
            results = target(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError):
        return None
    memory = memory_of(stand_ins[source].untyped_storage())
    return any(
        isinstance(result, torch.Tensor) and memory_of(result.untyped_storage()) == memory
        for result in pytree.tree_leaves(results)
    )


def _is_static(value: torch.Tensor) -> bool:
    return not any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride()))


def twins(exported: ExportedProgram) -> tuple[dict[Node, Node], set[Node]]:
    """Return placeholders of tensors that share memory.

    Returns:
        A map from placeholders to an earlier placeholder of the identical tensor; and the
            placeholders that share memory in any other way.
    """
    signature = exported.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    owners: dict[Node, Node] = {}
    mixed: set[Node] = set()
    held: dict[int, list[tuple[Node, torch.Tensor]]] = {}
    for node in exported.graph.nodes:
        if node.op != "placeholder":
            continue
        name = names.get(node.name, "")
        tensor = exported.state_dict.get(name, exported.constants.get(name))
        if not isinstance(tensor, torch.Tensor) or why_not_plain(tensor) or not tensor.numel():
            continue
        others = held.setdefault(tensor.untyped_storage().data_ptr(), [])
        for other, seen in others:
            if _lies_as(tensor, seen):
                owners[node] = owners.get(other, other)
            else:
                mixed |= {node, other}
        others.append((node, tensor))
    return owners, mixed


def _lies_as(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.shape, one.stride(), one.dtype, one.data_ptr()) == (
        other.shape,
        other.stride(),
        other.dtype,
        other.data_ptr(),
    )
