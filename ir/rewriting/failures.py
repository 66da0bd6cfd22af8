"""A step that fails by its own mistake: which, at which op of the model, in which line of its own.

What a rewrite refuses is a `Refusal`, and what a user's model asks in vain is an error of its own;
here a rewrite or a pass raises what Python raises, gives something that it may not give, goes on
for ever, or leaves a program that does not verify.
"""

from __future__ import annotations

import inspect
import os
import re
import traceback
from collections.abc import Callable
from typing import Any

from xdsl.ir import Operation

from stepwell.ir.context import Context, Place
from stepwell.ir.diagnostics import StepwellError, describe_op, node_name, op_name

NO_MATCH = (bool, str, int, float)
"""Types that a match is none of: what is truthy is not yet what `build` needs."""


class StepFailure(StepwellError):
    """A step made a mistake.

    Attributes:
        step: the name of the rewrite or pass.
        kind: `raises`, `returns`, `endless` or `breaks`, with the class of what was raised.
        applications: how many applications the step had made before.
        at: the number of the step in its pipeline, once that is known.
        place: the rewrite and the op that it was applied to, or asked about.
        line: the step's own, `my_rewrite.py:23`.
        reproducer: what replays it (`stepwell.validation.reducer.reproducer`), once that was made.
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
        """What stays the same when the program around the failure gets smaller."""
        return self.step, self.kind


def raised(
    step: Any, name: str, phase: str, error: Exception, op: Operation | None, applications: int
) -> StepFailure:
    """The failure of a step that raised."""
    what = type(error).__name__
    said = str(error).strip().splitlines()
    reason = f"{what}: {said[0]}" if said else what
    subject = f"{op_name(op)}: " if op is not None else ""
    line = own_line(step, error)
    failure = StepFailure(
        f"{subject}{name} fails in {phase}, {reason}",
        describe_op(op) if op is not None else None,
        f"the line is {line}; a case that it is not for is a Refusal, or None",
        step=name,
        kind=f"raises {what} in {phase}",
        applications=applications,
    )
    return failure if op is None else placed(failure, name, op, line)


def returned(
    step: Any, name: str, phase: str, given: Any, op: Operation | None, applications: int
) -> StepFailure:
    """The failure of a step that returned what it may not."""
    wanted = {
        "match": "None (not its business), a Refusal, or what build needs",
        "build": "nothing: what it changes goes through the rewriter, and no `yield` stands in it",
        "apply": "the number of changes",
    }[phase]
    subject = f"{op_name(op)}: " if op is not None else ""
    shown = repr(given) if isinstance(given, NO_MATCH) else f"a {type(given).__name__}"
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
    """The failure of a rewrite with its place, which a pass has none of.

    Args:
        failure: what is told.
        name: the rewrite's.
        op: what it was applied to; it may be gone.
        line: as `own_line` and `first_line` spell it.
    """
    failure.place = (name, op_name(op), node_name(op.location))
    failure.line = re.sub(r"^.*?([^/\\]*:\d+).*", r"\1", line, flags=re.DOTALL)
    return failure


SWITCH = "STEPWELL_FAILURES"
"""The environment variable that, set to `raise`, makes every mistake of a step end its lowering.

Tests and campaigns set it: a defect that costs a user one op must not be overlooked by us.
"""
MISTAKE = "a mistake of its own"
"""How the refusal begins that a step's failure becomes."""
MOST_LEFT = 32
"""Places that a lowering leaves alone at most; a step that fails everywhere is no accident."""


def leave_alone(failure: StepFailure, context: Context) -> bool:
    """Whether a lowering may be taken again without the application that failed.

    The place is noted in the context, whose rewrites refuse it from then on. Beginning anew undoes
    whatever a `build` wrote before it failed: steps are deterministic.
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
    """`my_rewrite.py:23, in build: 1 / 0`: the innermost line of the step's own file."""
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
    """Where a step's method begins: `my_rewrite.py:20`."""
    function: Callable[..., Any] | None = getattr(type(step), phase, None)
    code = getattr(function, "__code__", None)
    if code is None:
        return type(step).__qualname__
    return f"{code.co_filename}:{code.co_firstlineno}"
