"""In-place operators made functional, where it can be proven that nobody sees the difference.

Export keeps `x.add_(1)` as it is written. In SSA the write is a new value, and everything that
stood for the old one stands for the new one from there on. That is the same program if, at the
write, no *other* view of the same memory is read later: neither by a node, nor by the caller
through a buffer or an input. Views are found by the alias annotations of the schemas. Where this
proof fails, and where a vmap or autocast is at work, torch's own functionalisation takes over
(`ExportedProgram.run_decompositions({})`, which decomposes nothing but what it must to know the
aliases).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from stepwell.dialects.aten.interpretation import WRITES_UNDECLARED
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.torch_private import has_kernel_for_key, schema_of
from stepwell.translate.torch_in.values import why_not_plain

_TRAINING_FLAGS = ("training", "train", "use_input_stats")
_MAY_BE_THE_SAME = frozenset(
    "slice alias detach detach_ lift_fresh view reshape expand contiguous to expand_as view_as "
    "reshape_as flatten _reshape_alias type_as".split()
)
"""View operators whose result of equal geometry is the operand itself."""

_FRESH = frozenset(
    "linear layer_norm group_norm batch_norm instance_norm matmul conv1d conv2d conv3d "
    "scaled_dot_product_attention gelu silu mish rms_norm embedding cross_entropy_loss "
    "conv_transpose1d conv_transpose2d conv_transpose3d multi_head_attention_forward where "
    "max_pool2d max_pool1d max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d avg_pool1d "
    "softmax log_softmax softplus relu6 selu prelu pixel_shuffle index_select hstack vstack stack "
    "rnn_tanh lstm gru ones zeros full arange one_hot tile type_promote __and__ __or__ __xor__ "
    "std var max min argsort sort topk item square true_divide multiply subtract divide".split()
)
"""Composite operators that never return their operand, though their schema cannot say so."""

_DROPOUTS = frozenset({"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"})
"""They return their operand itself outside of training."""

WRAPPERS = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}
"""Calls of a sub-graph under a mode of torch, and how many arguments stand before it."""


@dataclass
class Writes:
    """What in-place operators write: known before the graph is imported."""

    placeholders: dict[Node, None] = field(default_factory=dict[Node, None])
    """Inputs of the graph that are written, in the order of their first write."""
    same: dict[Node, list[Node]] = field(default_factory=dict[Node, list[Node]])
    """Every node of a written value → the nodes that are the same tensor."""


class AliasObserved(Exception):
    """What only torch takes apart: a write that another view sees, a vmap, casts by autocast.

    The message names the node.
    """


def is_wrapper(target: Any) -> bool:
    """Whether a node calls a sub-graph under a mode of torch."""
    return getattr(target, "__name__", "") in WRAPPERS


def _needs_torch(node: Node) -> str | None:
    """What a node does that only torch can take apart, or None."""
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


def _writes_undeclared(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if schema is None or not hasattr(schema, "overload_name"):
        return False
    name = schema.name.replace("::", ".") + "." + (schema.overload_name or "default")
    if name not in WRITES_UNDECLARED:
        return False
    for index, argument in enumerate(schema.arguments):
        given = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
        if argument.name in WRITES_UNDECLARED[name] and given is None:
            return False
        if argument.name in _TRAINING_FLAGS and given:
            return True
    return False


def functional(exported: ExportedProgram) -> tuple[ExportedProgram, Writes]:
    """A program whose writes can be imported, and those writes.

    Returns:
        The program itself where its in-place operators can be made functional as they are, else
        what torch's functionalisation makes of it.

    Raises:
        UnsupportedError: torch refuses to functionalise the program.
    """
    try:
        return exported, find_writes(exported)
    except AliasObserved as observed:
        reason = str(observed)
    try:
        rewritten = exported.run_decompositions({})
    except Exception as error:  # torch raises whatever it likes here
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UnsupportedError(
            f"{reason}, and torch cannot make the program functional: {first}"
        ) from error
    try:
        return rewritten, find_writes(rewritten)
    except AliasObserved as observed:
        raise UnsupportedError(f"{observed}, also after torch made it functional") from None


def find_writes(exported: ExportedProgram) -> Writes:
    """The in-place writes of a graph.

    Raises:
        AliasObserved: one of them can be seen through another view, or is hidden in a sub-graph.
    """
    nodes = list(exported.graph.nodes)
    writing = [n for n in nodes if n.op == "call_function" and is_written(n.target)]
    undeclared = [n for n in nodes if n.op == "call_function" and _writes_undeclared(n)]
    if undeclared:
        raise AliasObserved(f"node {undeclared[0].name} updates running statistics in training")
    for name, module in exported.graph_module.named_modules():
        if isinstance(module, GraphModule):
            for node in module.graph.nodes:
                if reason := _needs_torch(node):
                    raise AliasObserved(f"node {node.name} {reason}")
                if name and node.op == "call_function" and is_written(node.target):
                    raise AliasObserved(f"node {node.name} of {name} writes in place")
    if not writing:
        return Writes()
    wrapped = [n for n in nodes if n.op == "call_function" and is_wrapper(n.target)]
    if wrapped:
        raise AliasObserved(f"node {wrapped[0].name} may return a view of what is written")
    return _Aliases(nodes, exported).writes(writing)


class _Aliases:
    """Which nodes share memory, and which of them are the same tensor."""

    def __init__(self, nodes: list[Node], exported: ExportedProgram) -> None:
        self.order = {node: index for index, node in enumerate(nodes)}
        self.roots: dict[Node, Node] = {}
        self.tensors: dict[Node, Node] = {}
        self.members: dict[Node, list[Node]] = {}
        self.outer = {node for node in nodes if node.op in ("placeholder", "get_attr")}
        self.fixed = set(exported.graph_signature.inputs_to_parameters)
        self.fixed |= set(exported.graph_signature.inputs_to_lifted_tensor_constants)
        for node in nodes:
            if node.op != "output":
                self._place(node)
        self._join_tied(exported)

    def _join_tied(self, exported: ExportedProgram) -> None:
        """Placeholders whose tensors share memory share a root."""
        signature = exported.graph_signature
        names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        first: dict[int, Node] = {}
        for node in self.outer:
            tensor = exported.state_dict.get(names.get(node.name, ""))
            if tensor is None:
                tensor = exported.constants.get(names.get(node.name, ""))
            if not isinstance(tensor, torch.Tensor) or why_not_plain(tensor) or not tensor.numel():
                continue
            memory = tensor.untyped_storage().data_ptr()
            owner = first.setdefault(memory, node)
            if owner is not node:
                for member in self.members.pop(node, []):
                    self.roots[member] = owner
                    self.members[owner].append(member)

    def _place(self, node: Node) -> None:
        base, same = self._base(node)
        root = node if base is None else self.roots[base]
        self.roots[node] = root
        self.members.setdefault(root, []).append(node)
        self.tensors[node] = self.tensors[base] if same and base is not None else node

    def _base(self, node: Node) -> tuple[Node | None, bool]:
        """The node whose memory this one may share, and whether it is the very same tensor."""
        if node.op != "call_function":
            return None, False
        if node.target is operator.getitem:
            source = node.args[0]
            assert isinstance(source, Node)
            shares = self.roots[source] is not source
            return (source, False) if shares else (None, False)
        schema = getattr(node.target, "_schema", None)
        if schema is None or not hasattr(schema, "overload_name"):
            return None, False
        name = schema.name.rpartition("::")[2]
        for index, argument in enumerate(schema.arguments):
            info = argument.alias_info
            if info is None:
                continue
            given = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            if argument.name == "self" and _is_true(node, schema, "copy"):
                return None, False
            if isinstance(given, Node) and any(r.alias_info is not None for r in schema.returns):
                if info.is_write:
                    return given, True
                return given, name in _MAY_BE_THE_SAME and _geometry(given) == _geometry(node)
        if name in _DROPOUTS:
            given = node.args[0]
            idle = isinstance(given, Node) and not _is_true(node, schema, "train")
            return (given, True) if idle and isinstance(given, Node) else (None, False)
        if name not in _FRESH and _is_composite(node.target):
            for given in node.all_input_nodes:
                if isinstance(given.meta.get("val"), torch.Tensor):
                    return given, False
        return None, False

    def writes(self, writing: list[Node]) -> Writes:
        """Prove every write, in order."""
        found = Writes()
        for node in writing:
            for target in _written_arguments(node):
                self._check(node, target)
                tensor = self.tensors[target]
                if tensor in self.outer:
                    if tensor.name in self.fixed or tensor.op == "get_attr":
                        raise AliasObserved(f"node {node.name} writes to constant {tensor.name}")
                    found.placeholders[tensor] = None
                same = [m for m in self.members[self.roots[target]] if self.tensors[m] is tensor]
                for member in same:
                    found.same[member] = same
        return found

    def _check(self, write: Node, target: Node) -> None:
        at = self.order[write]
        tensor = self.tensors[target]
        for member in self.members[self.roots[target]]:
            if self.tensors[member] is tensor or self.order[member] > at:
                continue
            if member in self.outer or any(self.order[user] > at for user in member.users):
                raise AliasObserved(f"node {write.name} writes to memory that {member.name} shares")


def _written_arguments(node: Node) -> list[Node]:
    target: Any = node.target
    found: list[Node] = []
    for index, argument in enumerate(schema_of(target).arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
        if not isinstance(given, Node):
            raise AliasObserved(f"node {node.name} writes to a list of tensors")
        found.append(given)
    if len(found) != 1:
        raise AliasObserved(f"node {node.name} writes to {len(found)} tensors")
    if functional_overload(target) is None:
        raise AliasObserved(f"{target} has no functional form of its own")
    return found


def _is_true(node: Node, schema: Any, name: str) -> bool:
    for index, argument in enumerate(schema.arguments):
        if argument.name == name:
            given = node.args[index] if index < len(node.args) else node.kwargs.get(name)
            return bool(given)
    return False


def _is_composite(target: Any) -> bool:
    return has_kernel_for_key(target.name(), "CompositeImplicitAutograd")


def _geometry(node: Node) -> tuple[str, ...] | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    shape, stride = str(tuple(value.shape)), str(tuple(value.stride()))
    return shape, stride, str(value.storage_offset()), str(value.dtype)


_RENAMED: dict[str, str] = {
    "normal_": "normal_functional",
    "detach_": "detach",
    "lift_fresh_": "lift_fresh",
}


def functional_overload(target: Any) -> Any:
    """`aten.add.Tensor` for `aten.add_.Tensor`, None where no overload takes its arguments."""
    schema: Any = schema_of(target)
    namespace, name = str(schema.name).split("::")
    if not name.endswith("_") or name.endswith("__"):
        return None
    packet = getattr(getattr(torch.ops, namespace), _RENAMED.get(name) or name[:-1], None)
    found = getattr(packet, schema.overload_name or "default", None)
    if found is None or schema_of(found).is_mutable:
        return None
    wanted = [argument.name for argument in schema.arguments]
    return found if [a.name for a in schema_of(found).arguments] == wanted else None
