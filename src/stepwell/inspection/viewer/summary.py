"""Summarize a program in tables: ops, weights by type and size, inputs and outputs, memory."""

from collections import Counter
from dataclasses import dataclass

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.backends.executorch.kernels.kernel_calls import is_reshape
from stepwell.backends.inventory import computes, delegates, is_delegate
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.cmsis.ops.places import is_view
from stepwell.inspection.viewer.weights import WeightRow, weight_bytes, weight_rows
from stepwell.ir.core import StateOp, WeightOp
from stepwell.ir.diagnostics import counted, op_name
from stepwell.ir.program import Program
from stepwell.ir.signature import get_signature
from stepwell.ir.work import FREE, operations


@dataclass(frozen=True)
class Summary:
    """The numbers of ops, weights and delegates of a program.

    Attributes:
        level: the level of the program.
        methods: each method with its inputs and outputs as text.
        ops: op name → (count, work); weights and terminators are not counted.
        weights: every weight, largest first.
        state: mutable buffers.
        delegates: the number of subgraphs that a backend runs as a whole.
        activations: the bytes of the largest set of inputs and values that are
            live at once, without sharing memory between an op's operands and results but for a
            view's; what is inside delegates is not counted; symbolic dimensions count as 1.
    """

    level: str
    methods: tuple[str, ...]
    ops: dict[str, tuple[int, int]]
    weights: tuple[WeightRow, ...]
    state: tuple[str, ...]
    delegates: int
    activations: int

    def __str__(self) -> str:
        total = sum(row.bytes for row in self.weights)
        count = sum(n for n, _ in self.ops.values())
        lines = [
            f"level {self.level}: {counted(count, 'op')}, {counted(self.delegates, 'delegate')}"
        ]
        lines += [f"  {method}" for method in self.methods]
        lines += [f"  state {name}" for name in self.state]
        lines += ["", f"{'op':48} {'count':>6} {'work':>15}"]
        for name, (number, work) in sorted(self.ops.items(), key=lambda item: -item[1][1]):
            lines.append(f"{name:48} {number:6} {work:15,}")
        lines += ["", f"{counted(len(self.weights), 'weight')}, {total:,} bytes"]
        for element, (number, held) in _by_element(self.weights).items():
            lines.append(f"  {element:16} {number:5} {held:15,} bytes")
        lines += [
            f"  {row.bytes:13,}  {row.key} {row.element} {row.shape}" for row in self.weights[:5]
        ]
        lines.append(f"inputs and activations alive at once: {self.activations:,} bytes at most")
        return "\n".join(lines)


def summarize(program: Program) -> Summary:
    """Count the parts of a program, without evaluating anything."""
    ops: Counter[str] = Counter()
    work: Counter[str] = Counter()
    state: list[str] = []
    for func in program.methods.values():
        for op in func.body.walk():
            if isinstance(op, StateOp):
                state.append(f"{op.key.data}: {op.result.type}")
            is_opened = bool(op.regions) and is_delegate(op)
            if op.results and not is_opened and computes(op):
                ops[op_name(op)] += 1
                work[op_name(op)] += operations(op)
    methods: list[str] = []
    for name, func in program.methods.items():
        signature = get_signature(func)
        given = zip(signature.runtime_inputs, func.function_type.inputs.data, strict=True)
        inputs = ", ".join(f"{port.name}: {type_}" for port, type_ in given)
        outputs = ", ".join(str(type_) for type_ in func.function_type.outputs.data)
        methods.append(f"@{name}({inputs}) -> ({outputs})")
    return Summary(
        program.level,
        tuple(methods),
        {name: (ops[name], work[name]) for name in ops},
        tuple(weight_rows(program)),
        tuple(state),
        delegates(program),
        max((_alive(program, name) for name in program.methods), default=0),
    )


def _by_element(rows: tuple[WeightRow, ...]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        number, held = found.get(row.element, (0, 0))
        found[row.element] = (number + 1, held + row.bytes)
    return found


def _alive(program: Program, method: str) -> int:
    """Return the peak of live bytes: of inputs and values that still have later uses."""
    block = program.method(method).body.block
    ops = list(block.ops)
    origin: dict[SSAValue, SSAValue] = {}  # A view has its operand's bytes.
    for op in ops:
        is_moved = isinstance(op, SchemaOp) and is_reshape(op)
        if op.operands and (op.name in FREE or is_moved or is_view(op)):
            origin |= {result: origin.get(op.operands[0], op.operands[0]) for result in op.results}
    last = {origin.get(v, v): at for at, op in enumerate(ops) for v in op.operands}
    now = most = sum(_bytes(argument.type) for argument in block.args)
    for at, op in enumerate(ops):
        if isinstance(op, WeightOp | StateOp) or (op.name in FREE and not op.operands):
            continue
        made = [result for result in op.results if result not in origin]
        now += sum(_bytes(result.type) for result in made)
        most = max(most, now)
        for value in {*(origin.get(v, v) for v in op.operands), *made}:
            maker = value.owner
            is_weight = isinstance(maker, Operation) and not computes(maker)
            if not is_weight and last.get(value, at) == at:
                now -= _bytes(value.type)
    return most


def _bytes(type_: Attribute) -> int:
    return weight_bytes(type_) if isinstance(type_, TensorType) else 0
