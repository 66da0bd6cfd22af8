"""Deviations that rewrites of plug-ins inherit from the nodes that they create.

Tests compare the rewrites of this package with PyTorch on every engine
(`tests/numerics/test_engines.py`), so that a lowering examines only those of plug-ins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from xdsl.ir import Operation

from stepwell.ir.declared.numerics import Deviation, TakenDeviation, forbidden
from stepwell.ir.program import Program
from stepwell.ir.rewriting.failures import StepFailure
from stepwell.ir.rewriting.rewriter import Rewriter

JUDGES: dict[str, Callable[[Program, Collection[str], Sequence[Operation]], Deviation | None]] = {}
"""By target: the function (program, names of replaced ops, new ops) → the loss of the new ops.

XNNPACK alone has one. The operators of TOSA have the special values of its specification, which its
interpretation follows, and those of CMSIS-NN take integers, which have none.
"""


def judged(
    rewrite: Any, root: tuple[str, str | None], where: str | None, rw: Rewriter, program: Program
) -> TakenDeviation | None:
    """Return the deviation of the ops that a plug-in's rewrite has just created, if any.

    Raises:
        StepFailure: the mode does not allow the deviation. The lowering is then repeated without
            the rewrite, because its changes cannot be undone.
    """
    judge = JUDGES.get(program.context.target)
    is_own = type(rewrite).__module__.startswith("stepwell.")
    if judge is None or is_own or not program.context.judges:
        return None
    lost = judge(program, (root[0], *(name for name, _ in rw.erased)), rw.inserted)
    if lost is None:
        return None
    if (reason := forbidden(lost, program.context)) is not None:
        failure = StepFailure(reason, where, "", step=rewrite.name, kind="loses", applications=0)
        failure.place = (rewrite.name, "", None)
        raise failure
    return TakenDeviation(rewrite.name, *root, where, lost.loses)
