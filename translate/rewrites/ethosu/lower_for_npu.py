"""Partitioning: lower to TOSA the ops that the NPU runs, and leave every other op unchanged.

Which operators an op becomes is known only after lowering: a `where` becomes, among others, a
SELECT, which an Ethos-U55 lacks. The passes are therefore tried on a copy of the program. Ops of
the model that became an operator that the accelerator lacks are recorded, and the passes run again
without them. Such an op keeps its casts, and the CPU's lowering sees it unchanged.

The NPU's compiler has the final decision: an op for which it refuses a delegate is left to the CPU
as well, with the compiler's message.

If several forms are given, each is tried on a copy and lowered to the end of the pipeline, and the
NPU's compiler estimates its cycles. The first form with the fewest cycles is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from xdsl.dialects.builtin import IntegerType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from stepwell.dialects.cmsis.level import misusers
from stepwell.dialects.quant.ops import StorageCast
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.targets import parse_target
from stepwell.ir.diagnostics import node_name, op_name
from stepwell.ir.dtypes import i8, i16
from stepwell.ir.program import Program
from stepwell.ir.rewriting.legalization import Phase
from stepwell.ir.rewriting.rewrite import GreedyRewrites, History, Pass, Step
from stepwell.ir.types import element
from stepwell.translate.on_npu import OnNpu

U55_LACKS = frozenset(
    f"tosa.{name}"
    for name in (
        "reduce_max reduce_min reduce_all reduce_any reduce_product equal greater greater_equal "
        "select gather scatter conv3d bitwise_and bitwise_or bitwise_xor bitwise_not logical_and "
        "logical_or logical_xor logical_not logical_right_shift intdiv pow cond_if while_loop reverse custom"
    ).split()
)
"""Operators that Vela refuses for an Ethos-U55 or U65, except those of `U55_TAKES`."""
U55_TAKES: Mapping[str, tuple[IntegerType, ...]] = {
    "tosa.reduce_max": (i8, i16),
    "tosa.reduce_min": (i8, i16),
    "tosa.reverse": (i8,),
}
"""Element types for which Vela does accept an operator (it reduces bytes, and not their int32)."""
U85_LACKS = frozenset(
    f"tosa.{name}" for name in "conv3d pow reduce_product while_loop cond_if custom".split()
)
"""Operators that Vela refuses for an Ethos-U85."""


def refuses(accelerator: str, op: Operation) -> str | None:
    """Return why an accelerator, or a consumer of TOSA, does not run an operator, or None."""
    name = op.name.removeprefix("tosa.").upper()
    if accelerator.startswith("tosa-"):
        reason = parse_target(accelerator).refuses(op)
        return None if reason is None else f"{name}: {reason}"
    if accelerator.startswith("ethos-u85"):
        lacking = op.name in U85_LACKS
    else:
        held = element(op.operands[0].type) if op.operands else None
        lacking = op.name in U55_LACKS and held not in U55_TAKES.get(op.name, ())
    return f"the NPU has no {name}" if lacking else None


@dataclass(frozen=True)
class LowerForNpu(Pass):
    """Run the passes to TOSA, leaving out ops that need an operator that the accelerator lacks."""

    name: ClassVar[str] = "lower-for-npu"
    accelerator: str = "ethos-u55-128"
    steps: tuple[Step, ...] = ()
    over_integers: tuple[str, ...] = ()
    """Labels of the passes whose rewrites are for any element type."""
    others: tuple[tuple[str, tuple[Step, ...]], ...] = ()
    """Other forms of the passes, by name."""
    behind: tuple[Step, ...] = ()
    """The passes that follow; the compiler sees the program after them."""
    refused: Callable[[Program], dict[str, str]] | None = None
    """Returns the model's nodes that the compiler refuses after all passes, and why."""
    cycles: Callable[[Program], int] | None = None
    """Returns the compiler's estimate for a program after all passes."""

    def apply(self, program: Program, history: History) -> int:
        """Return the number of rewrites applied."""
        if self.cycles is not None:
            return self._fewest(program).apply(program, history)
        left: dict[str, str] = {}
        while True:
            trial = program.clone()
            self._run(trial, History(), left)
            lacking = dict(reversed(list(_lacking(trial, self.accelerator))))
            if not lacking.keys() - left.keys():
                lacking = self._compiled(trial)
            if not lacking.keys() - left.keys():
                break
            left.update(lacking)
        return self._run(program, history, left)

    def _compiled(self, trial: Program) -> dict[str, str]:
        """Return the model's nodes for which the NPU's compiler refuses a delegate."""
        if self.refused is None:
            return {}
        for step in self.behind:
            step.apply(trial, History())
        return self.refused(trial)

    def _fewest(self, program: Program) -> LowerForNpu:
        """Return the form for which the NPU's compiler estimates the fewest cycles."""
        assert self.cycles is not None
        forms = {"": self.steps, **dict(self.others)}
        alone = replace(self, others=(), cycles=None)
        found: dict[str, float] = {}
        for form, steps in forms.items():
            trial = program.clone()
            for step in (replace(alone, steps=steps), *self.behind):
                step.apply(trial, History())
            found[form] = self.cycles(trial)
        return replace(alone, steps=forms[min(found, key=found.__getitem__)])

    def _run(self, program: Program, history: History, left: dict[str, str]) -> int:
        applied = 0
        for step in self.steps:
            if isinstance(step, GreedyRewrites):
                integers = step.label in self.over_integers
                held = tuple(
                    each if isinstance(each, Phase) else OnNpu(each, left, integers)
                    for each in step.rewrites
                )
                applied += replace(step, rewrites=held).apply(program, history)
            else:
                applied += step.apply(program, history)
        return applied


def _misused(cast: StorageCast) -> Iterator[tuple[str, str]]:
    """Return the nodes that compute with int8 values and did not become TOSA operators."""
    for user in misusers(cast):
        node = node_name(user.location)
        if node is not None and not isinstance(user, TosaOp):
            yield node, f"TOSA has no form of {op_name(user)} over bytes"


def _lacking(program: Program, accelerator: str) -> Iterator[tuple[str, str]]:
    """Return the model's nodes that became an operator that the NPU lacks, with the reasons.

    Nodes that compute with bytes and did not become TOSA operators are included.
    """
    for op in program.module.walk():
        if isinstance(op, StorageCast):
            yield from _misused(op)
        if not isinstance(op, TosaOp):
            continue
        node = node_name(op.location)
        around = op.parent_op()
        if isinstance(around, TosaOp | FuncOp):
            reason = refuses(accelerator, op)
        else:
            reason = f"it is inside {around.name}, which runs on the CPU" if around else None
        if node is not None and reason is not None:
            yield node, reason
