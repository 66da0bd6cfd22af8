"""Import of one FX graph into one block: every call becomes the op of its schema, in order.

A call is imported by the plan of its operator, which states the operands and the properties. Types
come from the example values that export recorded. Equal types, attributes and locations are shared
objects.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, StringAttr, UnknownLoc
from xdsl.ir import Attribute, Block, Operation, SSAValue

from stepwell.dialects import sym
from stepwell.dialects.aten.attributes import DYNAMIC, NONE, scalar_attribute
from stepwell.dialects.aten.op import EXPLICIT_NONE, KEYWORDS_FROM, SEGMENTS, SchemaOp, segments
from stepwell.dialects.aten.registry import of_overload
from stepwell.dialects.aten.schema import Argument
from stepwell.dialects.aten.text import Manner, call_layout
from stepwell.dialects.symbols import flat_types
from stepwell.ir.compat.torch.torch_private import HigherOrderOperator, schema_of
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import Problem, StepwellError, describe_location, quoted
from stepwell.ir.types import ScalarType, tensor_like
from stepwell.ir.weights import WeightStore, dense_bytes
from stepwell.translate.importer.calls import import_python_call
from stepwell.translate.importer.locations import Locations
from stepwell.translate.importer.mutation import Write, is_written
from stepwell.translate.importer.values import constant, why_not_plain
from stepwell.translate.importer.writes import import_write

WRITTEN_AS = "aten.written_as"
"""The overload that the program called, if the op is the overload that takes a number instead."""

Held = SSAValue | list[Any] | None
"""The value of a node, or a list of values for a call with several results."""


@dataclass(frozen=True)
class CallPlan:
    """How calls of one operator are imported."""

    cls: type[SchemaOp]
    arguments: tuple[Argument, ...]
    positional: int
    takes_scalars: bool
    has_segments: bool
    scalar_twin: Any
    """The overload with a number, if this one accepts a number in place of a tensor."""


@dataclass
class Importing:
    """State shared by the graphs of one import."""

    weights: WeightStore
    locations: Locations = field(default_factory=Locations)
    problems: list[Problem] = field(default_factory=list[Problem])

    def hold(self, key: str, tensor: torch.Tensor, node: Node) -> None:
        """Add a tensor of the program to the store; methods share tensors by name.

        A tensor that is no array of numbers is refused where a node reads it. A lazy negation or
        conjugation of the tensor is materialized.
        """
        reason = why_not_plain(tensor) if node.users else None
        if reason is not None:
            fact, help = reason
            self.refuse(node, f"weight {quoted(key)} {fact}", help)
        elif key not in self.weights:
            resolved = tensor.resolve_neg().resolve_conj() if node.users else tensor
            self.weights.add(key, resolved, trainable=tensor.requires_grad)
        elif not _same_tensor(self.weights.get(key), tensor):
            self.refuse(
                node,
                f"two methods give weight {key!r} different values",
                "export both from the same model",
            )

    def refuse(self, node: Node, fact: str, help: str | None = None) -> None:
        """Record an unsupported construct; all of them are reported at the end."""
        where = describe_location(self.locations.of(node))
        self.problems.append(Problem(fact, where, help))


def _same_tensor(held: torch.Tensor, tensor: torch.Tensor) -> bool:
    if held.dtype != tensor.dtype or held.shape != tensor.shape:
        return False
    if held.data_ptr() == tensor.data_ptr() and held.stride() == tensor.stride():
        return True
    return dense_bytes(held) == dense_bytes(tensor)


_PLANS: dict[Any, CallPlan] = {}


def plan_of(overload: Any) -> CallPlan:
    """Return the plan of a PyTorch or edge operator.

    Raises:
        StepwellError: its schema has no functional op.
    """
    plan = _PLANS.get(overload)
    if plan is None:
        cls = of_overload(overload)
        schema = cls.SCHEMA
        plan = _PLANS[overload] = CallPlan(
            cls,
            schema.arguments,
            sum(not argument.keyword_only for argument in schema.arguments),
            schema.takes_runtime_scalars,
            cls.HAS_SEGMENTS,
            _scalar_twin(overload),
        )
    return plan


def _scalar_twin(overload: Any) -> Any:
    """Return `aten.add.Scalar` for `aten.add.Tensor`: `x + 2.0` means a call of the former."""
    schema = schema_of(overload)
    namespace, operator_name = schema.name.split("::")
    if schema.overload_name not in ("Tensor", "Tensor_mode"):
        return None
    packet = getattr(getattr(torch.ops, namespace), operator_name)
    twin = getattr(packet, schema.overload_name.replace("Tensor", "Scalar"), None)
    if twin is None:
        return None
    names = [argument.name for argument in schema.arguments]
    return twin if {a.name for a in schema_of(twin).arguments} >= set(names) else None


class GraphImporter:
    """Appends the ops of one graph to one block; `values` maps nodes to their values."""

    def __init__(self, shared: Importing, module: GraphModule, block: Block, prefix: str) -> None:
        self.shared = shared
        self.module = module
        self.block = block
        self.prefix = prefix
        self.values: dict[Node, Held] = {}
        self.writes: Mapping[Node, tuple[Write, ...]] = {}
        """The in-place writes of the graph's calls."""
        self.returned: dict[Node, list[Any]] = {}
        """Call of a sub-graph that is inlined in this block → the nodes that it returns."""

    def body(self, nodes: Sequence[Node]) -> None:
        """Import every node but placeholders and the output."""
        for node in nodes:
            if node.op == "call_function":
                self.call(node)
            elif node.op == "get_attr":
                self.get_attr(node)
            elif node.op not in ("placeholder", "output"):
                self.refuse(node, f"{node.op} {node.target}: a graph of torch.export holds none")

    def call(self, node: Node) -> None:
        """Import a `call_function` node; an unsupported one is recorded, and the import goes on."""
        target = node.target
        if target is operator.getitem:
            self._get_item(node)
            return
        try:
            if hasattr(target, "_schema") and not isinstance(target, HigherOrderOperator):
                self.operator(node, target)
            else:
                self.python_call(node, target)
        except StepwellError as error:
            problem = error.problems[0]
            self.refuse(node, f"{spelled(target)}: {problem.fact}", problem.help)

    def refuse(self, node: Node, fact: str, help: str | None = None) -> None:
        """Record a problem; the node's users are skipped without a message."""
        self.shared.refuse(node, fact, help)
        self.values[node] = None

    def operator(self, node: Node, overload: Any) -> None:
        """Import a call of a PyTorch operator."""
        writes = self.writes.get(node)
        if writes is not None:
            import_write(self, node, writes)
        elif is_written(overload):
            raise StepwellError("it writes in place and has no functional overload")
        elif not node.users and node.meta.get("val") is None and schema_of(overload).returns:
            return  # A dtype of `promote_types`; export has used its value.
        elif (op := self.operator_call(node, overload)) is not None:
            self.append(op, node)

    def operator_call(self, node: Node, overload: Any) -> SchemaOp | None:
        """Return the op of an overload for a node, not inserted; None if an operand is missing."""
        plan = plan_of(overload)
        twin = plan.scalar_twin
        if twin is None or len(node.args) < 2 or not self._is_number(node.args[1]):
            return self.schema_op(plan, node.args, node.kwargs, node)
        op = self.schema_op(plan_of(twin), node.args, node.kwargs, node)
        if op is not None:
            op.attributes[WRITTEN_AS] = StringAttr(schema_of(overload).overload_name)
        return op

    def _is_number(self, value: Any) -> bool:
        if isinstance(value, Node):
            held = self.values.get(value)
            return isinstance(held, SSAValue) and isinstance(held.type, ScalarType)
        return isinstance(value, int | float | complex)

    def append(self, op: Operation, node: Node) -> None:
        """Append an op to the block, with its results as the node's value."""
        if isinstance(op.location, UnknownLoc):
            op.location = self.shared.locations.of(node)
        self.block.add_op(op)
        results = op.results
        if isinstance(node.meta.get("val"), tuple | list):
            self.values[node] = _regroup(node.meta["val"], list(results))
        elif results:
            results[0].name_hint = node.name
            self.values[node] = results[0]
        else:
            self.values[node] = None

    def schema_op(
        self, plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any], node: Node
    ) -> SchemaOp | None:
        """Return the op of a call, not inserted; None if an operand could not be imported."""
        values = self.values
        operands: list[SSAValue] = []
        sizes: list[int] = []
        properties: dict[str, Attribute] = {}
        dynamic: list[SSAValue] = []
        nones = named = False
        given = len(args)
        for index, argument in enumerate(plan.arguments):
            if index < given:
                value = args[index]
            elif kwargs and argument.name in kwargs:
                value = kwargs[argument.name]
                named = named or not argument.keyword_only
            else:
                if argument.type.is_tensor:
                    sizes.append(0)
                continue
            if argument.type.is_tensor:
                if isinstance(value, Node):
                    held = values[value]
                    if isinstance(held, list):
                        operands.extend(held)
                        sizes.append(len(held))
                        continue
                    if held is None:
                        return self._skipped(node)
                    operands.append(held)
                    sizes.append(1)
                elif value is None and not argument.type.is_list:
                    nones = True
                    sizes.append(0)
                else:
                    before = len(operands)
                    if isinstance(value, int | float | complex):
                        value = self._number(value, node)
                    if not self._tensor_list(argument, value, operands, properties):
                        return self._skipped(node)
                    sizes.append(len(operands) - before)
            elif isinstance(value, Node):
                held = values[value]
                if not isinstance(held, SSAValue):
                    return self._skipped(node)
                dynamic.append(held)
                properties[argument.name] = DYNAMIC
            elif isinstance(value, list | tuple) and any(isinstance(v, Node) for v in value):
                properties[argument.name] = self._mixed_list(value, dynamic)
            else:
                properties[argument.name] = constant(value, argument)
        if plan.takes_scalars:
            sizes.append(len(dynamic))
            operands.extend(dynamic)
        elif dynamic:
            raise StepwellError("it takes no numbers known only at run time")
        if plan.has_segments:
            properties[SEGMENTS] = segments(tuple(sizes))
        attributes = _call_style(plan, args, kwargs) if nones or named else {}
        types = flat_types(node.meta["val"]) if plan.cls.SCHEMA.returns else ()
        return plan.cls.create(
            operands=operands,
            result_types=types,
            properties=properties,
            attributes=attributes,
            location=self.shared.locations.of(node),
        )

    def python_call(self, node: Node, target: Any) -> None:
        """Import a call of something other than an operator with a schema."""
        import_python_call(self, node, target)

    def inner(self, module: GraphModule, block: Block, prefix: str) -> GraphImporter:
        """Return an importer of a sub-graph."""
        graph_importer = GraphImporter(self.shared, module, block, prefix)
        graph_importer.writes = self.writes
        return graph_importer

    def get_attr(self, node: Node) -> None:
        """Import a tensor attribute of the graph module; sub-graphs are read by their users."""
        module: Any = self.module
        for part in str(node.target).split("."):
            module = getattr(module, part)
        if isinstance(module, torch.nn.Module):
            return  # A sub-graph or a lowered delegate: its only user imports or refuses it.
        if not isinstance(module, torch.Tensor):
            self.refuse(node, f"get_attr {node.target} is a {type(module).__name__}")
            return
        key = f"{self.prefix}{node.target}"
        self.shared.hold(key, module, node)
        op = WeightOp(key, tensor_like(module))
        self.append(op, node)

    def value(self, node: Any) -> SSAValue:
        """Return the single value of an imported node."""
        held = self.values.get(node)
        if not isinstance(held, SSAValue):
            raise StepwellError(f"{node} has no single value")
        return held

    def _get_item(self, node: Node) -> None:
        source, index = node.args
        value = self.values.get(source) if isinstance(source, Node) else None
        if source in self.returned and isinstance(index, int):
            value = [self.values.get(item) for item in self.returned[source]]
        if isinstance(value, list):
            found = value[index] if isinstance(index, int) else None
            self.values[node] = found
            if isinstance(found, SSAValue) and found.name_hint is None:
                found.name_hint = node.name
        elif isinstance(value, SSAValue) and index == 0:
            self.values[node] = value
        else:
            self.values[node] = None

    def _skipped(self, node: Node) -> None:
        """Skip a node that reads an unsupported one, whose reason is recorded."""
        if not self.shared.problems:
            self.shared.refuse(node, f"{spelled(node.target)}: an operand has no value")
        self.values[node] = None

    def _tensor_list(
        self,
        argument: Argument,
        value: Any,
        operands: list[SSAValue],
        properties: dict[str, Attribute],
    ) -> bool:
        if value is None:
            properties[f"{argument.name}_present"] = NONE
            return True
        complete = True
        items = value if isinstance(value, list | tuple) else [value]
        for item in items:
            if item is None:
                complete = False
                continue
            held = item if isinstance(item, SSAValue) else self.values.get(item)
            if not isinstance(held, SSAValue):
                return False
            operands.append(held)
        if not complete:
            properties[f"{argument.name}_present"] = ArrayAttr(
                [BoolAttr.from_bool(item is not None) for item in items]
            )
        return True

    def _number(self, value: int | float | complex, node: Node) -> SSAValue:
        """Return a number as a tensor, if no overload takes a number."""
        if isinstance(value, complex):
            raise StepwellError("it is given a complex number where it takes a tensor")
        op = sym.ConstantOp(value)
        op.location = self.shared.locations.of(node)
        self.block.add_op(op)
        return op.result

    def _mixed_list(self, items: Sequence[Any], dynamic: list[SSAValue]) -> Attribute:
        attributes: list[Attribute] = []
        for item in items:
            if isinstance(item, Node):
                dynamic.append(self.value(item))
                attributes.append(DYNAMIC)
            else:
                attributes.append(scalar_attribute(item))
        return ArrayAttr(attributes)


