"""End of the lowering: check that every op is a TOSA op, or refuse the program with all reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation

from stepwell.dialects.aten.families import NORMS
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import torch_overload
from stepwell.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.targets import PROFILES, TosaTarget, impossible_outputs, parse_target
from stepwell.ir.diagnostics import Problem, UnsupportedError, describe_op, node_name, op_name
from stepwell.ir.levels import COMMON, set_level
from stepwell.ir.levels import TOSA_TARGET as TARGET
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass
from stepwell.ir.types import has_floats
from stepwell.translate.decompositions.views import gather_strides
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.tosa import borders
from stepwell.translate.rewrites.calls.decompose_composites import DecomposeComposites
from stepwell.translate.rewrites.calls.unroll_loop import UnrollLoop
from stepwell.translate.rewrites.quant import DEQUANTIZE, QUANTIZE
from stepwell.translate.rewrites.tosa.layout.order import DECOMPOSE, INTEGERS, TO_TOSA
from stepwell.translate.rewrites.tosa.operators.lower_control import LowerControl
from stepwell.translate.rewrites.tosa.operators.lower_custom import LowerCustom
from stepwell.translate.rewrites.tosa.splitting.decompose_rest import NO_LOWERING, absence

TYPED = (*QUANTIZE, *DEQUANTIZE)
"""The ops that read or produce quantized values."""

INTEGER_LOWERINGS = frozenset(rewrite.name for rewrite in INTEGERS)
_OTHERS = (step(gather_strides), UnrollLoop, LowerControl, LowerCustom, *borders.RULES)
LOWERINGS = INTEGER_LOWERINGS | {rewrite.name for rewrite in (*DECOMPOSE, *TO_TOSA, *_OTHERS)}
"""The rewrites that know why an op has no form in TOSA."""


@dataclass(frozen=True)
class FinishTosa(Pass):
    """Legalization check: set the level and the target.

    `apply` raises `UnsupportedError` if an op is left that is not of the TOSA dialect.
    """

    target: str = "tosa-1.1+fp"
    name: ClassVar[str] = "finish-tosa"

    def apply(self, program: Program, history: History) -> int:
        """Return 1 always, because the level changes."""
        left = [op for method in program.methods.values() for op in not_lowered(method)]
        if left:
            causes = [op for op in left if not isinstance(op, StorageCast)] or left
            target = parse_target(self.target)
            problems = [_problem(op, history, target) for op in causes]
            for method in program.methods.values():
                problems += impossible_outputs(method)
            raise UnsupportedError(problems)
        illegal = list(parse_target(self.target).problems(program.module))
        if illegal:
            raise UnsupportedError(illegal)
        set_level(program.module, "tosa")
        program.module.attributes[TARGET] = StringAttr(self.target)
        return 1


def not_lowered(method: FuncOp) -> Iterator[Operation]:
    """Return the ops that are not TOSA ops; regions of an op are counted with the op."""
    pending = [op for block in method.body.blocks for op in block.ops]
    for op in pending:
        if isinstance(op, TosaOp):
            pending += [inner for region in op.regions for inner in region.block.ops]
        elif not isinstance(op, COMMON):
            yield op


def _problem(op: Operation, history: History, target: TosaTarget) -> Problem:
    name, node = op_name(op), node_name(op.location)
    both = replace(target, profiles=frozenset(PROFILES)).name
    if isinstance(op, TYPED) and "int" not in target.profiles:
        return Problem(
            f"{name}: quantized values need the profile int", describe_op(op), f"lower to {both}"
        )
    if isinstance(op, DequantizeCast | QuantizeCast) and "fp" not in target.profiles:
        users = sorted({op_name(use.operation) for use in op.result.uses})
        fact = f"its value is used as a float by {', '.join(users)}"
        if isinstance(op, QuantizeCast):
            maker = op.input.owner
            text = f"by {op_name(maker)}" if isinstance(maker, Operation) else "outside"
            fact = f"it quantizes a float that is computed {text}"
        near = {use.operation for use in op.result.uses} | {op.input.owner}
        reasons = integer_reasons(near, history)
        if reasons:
            fact += f" ({'; '.join(reasons)})"
        return Problem(
            f"{name}: {fact}",
            describe_op(op),
            f"quantize the layers around it, or lower to {both}, which leaves them in floats",
        )
    refusals = [r for r in history.refusals.values() if r.op == name and r.node == node]
    reasons = [record.reason for record in refusals if record.rewrite in LOWERINGS]
    pieces = [record.reason for record in refusals if record.rewrite == DecomposeComposites.name]
    if op.name in NORMS and "fp" not in target.profiles:
        reason = "the root of a mean is no function of one stored integer"
        return Problem(
            f"{name}: {reason}",
            describe_op(op),
            f"quantize its parts, as ExecuTorch's TOSAQuantizer does, or lower to {both}",
        )
    absent = NO_LOWERING
    if isinstance(op, SchemaOp):
        absent = absence(torch_overload(type(op)), *pieces[-1:])
    if (
        absent == NO_LOWERING
        and "fp" not in target.profiles
        and any(has_floats(r.type) for r in op.results)
    ):
        reason = f"it computes in floats, which {target.name} does not have"
        help = f"quantize the model (--quantize int8), or lower to {both}"
        return Problem(f"{name}: {reason}", describe_op(op), help)
    reason = reasons[-1] if reasons else absent
    return Problem(
        f"{name}: {reason}", describe_op(op), "a TOSA program has no other ops: change or split it"
    )


def integer_reasons(near: Iterable[Operation | Block], history: History) -> list[str]:
    """Return the recorded reasons why the ops around float values have no integer form."""
    nodes = {node_name(op.location) for op in near if isinstance(op, Operation)} - {None}
    return sorted(
        {
            f"{record.op}: {record.reason}"
            for record in history.refusals.values()
            if record.node in nodes and record.rewrite in INTEGER_LOWERINGS
        }
    )
