"""A program at level `ethosu` to a `.pte`: Vela's delegates, and the CPU's kernel calls."""

from __future__ import annotations

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
        for func in program.methods.values()
        for op in func.walk()
        if isinstance(op, DelegateOp)
    ]


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
    module.attributes[TARGET] = StringAttr(TOSA)
    return to_tosa(Program(module, weights))


def _payload(op: DelegateOp, weights: WeightStore) -> DelegatePayload:
    accelerator = op.accelerator.data
    compiled = compile_tosa(tosa_of(op, weights), accelerator)
    options = (("target", accelerator.encode()),)
    return DelegatePayload(BACKEND, compiled.payload, options=options)
