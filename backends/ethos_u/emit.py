"""Emit a program at level `ethosu` as a `.pte`: delegates, and the CPU's kernel calls.

A delegate for an Ethos-U contains Vela's result for its TOSA; one for a TOSA target contains the
TOSA, as ExecuTorch's `TOSABackend` does.
"""

from collections.abc import Iterator

from xdsl.dialects.builtin import FunctionType, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, Region

from stepwell.backends.cortex_m.emit import emit as emit_cortex_m
from stepwell.backends.ethos_u.configuration import TOSA, compile_specs
from stepwell.backends.ethos_u.vela import (
    ACCELERATORS,
    BACKEND,
    Estimate,
    compile_tosa,
    is_installed,
)
from stepwell.backends.executorch.writing.emit import DelegatePayload
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.backends.tosa.emit import TARGET, to_tosa
from stepwell.dialects.ethosu import BinaryOp, DelegateOp, VelaConfig, YieldOp
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.diagnostics import UnsupportedError, node_name
from stepwell.ir.levels import set_level
from stepwell.ir.program import Program
from stepwell.ir.weight_bytes import dense_bytes
from stepwell.ir.weights import WeightStore

TOSA_BACKEND = "TOSABackend"


def to_pte(program: Program) -> bytes:
    """Return the `.pte` of a program.

    Raises:
        UnsupportedError: Vela refuses a delegate, or an op outside the delegates has no kernel.
    """
    return to_bytes(emit_cortex_m(program, {DelegateOp: _payload, BinaryOp: _as_read}))


def estimates(program: Program) -> list[Estimate]:
    """Return Vela's estimate of each delegate, in order."""
    return [
        compile_tosa(tosa_of(op, program.weights), op.accelerator.data, VelaConfig.of(op)).estimate
        for op in _delegate_ops(program)
    ]


def delegates(program: Program) -> list[bytes]:
    """Return the TOSA flatbuffer of each delegate, in order."""
    return [tosa_of(op, program.weights) for op in _delegate_ops(program)]


def _delegate_ops(program: Program) -> Iterator[DelegateOp]:
    for func in program.methods.values():
        yield from (op for op in func.walk() if isinstance(op, DelegateOp))


def refusals(program: Program) -> Iterator[tuple[Operation, str]]:
    """Return the operator at which each refused delegate fails, with Vela's message; empty without
    Vela.
    """
    for op in _delegate_ops(program):
        is_compiled = is_installed() and op.accelerator.data in ACCELERATORS
        reason = _refusal(op, program.weights, None) if is_compiled else None
        if reason is not None:
            length, reason = _shortest(op, program.weights, reason)
            tried = _operators(op)[:length][::-1]
            yield next((part for part in tried if node_name(part.location)), op), reason


def _shortest(op: DelegateOp, weights: WeightStore, reason: str) -> tuple[int, str]:
    """Return the length of the shortest refused prefix of a refused delegate, and Vela's
    message.
    """
    fine, refused = 0, len(_operators(op))
    while refused - fine > 1:
        middle = (fine + refused) // 2
        refusal = _refusal(op, weights, middle)
        fine, refused, reason = (
            (middle, refused, reason) if refusal is None else (fine, middle, refusal)
        )
    return refused, reason


def _refusal(op: DelegateOp, weights: WeightStore, first: int | None) -> str | None:
    """Return Vela's message about a delegate, or about its first operators; None if accepted."""
    try:
        compile_tosa(tosa_of(op, weights, first), op.accelerator.data, VelaConfig.of(op))
    except UnsupportedError as error:
        return error.problems[0].fact
    return None


def _operators(op: DelegateOp) -> list[TosaOp]:
    return [part for part in op.body.block.ops if isinstance(part, TosaOp) and part.operands]


def tosa_of(op: DelegateOp, weights: WeightStore, first: int | None = None) -> bytes:
    """Return the TOSA flatbuffer of a delegate's sub-graph, or of its `first` operators."""
    copy = op.clone()
    block = copy.body.block
    last = block.last_op
    assert isinstance(last, YieldOp)
    operators = _operators(copy)
    first = len(operators) if first is None else first
    gone: list[Operation] = [last, *reversed(operators[first:])]
    returned = list(last.operands)
    if len(gone) > 1:
        results = [result for part in operators[:first] for result in part.results]
        returned = [r for r in results if any(use.operation in gone for use in r.uses)]
    for part in gone:
        part.detach()
        part.erase()
    block.add_op(ReturnOp(*returned))
    copy.body.detach_block(block)
    types = FunctionType.from_lists([a.type for a in block.args], [v.type for v in returned])
    module = ModuleOp([FuncOp("forward", types, Region(block))])
    set_level(module, "tosa")
    held = op.accelerator.data
    module.attributes[TARGET] = StringAttr(held if held.startswith("tosa-") else TOSA)
    return to_tosa(Program(module, weights))


def _payload(op: DelegateOp, weights: WeightStore) -> DelegatePayload:
    accelerator = op.accelerator.data
    if accelerator.startswith("tosa-"):
        head, *parts = accelerator.split("+")
        stated = "+".join([f"TOSA-{head.removeprefix('tosa-')}", *map(str.upper, parts)])
        options = (("tosa_spec", stated.encode()), ("output_format", b"tosa"))
        return DelegatePayload(TOSA_BACKEND, tosa_of(op, weights), options=options)
    config = VelaConfig.of(op)
    compiled = compile_tosa(tosa_of(op, weights), accelerator, config)
    return DelegatePayload(BACKEND, compiled.payload, options=compile_specs(accelerator, config))


def _as_read(op: BinaryOp, weights: WeightStore) -> DelegatePayload:
    options = compile_specs(op.accelerator.data, VelaConfig.of(op))
    return DelegatePayload(BACKEND, dense_bytes(weights.get(op.payload.data)), options=options)
