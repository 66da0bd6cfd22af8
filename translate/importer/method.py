"""Import of one exported program into one `func.func`: signature, weights, state, and graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import GraphModule, Node
from xdsl.dialects.builtin import BoolAttr, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from stepwell.dialects.symbols import type_of
from stepwell.ir.calls.nested_inputs import plain_nesting
from stepwell.ir.compat.torch.torch_private import pytree
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.signature import Port, Signature, set_signature
from stepwell.ir.types import WeightAttr, tensor_like
from stepwell.translate.importer.context import Importing
from stepwell.translate.importer.graph import GraphImporter
from stepwell.translate.importer.mutation import Writes
from stepwell.translate.importer.values import dim_order, has_shared_elements

_KINDS = {
    InputKind.PARAMETER: StringAttr("parameter"),
    InputKind.BUFFER: StringAttr("buffer"),
    InputKind.CONSTANT_TENSOR: StringAttr("constant"),
}
_BOOLS = {True: BoolAttr.from_bool(True), False: BoolAttr.from_bool(False)}
_VALUES = (TensorArgument, SymIntArgument, SymFloatArgument, SymBoolArgument)


@dataclass
class _Method:
    """State of the method while its graph is imported."""

    ports: list[Port] = field(default_factory=list[Port])
    keys: dict[str, str] = field(default_factory=dict[str, str])
    """Placeholder name of each mutable buffer → its weight key."""
    user_inputs: dict[str, int] = field(default_factory=dict[str, int])
    """Placeholder name of each run-time input → its index among the function's arguments."""


@dataclass(frozen=True)
class ExportedSource:
    """An exported program to import, with the writes of its in-place operators."""

    exported: ExportedProgram
    writes: Writes

    @property
    def mutable(self) -> set[str]:
        """Return the names of the buffers that the program changes."""
        signature = self.exported.graph_signature
        names = signature.inputs_to_buffers
        written = {names[n.name] for n in self.writes.placeholders if n.name in names}
        return written | set(signature.buffers_to_mutate.values())


def import_method(
    shared: Importing, source: ExportedSource, name: str, mutable: set[str]
) -> FuncOp:
    """Import a method from an exported program.

    Args:
        shared: the state of the import.
        source: the program; it is not modified.
        name: the method's name.
        mutable: the buffers that any method changes, which this method reads as state.
    """
    exported, writes = source.exported, source.writes
    signature = exported.graph_signature
    tensors = {**exported.constants, **exported.state_dict}
    method = _Method()
    nodes = list(exported.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    specs = signature.input_specs
    block = Block(arg_types=_argument_types(shared, placeholders, specs))
    importer = GraphImporter(shared, exported.graph_module, block, "")
    importer.writes = writes.calls
    arguments = iter(block.args)
    for node, spec in zip(placeholders, specs, strict=True):
        if spec.kind is InputKind.USER_INPUT:
            _user_input(importer, node, spec, method, arguments)
        elif spec.kind in _KINDS:
            key = spec.target or ""
            tensor = tensors.get(key)
            if not isinstance(tensor, torch.Tensor):
                importer.refuse(
                    node, f"{spec.kind.name.lower()} {key} has no tensor in the program"
                )
                continue
            shared.hold(key, tensor, node)
            importer.append(_weight(spec, tensor, key in mutable), node)
            if key in mutable:
                method.keys[node.name] = key
        else:
            kind = spec.kind.name.lower().replace("_", " ")
            importer.refuse(node, f"input {node.name} is of kind {kind}: it has no form in the IR")
    importer.body()
    for node in writes.placeholders:
        _write_back(importer, node, method)
    ports, operands = _outputs(importer, exported, nodes[-1], method)
    _refuse_shared_elements(importer, nodes, method)
    if shared.problems:
        return FuncOp(name, ((), ()))
    block.add_op(ReturnOp(*operands))
    func = FuncOp(
        name, ([arg.type for arg in block.args], [v.type for v in operands]), Region(block)
    )
    set_signature(
        func,
        Signature(tuple(method.ports), tuple(ports), *_specs(exported), _ranges(exported)),
    )
    return func


def _argument_types(
    shared: Importing, placeholders: list[Node], specs: list[InputSpec]
) -> list[Attribute]:
    types: list[Attribute] = []
    for node, spec in zip(placeholders, specs, strict=True):
        if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, _VALUES):
            try:
                types.append(type_of(node.meta.get("val")))
            except StepwellError as error:
                shared.refuse(node, f"input {node.name}: {error.problems[0].fact}")
    return types


_READ_STRIDES = frozenset(
    "as_strided as_strided_ as_strided_copy as_strided_scatter stride sym_stride".split()
)
"""Operators whose results depend on a tensor's strides."""


def _reads_strides(node: Node) -> bool:
    """Whether a program has an operator that reads strides, also in a branch or a loop."""
    whole = node.graph.owning_module
    graphs = [m.graph for m in whole.modules() if isinstance(m, GraphModule)] if whole else []
    targets = (str(other.target).split(".") for graph in graphs for other in graph.nodes)
    return not whole or any(_READ_STRIDES.intersection(target) for target in targets)