def _regroup(shape: Any, results: list[SSAValue]) -> list[Any]:
    """Nest results in getitem's structure: `(Tensor[], Tensor)` is a list and a value."""
    rest = iter(results)

    def take(item: Any) -> Any:
        return [take(part) for part in item] if isinstance(item, tuple | list) else next(rest)

    return [take(item) for item in shape]


def _call_style(
    plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]
) -> dict[str, Attribute]:
    """Return how the call was written, if it matters: names used, None passed explicitly."""
    passed: dict[str, Manner] = {}
    nones: list[str] = []
    keyword: str | None = None
    for index, argument in enumerate(plan.arguments):
        by_position = index < len(args)
        if not by_position and argument.name not in kwargs:
            continue
        value = args[index] if by_position else kwargs[argument.name]
        passed[argument.name] = "position" if by_position else "name"
        if not by_position and not argument.keyword_only and keyword is None:
            keyword = argument.name
        if value is None and argument.type.is_tensor and not argument.type.is_list:
            nones.append(argument.name)
    style: dict[str, Attribute] = {}
    if call_layout(plan.arguments, passed, None) == passed:
        keyword = None
    if keyword is not None:
        style[KEYWORDS_FROM] = StringAttr(keyword)
    if nones:
        fillers = call_layout(plan.arguments, [n for n in passed if n not in nones], keyword)
        names = [name for name in nones if fillers.get(name) != "filler"]
        if names:
            style[EXPLICIT_NONE] = ArrayAttr([StringAttr(name) for name in names])
    return style


def spelled(target: Any) -> str:
    """Return the name of a call's target for messages: `aten.add_.Tensor`."""
    schema = getattr(target, "_schema", None)
    if schema is not None and hasattr(schema, "overload_name"):
        return schema.name.replace("::", ".") + "." + (schema.overload_name or "default")
    return str(getattr(target, "__name__", target))
