"""Internal errors of a pass: which pass failed, at which op of the model, in which line of its own
code.

A rewrite that does not match returns a `Refusal`, and a model that is not supported raises a
`StepwellError`. This module handles the remaining cases: a rewrite or pass raises an exception of
Python, returns an invalid value, does not terminate, or leaves a program that does not verify.
"""

from __future__ import annotations

import inspect
import os
import re
import traceback
from collections.abc import Callable
from typing import Any

from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import RewritePattern

from stepwell.ir.context import Context, Place
from stepwell.ir.diagnostics import StepwellError, describe_op, node_name, op_name

REPRODUCER = "// stepwell reproducer"
"""The beginning of a reproducer's first line."""
NO_MATCH = (bool, str, int, float)
"""Types that no match has: a truthy value is not necessarily what `build` needs."""


class StepFailure(StepwellError):
    """A pass failed by an internal error.

    Attributes:
        step: the name of the rewrite or pass.
        kind: `raises`, `returns`, `endless` or `breaks`, with the class of the exception.
        applications: the number of applications before the failure.
        at: the index of the pass in its pipeline, once known.
        place: the rewrite, and the op to which it was applied or at which it was tried.
        line: the line in the pass's code, `my_rewrite.py:23`.
        reproducer: the reproducer (`stepwell.validation.reducer.reproducer`), once created.
    """

    def __init__(
        self, fact: str, where: str | None, help: str, *, step: str, kind: str, applications: int
    ) -> None:
        super().__init__(fact, where, help)
        self.step, self.kind, self.applications = step, kind, applications
        self.at: int | None = None
        self.place: Place | None = None
        self.line = ""
        self.reproducer: Any = None

    @property
    def signature(self) -> tuple[str, str]:
        """Return the part of a failure that stays the same while the program is reduced."""
        return self.step, self.kind


def raised(
    step: Any, name: str, phase: str, error: Exception, op: Operation | None, applications: int
) -> StepFailure:
    """Build the failure of a pass that raised an exception."""
    what = type(error).__name__
    message = str(error).strip().splitlines()
    reason = f"{what}: {message[0]}" if message else what
    subject = f"{op_name(op)}: " if op is not None else ""
    while hasattr(step, "held"):  # a pass of xDSL, or one with a name of its own
        step = step.held
    line = own_line(step, error)
    remedy = "return a Refusal or None for a case that it does not support"
    failure = StepFailure(
        f"{subject}{name} fails in {phase}, {reason}",
        describe_op(op) if op is not None else None,
        f"the line is {line}"
        + ("" if isinstance(step, ModulePass | RewritePattern) else f"; {remedy}"),
        step=name,
        kind=f"raises {what} in {phase}",
        applications=applications,
    )
    return failure if op is None else placed(failure, name, op, line)


def returned(
    step: Any, name: str, phase: str, given: Any, op: Operation | None, applications: int
) -> StepFailure:
    """Build the failure of a pass that returned an invalid value."""
    wanted = {
        "match": "None (no match), a Refusal, or the argument of build",
        "build": "nothing: it makes changes through the rewriter, and it contains no `yield`",
        "apply": "the number of changes",
    }[phase]
    subject = f"{op_name(op)}: " if op is not None else ""
    shown = repr(given) if isinstance(given, NO_MATCH) else f"the type {type(given).__name__}"
    line = first_line(step, phase)
    failure = StepFailure(
        f"{subject}{name} returns {shown} from {phase}",
        describe_op(op) if op is not None else None,
        f"{phase} returns {wanted}; it begins at {line}",
        step=name,
        kind=f"returns {type(given).__name__} from {phase}",
        applications=applications,
    )
    return failure if op is None else placed(failure, name, op, line)


def placed(failure: StepFailure, name: str, op: Operation, line: str) -> StepFailure:
    """Add the place of a rewrite to its failure; a failure of a whole pass has no place.

    Args:
        failure: the failure.
        name: the name of the rewrite.
        op: the op to which the rewrite was applied, which may be erased.
        line: the line, as formatted by `own_line` and `first_line`.
    """
    failure.place = (name, op_name(op), node_name(op.location))
    failure.line = re.sub(r"^.*?([^/\\]*:\d+).*", r"\1", line, flags=re.DOTALL)
    return failure


SWITCH = "STEPWELL_FAILURES"
"""The environment variable that, set to `raise`, makes every internal error of a pass end its
lowering.

Tests and fuzzing runs set it, because a defect that costs a user one op must not go unnoticed in
development.
"""
MISTAKE = "an internal error"
"""The prefix of the refusal that records a pass's internal error."""
MOST_LEFT = 32
"""The largest number of places that one lowering skips; a pass that fails at more is defective in
general.
"""


def leave_alone(failure: StepFailure, context: Context) -> bool:
    """Whether a lowering may be repeated without the application that failed.

    The place is recorded in the context, and the rewrite refuses it from then on. Repeating the
    lowering undoes the partial changes of a failed `build`; passes are deterministic.
    """
    place = failure.place
    if place is None or place in context.left_alone or len(context.left_alone) >= MOST_LEFT:
        return False
    problem = failure.problems[0]
    if failure.kind == "loses":  # No mistake: a refusal that comes late (`judging.py`).
        context.left_alone[place] = problem.fact
        return True
    if os.environ.get(SWITCH) == "raise":
        return False
    fact = problem.fact.removeprefix(f"{place[1]}: ")
    line = f" ({failure.line})" if failure.line else ""
    context.left_alone[place] = f"{MISTAKE}: {fact}{line}; the op is left as it was"
    return True


def own_line(step: Any, error: BaseException) -> str:
    """Format the innermost line of the pass's own file: `my_rewrite.py:23, in build: 1 / 0`."""
    frames = traceback.extract_tb(error.__traceback__)
    try:
        own = inspect.getsourcefile(type(step))
    except TypeError:
        own = None
    mine = [frame for frame in frames if frame.filename == own] or frames
    last = mine[-1]
    code = f": {last.line}" if last.line else ""
    return f"{last.filename}:{last.lineno}, in {last.name}{code}"


def first_line(step: Any, phase: str) -> str:
    """Format where a pass's method begins: `my_rewrite.py:20`."""
    function: Callable[..., Any] | None = getattr(type(step), phase, None)
    code = getattr(function, "__code__", None)
    if code is None:
        return type(step).__qualname__
    return f"{code.co_filename}:{code.co_firstlineno}"