def _user_input(
    importer: GraphImporter, node: Node, spec: InputSpec, method: _Method, arguments: Any
) -> None:
    if isinstance(spec.arg, ConstantArgument):
        value: Any = spec.arg.value
        if value is not None and not isinstance(value, int | float | bool | str):
            importer.refuse(node, f"input {node.name} is a frozen {type(value).__name__}")
            return
        method.ports.append(Port(node.name, constant=(value,)))
        importer.values[node] = None
        return
    if not isinstance(spec.arg, _VALUES):
        importer.refuse(node, f"input {node.name} is of kind {type(spec.arg).__name__}")
        return
    order = None
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        try:
            order = dim_order(value)
        except StepwellError as error:  # The tensor is copied densely; only strides can differ.
            if _reads_strides(node):
                problem = error.problems[0]
                importer.refuse(node, f"input {node.name}: {problem.fact}", problem.help)
                next(arguments, None)
                return
    argument = next(arguments, None)
    if argument is None:
        importer.values[node] = None
        return
    argument.name_hint = node.name
    method.user_inputs[node.name] = argument.index
    method.ports.append(Port(node.name, order))
    importer.values[node] = argument


def _weight(spec: InputSpec, tensor: torch.Tensor, mutable: bool) -> WeightOp | StateOp:
    properties: dict[str, Attribute] = {"key": WeightAttr(spec.target or "")}
    if spec.persistent is not None:
        properties["persistent"] = _BOOLS[spec.persistent]
    if mutable:
        return StateOp.create(result_types=[tensor_like(tensor)], properties=properties)
    properties["kind"] = _KINDS[spec.kind]
    return WeightOp.create(result_types=[tensor_like(tensor)], properties=properties)


def _write_back(importer: GraphImporter, node: Node, method: _Method) -> None:
    """Return the final value of a buffer or an input that the graph writes in place."""
    value = importer.values.get(node)
    if not isinstance(value, SSAValue):
        return
    key = method.keys.get(node.name)
    op = (
        UpdateOp(key, value)
        if key is not None
        else MutateInputOp(method.user_inputs[node.name], value)
    )
    importer.insert(op, node)


def _refuse_shared_elements(importer: GraphImporter, nodes: list[Node], method: _Method) -> None:
    """Refuse writes to elements that share memory with others, which no op can express."""
    written = {op.index.value.data for op in importer.block.ops if isinstance(op, MutateInputOp)}
    for node in nodes:
        value = node.meta.get("val")
        is_written = method.user_inputs.get(node.name) in written
        if is_written and isinstance(value, torch.Tensor) and has_shared_elements(value):
            fact = f"input {node.name} is written and has elements that share memory"
            importer.refuse(node, fact, "export with a .clone() of the example input")


def _outputs(
    importer: GraphImporter, exported: ExportedProgram, returned: Node, method: _Method
) -> tuple[list[Port], list[SSAValue]]:
    """Return the ports and operands of the return op; writes to buffers and inputs come first."""
    ports: list[Port] = []
    operands: list[SSAValue] = []
    values = returned.args[0]
    assert isinstance(values, tuple | list)
    for value, spec in zip(values, exported.graph_signature.output_specs, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            held = importer.values.get(value) if isinstance(value, Node) else None
            if isinstance(held, SSAValue):
                assert isinstance(value, Node)
                ports.append(Port(value.name, _output_order(value)))
                operands.append(held)
            elif isinstance(spec.arg, ConstantArgument):
                ports.append(Port(f"output_{len(ports)}", constant=(spec.arg.value,)))
            elif isinstance(value, Node) and not importer.shared.problems:
                importer.refuse(returned, f"output {value.name} has no value")
            continue
        if spec.kind not in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            kind = spec.kind.name.lower().replace("_", " ")
            importer.refuse(returned, f"output {value} is of kind {kind}: it has no form in the IR")
            continue
        held = importer.values.get(value) if isinstance(value, Node) else None
        if not isinstance(held, SSAValue):
            continue
        op = (
            UpdateOp(spec.target or "", held)
            if spec.kind is OutputKind.BUFFER_MUTATION
            else MutateInputOp(method.user_inputs[spec.target or ""], held)
        )
        importer.insert(op, returned)
    return ports, operands


def _output_order(node: Node) -> tuple[int, ...] | None:
    """Return the dim order of an output; an output that is not dense is returned row-major."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    try:
        return dim_order(value)
    except StepwellError:
        return None


def _specs(exported: ExportedProgram) -> tuple[str | None, str | None]:
    calls = exported.module_call_graph[:1]  # Each access of `call_spec` creates a class.
    spec = calls[0].signature if calls else None
    if spec is None:
        return None, None
    return _spec_text(spec.in_spec), _spec_text(spec.out_spec)


def _spec_text(spec: pytree.TreeSpec | None) -> str | None:
    """Return the nesting of inputs or outputs, a pytree spec, in PyTorch's serialized form.

    Raises:
        StepwellError: the nesting contains a class that is not registered with PyTorch.
    """
    if spec is None:
        return None
    try:
        return pytree.treespec_dumps(plain_nesting(spec))
    except (NotImplementedError, TypeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise StepwellError(
            f"inputs or outputs are nested in unregistered classes: {reason}",
            help="register the class with a serialized_type_name "
            "(torch.export.register_dataclass, torch.utils._pytree.register_pytree_node)",
        ) from None


def _ranges(exported: ExportedProgram) -> dict[str, tuple[int, int | None]]:
    """Return the bounds of each symbol; bounds of an expression (`2*s77`) determine its
    symbols'.
    """
    ranges: dict[str, tuple[int, int | None]] = {}
    for symbol, bounds in exported.range_constraints.items():
        if not symbol.is_Symbol:
            continue
        lower, upper = bounds.lower, bounds.upper
        ranges[str(symbol)] = (
            int(lower) if lower.is_Integer else 0,
            int(upper) if upper.is_Integer else None,
        )
    return ranges
