"""A program at level `ethosu` to a `.pte`: delegates, and the CPU's kernel calls.

A delegate for an Ethos-U holds what Vela made of its TOSA; one for a TOSA target holds the TOSA, as
ExecuTorch's `TOSABackend` does.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import FunctionType, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Region

from stepwell.backends.cortex_m.emit import emit as emit_cortex_m
from stepwell.backends.ethos_u.vela import BACKEND, Estimate, compile_tosa
from stepwell.backends.executorch.emit import DelegatePayload
from stepwell.backends.executorch.serialize import to_bytes
from stepwell.backends.tosa.emit import TARGET, to_tosa
from stepwell.dialects.ethosu import DelegateOp, YieldOp
from stepwell.ir.levels import set_level
from stepwell.ir.program import Program
from stepwell.ir.weights import WeightStore

TOSA = "tosa-1.0+int+int16"
"""What Vela takes."""
TOSA_BACKEND = "TOSABackend"


def to_pte(program: Program) -> bytes:
    """The `.pte` of a program.

    Raises:
        UnsupportedError: Vela refuses a delegate, or an op beside them has no kernel.
    """
    return to_bytes(emit_cortex_m(program, {DelegateOp: _payload}))


def estimates(program: Program) -> list[Estimate]:
    """Vela's estimate of each delegate, in order."""
    return [
        compile_tosa(tosa_of(op, program.weights), op.accelerator.data).estimate
        for op in _delegate_ops(program)
    ]


def delegates(program: Program) -> list[bytes]:
    """The TOSA flatbuffer of each delegate, in order."""
    return [tosa_of(op, program.weights) for op in _delegate_ops(program)]


def _delegate_ops(program: Program) -> Iterator[DelegateOp]:
    for func in program.methods.values():
        yield from (op for op in func.walk() if isinstance(op, DelegateOp))


def tosa_of(op: DelegateOp, weights: WeightStore) -> bytes:
    """The TOSA flatbuffer of a delegate's sub-graph."""
    copy = op.clone()
    block = copy.body.block
    last = block.last_op
    assert isinstance(last, YieldOp)
    returned = list(last.operands)
    last.detach()
    last.erase()
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
    compiled = compile_tosa(tosa_of(op, weights), accelerator)
    options = (("target", accelerator.encode()),)
    return DelegatePayload(BACKEND, compiled.payload, options=options)
