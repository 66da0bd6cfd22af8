"""Summarize a program in tables: ops, weights by type and size, inputs and outputs, memory."""

from collections import Counter
from dataclasses import dataclass

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation

from stepwell.inspection.viewer.weights import WeightRow, weight_bytes, weight_rows
from stepwell.ir.core import StateOp, WeightOp
from stepwell.ir.diagnostics import op_name
from stepwell.ir.program import Program
from stepwell.ir.signature import get_signature
from stepwell.ir.work import operations


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
        activations: the bytes of the largest set of values that are live at once, without sharing
            memory between an op's operands and results; symbolic dimensions count as 1.
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
        lines = [f"level {self.level}: {count} ops, {self.delegates} delegates"]
        lines += [f"  {method}" for method in self.methods]
        lines += [f"  state {name}" for name in self.state]
        lines += ["", f"{'op':48} {'count':>6} {'work':>15}"]
        for name, (number, work) in sorted(self.ops.items(), key=lambda item: -item[1][1]):
            lines.append(f"{name:48} {number:6} {work:15,}")
        lines += ["", f"{len(self.weights)} weights, {total:,} bytes"]
        for element, (number, held) in _by_element(self.weights).items():
            lines.append(f"  {element:16} {number:5} {held:15,} bytes")
        lines += [
            f"  {row.bytes:13,}  {row.key} {row.element} {row.shape}" for row in self.weights[:5]
        ]
        lines.append(f"activations alive at once: {self.activations:,} bytes at most")
        return "\n".join(lines)


def summarize(program: Program) -> Summary:
    """Count the parts of a program, without evaluating anything."""
    ops: Counter[str] = Counter()
    work: Counter[str] = Counter()
    state: list[str] = []
    delegates = 0
    for func in program.methods.values():
        for op in func.body.walk():
            if isinstance(op, StateOp):
                state.append(f"{op.key.data}: {op.result.type}")
            is_delegate = bool(op.regions) and "delegate" in op.name
            delegates += is_delegate
            if op.results and not is_delegate and not isinstance(op, WeightOp | StateOp):
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
        delegates,
        max((_alive(program, name) for name in program.methods), default=0),
    )


def _by_element(rows: tuple[WeightRow, ...]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        number, held = found.get(row.element, (0, 0))
        found[row.element] = (number + 1, held + row.bytes)
    return found


def _alive(program: Program, method: str) -> int:
    """Return the peak of live bytes: of values that are computed and still have later uses."""
    ops = list(program.method(method).body.block.ops)
    last = {value: at for at, op in enumerate(ops) for value in op.operands}
    now = most = 0
    for at, op in enumerate(ops):
        if isinstance(op, WeightOp | StateOp):
            continue
        now += sum(_bytes(result.type) for result in op.results)
        most = max(most, now)
        for value in {*op.operands, *op.results}:
            owner = value.owner
            computed = isinstance(owner, Operation) and not isinstance(owner, WeightOp | StateOp)
            if computed and last.get(value, at) == at:
                now -= _bytes(value.type)
    return most


def _bytes(type_: Attribute) -> int:
    return weight_bytes(type_) if isinstance(type_, TensorType) else 0
