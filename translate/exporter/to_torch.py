"""`to_exported_program`: exports a method at the aten level as a PyTorch program.

A method that was imported from a functional graph is exported as the same graph, node for node:
names, targets, arguments, order and signature. State is written functionally, by returned values; a
module therefore refuses to write to an input that shares memory with another. Constants from
rewrites are registered as buffers, which every consumer of programs accepts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph, Node
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation

from stepwell.dialects.symbols import Symbols
from stepwell.ir.calls.argument_marshalling import why_it_shares, why_no_numbers
from stepwell.ir.compat.torch.torch_private import TrainingIRVerifier, pytree
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import (
    InputMismatch,
    Problem,
    StepwellError,
    UnsupportedError,
    node_name,
)
from stepwell.ir.program import Program
from stepwell.ir.renderers import gives
from stepwell.ir.signature import Port, Signature, get_signature
from stepwell.ir.weights import WeightStore
from stepwell.translate.exporter.graph import Exporting, GraphExporter, Writer

_KINDS = {
    "parameter": InputKind.PARAMETER,
    "buffer": InputKind.BUFFER,
    "constant": InputKind.CONSTANT_TENSOR,
}
_PREFIXES = {InputKind.PARAMETER: "p", InputKind.BUFFER: "b", InputKind.CONSTANT_TENSOR: "c"}


class _Writing(ExportedProgram):
    """A module that writes to inputs after all computation, as eager does if no inputs share
    memory.
    """

    def module(self, check_guards: bool = True) -> torch.fx.GraphModule:
        found = super().module(check_guards)
        found.register_forward_pre_hook(partial(_lies_apart, self), with_kwargs=True)
        return found


def _lies_apart(program: ExportedProgram, _: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Refuse a call that writes to an input that shares memory (`argument_marshalling`)."""
    signature, in_spec = program.graph_signature, program.call_spec.in_spec
    assert in_spec is not None
    ordered = [kwargs[name] for name in in_spec.children()[1].context if name in kwargs]
    leaves = pytree.tree_leaves((args, ordered))
    specs = [one for one in signature.input_specs if one.kind is InputKind.USER_INPUT]
    written = signature.user_inputs_to_mutate.values()
    problems = [
        Problem(reason[0], f"input {spec.arg.name}", reason[1])
        for at, (spec, leaf) in enumerate(zip(specs, leaves, strict=False))
        if spec.arg.name in written and why_no_numbers(leaf) is None
        if (reason := why_it_shares(at, leaves)) is not None
    ]
    if problems:
        raise InputMismatch(problems)


@gives("torch", Program)
def way_out(program: Program) -> Callable[[str], ExportedProgram]:
    """Return the function that exports a method of a program to PyTorch."""
    return partial(to_exported_program, program)


def to_exported_program(program: Program, method: str = "forward") -> ExportedProgram:
    """Export a method of a program at the aten level as a PyTorch program.

    Args:
        program: the program, which is not changed; its weights are not copied.
        method: the method's name.

    Raises:
        StepwellError: the program is at another level.
        UnsupportedError: lists every op that has no equivalent in a PyTorch program.
    """
    if program.level != "aten":
        raise StepwellError(
            f"the program is at level {program.level!r}",
            help="only a program at the aten level is a torch program; export before lowering",
        )
    return exported_with(program, method, {})


def exported_with(
    program: Program, method: str, writers: Mapping[type[Operation], Writer]
) -> ExportedProgram:
    """Export a method as a PyTorch program, whatever its level.

    Args:
        program, method: as for `to_exported_program`.
        writers: functions that export ops that are not PyTorch's.

    Raises:
        UnsupportedError: lists every op that has no equivalent in a PyTorch program.
    """
    func = program.method(method)
    signature = get_signature(func)
    samples = program.samples.get(func.sym_name.data)
    return _Method(func, signature, program.weights, samples, writers).export()


