"""`StepwellPartitioner`: stepwell in the stock flow, in place of `XnnpackPartitioner`.

    edge = to_edge_transform_and_lower(exported, partitioner=[stepwell.StepwellPartitioner()])
    program = edge.to_executorch()

The flow lets its partitioners change the program before it decomposes anything. At this point the
program is lowered as by `stepwell.lower`, to the same delegates. Later steps of the flow treat
these like other delegates. Ops outside them go to the partitioners after this one, and to the
flow's kernels.

Each delegate is a `LoweredBackendModule` as the flow itself creates it, with the same payload as in
stepwell's `.pte`. The flow uses a delegate's `original_module` only for the shapes of its results,
so it returns zeros.
"""

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, Node
from xdsl.ir import SSAValue

from stepwell.backends.xnnpack.emit import payload
from stepwell.dialects.xnnpack import DelegateOp
from stepwell.ir.compat.torch.torch_private import TrainingIRVerifier, pytree
from stepwell.ir.diagnostics import Problem, StepwellError, UnsupportedError, describe_op
from stepwell.ir.program import Program
from stepwell.ir.signature import get_signature
from stepwell.ir.types import is_static
from stepwell.ir.weights import WeightStore
from stepwell.lowering import lower_as_far
from stepwell.report.report import Report
from stepwell.translate import executorch_private
from stepwell.translate.exporter.graph import GraphExporter
from stepwell.translate.exporter.to_torch import exported_with


def to_delegated(program: Program, method: str = "forward", **options: bool) -> ExportedProgram:
    """Convert a method at the xnnpack level to a torch program of the stock flow.

    Args:
        program: the lowered program; it is not changed.
        method: the method's name.
        options: as for `backends.xnnpack.emit.payload`.

    Raises:
        UnsupportedError: the stock flow would not preserve the sizes of a delegate, or the memory
            format of an input or an output.
    """
    _is_plain(program, method)
    write = partial(_write, weights=program.weights, **options)
    return exported_with(program, method, {DelegateOp: write})


def _is_plain(program: Program, method: str) -> None:
    """Raise `UnsupportedError` if the flow's edge dialect cannot represent a program."""
    func = program.method(method)
    signature = get_signature(func)
    problems = [
        Problem(
            f"{port.name!r} has the dim order {list(port.dim_order)}, must be contiguous",
            help="export with contiguous inputs, or write the .pte itself: stepwell.lower",
        )
        for port in (*signature.inputs, *signature.outputs)
        if port.dim_order is not None and list(port.dim_order) != sorted(port.dim_order)
    ]
    problems += [
        Problem(
            "a delegate with dynamic sizes cannot be in an edge program",
            describe_op(op),
            "write the .pte itself: stepwell.lower(exported, 'xnnpack').to_pte()",
        )
        for op in func.body.block.ops
        if isinstance(op, DelegateOp)
        and not all(is_static(value.type) for value in (*op.operands, *op.results))
    ]
    if problems:
        raise UnsupportedError(problems)


def _write(to: GraphExporter, op: DelegateOp, *, weights: WeightStore, **options: bool) -> None:
    """Insert the call of a delegate, and get its results."""
    fake = [to.shared.symbols.fake(result.type) for result in op.results]
    operands = [to.values[value] for value in op.operands]
    name = to.shared.graph_name("lowered_module")
    to.root.add_module(name, _lowered(op, operands, fake, weights, options))
    module = to.graph.get_attr(name)
    call = to.graph.call_function(executorch_call_delegate, (module, *operands))
    call.meta["val"] = tuple(fake)
    for at, result in enumerate(op.results):
        to.values[result] = _item(to.graph, call, at, result, fake[at])


def _item(graph: Graph, call: Node, at: int, result: SSAValue, fake: torch.Tensor) -> Node:
    node = graph.call_function(operator.getitem, (call, at))
    node.meta["val"] = fake
    return node


def _lowered(
    op: DelegateOp,
    operands: Sequence[Node],
    results: Sequence[torch.Tensor],
    weights: WeightStore,
    options: dict[str, Any],
) -> LoweredBackendModule:
    made = payload(op, weights, **options)
    store = executorch_private.named_data()
    for key, held in made.named_data.items():
        store.add_named_data(key, bytes(held.data), held.alignment)
    lowered = LoweredBackendModule(
        _shapes([node.meta["val"] for node in operands], results),
        made.backend,
        bytes(made.payload),
        [],
        store.get_named_data_store_output(),
    )
    lowered.meta = {"debug_handle_map": {}}
    return lowered


def _shapes(inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> ExportedProgram:
    """Make a program with a delegate's inputs that returns zeros of its results' shapes."""
    graph = Graph()
    specs: list[InputSpec] = []
    for at, given in enumerate(inputs):
        node = graph.placeholder(f"input_{at}")
        node.meta["val"] = given
        specs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None))
    nodes: list[Node] = []
    for result in results:
        device = torch.device("cpu")
        told: dict[str, Any] = {"dtype": result.dtype, "device": device, "pin_memory": False}
        node = graph.call_function(torch.ops.aten.full.default, (list(result.shape), 0), told)
        node.meta["val"] = result
        nodes.append(node)
    graph.output(tuple(nodes))
    given = pytree.tree_flatten((tuple(inputs), {}))[1]
    got = pytree.tree_flatten(tuple(results))[1]
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(n.name), None) for n in nodes]
    call = ModuleCallSignature([], [], given, got, [spec.arg.name for spec in specs])
    return ExportedProgram(
        torch.nn.Module(),
        graph,
        ExportGraphSignature(specs, outputs),
        {},
        {},
        [ModuleCallEntry("", call)],
        None,
        {},
        verifiers=[TrainingIRVerifier],
    )


TARGET = "xnnpack"


class StepwellPartitioner(Partitioner):
    """A partitioner for `to_edge_transform_and_lower` that lowers to XNNPACK as `stepwell.lower`.

    Attributes:
        reports: the report of each lowered program, in order.
    """

    def __init__(self, target: str = TARGET, **options: Any) -> None:
        """Create a partitioner.

        Args:
            target: `xnnpack`, or a plug-in's pipeline for it.
            options: as for `stepwell.lower`.
        """
        super().__init__()
        self.target, self.options = target, options
        self.reports: list[Report] = []

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """Return the program with calls of delegates."""
        lowered = lower_as_far(exported_program, self.target, **self.options)
        if lowered.target.artifact != "pte" or lowered.program.level != TARGET:
            raise StepwellError(
                f"the partitioner creates XNNPACK delegates only, not those of {self.target!r}",
                help=f"stepwell.lower(exported, {self.target!r})",
            )
        option_names = {option.name for option in lowered.target.options if "pte" in option.at}
        told = {name: value for name, value in self.options.items() if name in option_names}
        self.reports.append(lowered.report)
        return to_delegated(lowered.program, **told)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Partition nothing, because everything is delegated already.

        Raises:
            StepwellError: the flow did not call this partitioner before it decomposed the program.
        """
        if not self.reports:
            raise StepwellError(
                "StepwellPartitioner got a program that was decomposed before partitioning",
                help="to_edge_transform_and_lower(exported, partitioner=[StepwellPartitioner()]) "
                "of ExecuTorch 1.5 decomposes later; or write the .pte itself: "
                "stepwell.lower(exported, 'xnnpack').to_pte()",
            )
        return PartitionResult(exported_program, {})
