"""Import of one FX graph into one block: every call becomes the op of its schema, in order.

The schema states which arguments of a call are operands and which are properties. Types come from
the example values that export recorded. Equal types, attributes and locations are shared objects.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch.fx import GraphModule, Node
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, StringAttr, TensorType
from xdsl.ir import Attribute, Block, SSAValue

from stepwell.dialects import sym
from stepwell.dialects.aten.attributes import DYNAMIC, NONE, scalar_attribute
from stepwell.dialects.aten.op import EXPLICIT_NONE, KEYWORDS_FROM, SEGMENTS, SchemaOp, segments
from stepwell.dialects.aten.registry import of_overload
from stepwell.dialects.aten.schema import Argument
from stepwell.dialects.aten.text import Manner, call_layout
from stepwell.dialects.symbols import flat_types
from stepwell.ir.compat.torch.torch_private import HigherOrderOperator, schema_of
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import families_of
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import is_float
from stepwell.ir.types import ScalarType, element, tensor_like
from stepwell.translate.importer.calls import import_python_call
from stepwell.translate.importer.context import Importer
from stepwell.translate.importer.mutation import is_written
from stepwell.translate.importer.values import constant
from stepwell.translate.importer.writes import import_write

WRITTEN_AS = "aten.written_as"
"""The overload that the program called, if the op is the overload that takes a number instead."""


@cache
def _scalar_twin(overload: Any) -> Any:
    """Return `aten.add.Scalar` for `aten.add.Tensor`, the overload that `x + 2.0` means."""
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


_PROMOTING = frozenset(f"aten.{name}.default" for name in ("outer", "einsum", "tensordot"))
"""Products that may be a multiplication of elements, which promotes dtypes."""


def _require_one_dtype(op: SchemaOp) -> None:
    """Check that a product is of one float dtype: kernels refuse others, `torch.export` does not.

    Raises:
        StepwellError: it is of several.
    """
    if "product" not in families_of(op.name) or op.name in _PROMOTING:
        return
    tensors = (v.type for v in op.operands if isinstance(v.type, TensorType))
    found = dict.fromkeys(str(held) for held in map(element, tensors) if is_float(held))
    if len(found) > 1:
        raise StepwellError(
            f"the operands are {' and '.join(found)}, of which PyTorch computes no product",
            help="convert one with .to(dtype), or the module",
        )


class GraphImporter(Importer):
    """Imports the nodes of one graph, each by its kind."""

    def body(self) -> None:
        """Import every node but placeholders and the output."""
        for node in self.module.graph.nodes:
            if node.op == "call_function":
                self.call(node)
            elif node.op == "get_attr":
                self.get_attr(node)
            elif node.op not in ("placeholder", "output"):
                self.refuse(node, f"{node.op} {node.target}: torch.export creates no such node")

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
                import_python_call(self, node, target)
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
            raise StepwellError("the operator writes in place and has no functional overload")
        elif not node.users and node.meta.get("val") is None and schema_of(overload).returns:
            return  # A dtype of `promote_types`; export has used its value.
        elif (op := self.operator_call(node, overload)) is not None:
            _require_one_dtype(op)
            self.append(op, node)

    def operator_call(self, node: Node, overload: Any) -> SchemaOp | None:
        """Return the op for a node that calls an overload, not inserted; None if an operand is
        missing.
        """
        twin = _scalar_twin(overload)
        if twin is None or len(node.args) < 2 or not self._is_number(node.args[1]):
            return self.schema_op(of_overload(overload), node.args, node.kwargs, node)
        op = self.schema_op(of_overload(twin), node.args, node.kwargs, node)
        if op is not None:
            op.attributes[WRITTEN_AS] = StringAttr(schema_of(overload).overload_name)
        return op

    def _is_number(self, value: Any) -> bool:
        if isinstance(value, Node):
            held = self.values.get(value)
            return isinstance(held, SSAValue) and isinstance(held.type, ScalarType)
        return isinstance(value, int | float | complex)

    def schema_op(
        self, cls: type[SchemaOp], args: Sequence[Any], kwargs: dict[str, Any], node: Node
    ) -> SchemaOp | None:
        """Return the op of a call without inserting it; None if an operand could not be
        imported.
        """
        values = self.values
        operands: list[SSAValue] = []
        sizes: list[int] = []
        properties: dict[str, Attribute] = {}
        dynamic: list[SSAValue] = []
        nones = named = False
        given = len(args)
        for index, argument in enumerate(cls.SCHEMA.arguments):
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
        if cls.SCHEMA.takes_runtime_scalars:
            sizes.append(len(dynamic))
            operands.extend(dynamic)
        elif dynamic:
            raise StepwellError(
                "an argument is a number known only at run time, which the operator does not take"
            )
        if cls.HAS_SEGMENTS:
            properties[SEGMENTS] = segments(tuple(sizes))
        attributes = _call_style(cls.SCHEMA.arguments, args, kwargs) if nones or named else {}
        types = flat_types(node.meta["val"]) if cls.SCHEMA.returns else ()
        return cls.create(
            operands=operands,
            result_types=types,
            properties=properties,
            attributes=attributes,
            location=self.shared.locations.of(node),
        )

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
            self.refuse(
                node, f"get_attr {node.target} has type {type(module).__name__}, must be a tensor"
            )
            return
        key = f"{self.prefix}{node.target}"
        self.shared.hold(key, module, node)
        op = WeightOp(key, tensor_like(module))
        self.append(op, node)

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
        """Skip a node that reads the result of an unsupported node, whose reason is recorded."""
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
        """Return a number as a tensor, if no overload of the operator takes a number."""
        if isinstance(value, complex):
            raise StepwellError("the operator is given a complex number where it takes a tensor")
        op = sym.ConstantOp(value)
        self.insert(op, node)
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


def _call_style(
    arguments: Sequence[Argument], args: Sequence[Any], kwargs: dict[str, Any]
) -> dict[str, Attribute]:
    """Return how the call was written: arguments that were named, and None passed explicitly."""
    passed: dict[str, Manner] = {}
    nones: list[str] = []
    keyword: str | None = None
    for index, argument in enumerate(arguments):
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
    if call_layout(arguments, passed, None) == passed:
        keyword = None
    if keyword is not None:
        style[KEYWORDS_FROM] = StringAttr(keyword)
    if nones:
        fillers = call_layout(arguments, [n for n in passed if n not in nones], keyword)
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