@dataclass
class _Method:
    func: FuncOp
    signature: Signature
    weights: WeightStore
    samples: Any = None
    writers: Mapping[type[Operation], Writer] = field(default_factory=dict[type[Operation], Any])
    inputs: list[InputSpec] = field(default_factory=list[InputSpec])
    state_dict: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    constants: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    names: dict[str, str] = field(default_factory=dict[str, str])
    """Weight key → its name in the PyTorch program."""
    placeholders: dict[str, Node] = field(default_factory=dict[str, Node])
    """Weight key → its node in the graph."""

    def __post_init__(self) -> None:
        self.symbols = Symbols(self.signature.ranges)
        self.shared = Exporting(self.symbols, writers=self.writers)
        self.graph, self.root = Graph(), torch.nn.Module()
        self.exporter = GraphExporter(self.shared, self.graph, self.root)

    def export(self) -> ExportedProgram:
        """Export the method and return the PyTorch program."""
        block = self.func.body.block
        for op in self.func.walk():
            if isinstance(op, WeightOp | StateOp) and type(op.parent_op()) not in self.writers:
                self._weight(op)
        user_inputs = self._user_inputs()
        updates: list[UpdateOp] = []
        mutations: list[MutateInputOp] = []
        returned: ReturnOp | None = None
        for op in block.ops:
            if isinstance(op, UpdateOp):
                updates.append(op)
            elif isinstance(op, MutateInputOp):
                mutations.append(op)
            elif isinstance(op, ReturnOp):
                returned = op
            elif not isinstance(op, WeightOp | StateOp):
                self.exporter.operation(op)
        if self.shared.problems:
            raise UnsupportedError(self.shared.problems)
        assert returned is not None
        values = self.exporter.values
        specs: list[OutputSpec] = []
        outputs: list[Any] = []
        for op in updates:
            outputs.append(values[op.value])
            spec = OutputSpec(
                OutputKind.BUFFER_MUTATION, _argument(outputs[-1]), self._name(op.key.data)
            )
            specs.append(spec)
        for op in mutations:
            outputs.append(values[op.value])
            target = user_inputs[op.index.value.data]
            kind = OutputKind.USER_INPUT_MUTATION
            specs.append(OutputSpec(kind, _argument(outputs[-1]), target))
        rest = iter(returned.operands)
        for port in self.signature.outputs:
            value = port.constant[0] if port.constant is not None else values[next(rest)]
            outputs.append(value)
            specs.append(OutputSpec(OutputKind.USER_OUTPUT, _argument(value), None))
        self.graph.output(tuple(outputs))
        return (_Writing if mutations else ExportedProgram)(
            self.root,
            self.graph,
            ExportGraphSignature(self.inputs, specs),
            self.state_dict,
            self._ranges(),
            [ModuleCallEntry("", self._call_signature())],
            self.samples,
            dict[str, Any](self.constants),
            verifiers=[TrainingIRVerifier],
        )

    def _name(self, key: str) -> str:
        """Return a weight's name in the program: its key, unless a rewrite created it."""
        name = self.names.get(key)
        if name is None:
            name = key if "#" not in key else re.sub(r"\W+", "_", key)
            self.names[key] = name
        return name

    def _weight(self, op: WeightOp | StateOp) -> None:
        key = op.key.data
        if op.parent is not self.func.body.block:
            self.exporter.refuse(op, "a region contains a weight; pass it in as an operand")
            return
        made = "#" in key
        kind = InputKind.BUFFER
        if isinstance(op, WeightOp):
            if key in self.placeholders:  # PyTorch has each tensor once.
                self.exporter.values[op.result] = self.placeholders[key]
                return
            kind = _KINDS[op.kind.data]
            if kind is InputKind.CONSTANT_TENSOR and made:
                kind = InputKind.BUFFER
        target = self._name(key)
        tensor = self.weights.get(key)
        persistent: bool | None = None
        if kind is InputKind.BUFFER:
            persistent = made if op.persistent is None else bool(op.persistent.value.data)
        if kind is InputKind.PARAMETER:
            trainable = self.weights.is_trainable(key)
            if trainable is None:
                trainable = tensor.is_floating_point() or tensor.is_complex()
            tensor = torch.nn.Parameter(tensor, requires_grad=trainable)
        stored = kind is InputKind.PARAMETER or persistent
        table = self.state_dict if stored else self.constants
        if isinstance(op, StateOp) and target not in table:
            tensor = tensor.clone()  # A PyTorch program writes to its buffers; ours never change.
        held = table.setdefault(target, tensor)
        name = (None if made else node_name(op.location)) or _placeholder(kind, target)
        example = self.symbols.mode.from_tensor(held, static_shapes=True)
        node = self.exporter.placeholder(name, op.result, example)
        self.inputs.append(InputSpec(kind, TensorArgument(node.name), target, persistent))
        if isinstance(op, WeightOp):
            self.placeholders[key] = node

    def _user_inputs(self) -> dict[int, str]:
        """Return placeholders of the user's inputs; dynamic ones by their index."""
        names: dict[int, str] = {}
        arguments = iter(self.func.body.block.args)
        for port in self.signature.inputs:
            if port.constant is not None:
                value = port.constant[0]
                node = self.exporter.placeholder(port.name, None, value)
                argument: ArgumentSpec = ConstantArgument(node.name, value)
            else:
                block_argument = next(arguments)
                example = self.symbols.fake(block_argument.type, port.dim_order)
                node = self.exporter.placeholder(port.name, block_argument, example)
                argument = _argument(node)
                names[block_argument.index] = node.name
            self.inputs.append(InputSpec(InputKind.USER_INPUT, argument, None))
        return names

    def _ranges(self) -> dict[Any, Any]:
        return {
            symbol: self.symbols.ranges[symbol]
            for symbol in map(self.symbols.symbol, self.signature.ranges)
        }

    def _call_signature(self) -> ModuleCallSignature:
        stated_in, stated_out = self.signature.in_spec, self.signature.out_spec
        in_spec = (
            pytree.tree_flatten((tuple(self.signature.inputs), {}))[1]
            if stated_in is None
            else pytree.treespec_loads(stated_in)
        )
        leaves: tuple[Port, ...] = self.signature.outputs
        out_spec = (
            pytree.tree_flatten(leaves[0] if len(leaves) == 1 else tuple(leaves))[1]
            if stated_out is None
            else pytree.treespec_loads(stated_out)
        )
        names = _argument_names(in_spec, [port.name for port in self.signature.inputs])
        return ModuleCallSignature([], [], in_spec, out_spec, names)


def _argument_names(in_spec: pytree.TreeSpec, leaves: list[str]) -> list[str] | None:
    """Return the names of `forward`'s arguments, if none of them is nested."""
    args, kwargs = in_spec.children()
    names: list[str] = []
    for child in args.children():
        if not child.is_leaf():
            return None
        names.append(leaves[len(names)])
    return [*names, *kwargs.context]


def _placeholder(kind: InputKind, target: str) -> str:
    return f"{_PREFIXES[kind]}_" + re.sub(r"\W", "_", target)


def _argument(value: Any) -> ArgumentSpec:
    """Return how a signature names a value."""
    if not isinstance(value, Node):
        return ConstantArgument("", value)
    example = value.meta["val"]
    if isinstance(example, torch.Tensor):
        return TensorArgument(value.name)
    if isinstance(example, torch.SymBool | bool):
        return SymBoolArgument(value.name)
    if isinstance(example, torch.SymFloat | float):
        return SymFloatArgument(value.name)
    return SymIntArgument(value.name)
