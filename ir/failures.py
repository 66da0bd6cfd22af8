"""A step that fails by its own mistake: which, at which op of the model, in which line of its own.

What a rewrite refuses is a `Refusal`, and what a user's model asks in vain is an error of its own;
here a rewrite or a pass raises what Python raises, gives something that it may not give, goes on
for ever, or leaves a program that does not verify.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any

from xdsl.ir import Operation

from stepwell.ir.diagnostics import StepwellError, describe_op, op_name

NO_MATCH = (bool, str, int, float)
"""Types that a match is none of: what is truthy is not yet what `build` needs."""


class StepFailure(StepwellError):
    """A step made a mistake.

    Attributes:
        step: the name of the rewrite or pass.
        kind: `raises`, `returns`, `endless` or `breaks`, with the class of what was raised.
        applications: how many applications the step had made before.
        at: the number of the step in its pipeline, once that is known.
        reproducer: what replays it (`stepwell.reproducing`), once that was made.
    """

    def __init__(
        self, fact: str, where: str | None, help: str, *, step: str, kind: str, applications: int
    ) -> None:
        super().__init__(fact, where, help)
        self.step, self.kind, self.applications = step, kind, applications
        self.at: int | None = None
        self.reproducer: Any = None

    @property
    def signature(self) -> tuple[str, str]:
        """What stays the same when the program around the failure gets smaller."""
        return self.step, self.kind


def raised(
    step: Any, name: str, phase: str, error: Exception, op: Operation | None, applications: int
) -> StepFailure:
    """The failure of a step that raised."""
    line = own_line(step, error)
    what = type(error).__name__
    said = str(error).strip().splitlines()
    reason = f"{what}: {said[0]}" if said else what
    subject = f"{op_name(op)}: " if op is not None else ""
    return StepFailure(
        f"{subject}{name} fails in {phase}, {reason}",
        describe_op(op) if op is not None else None,
        f"the line is {line}; a case that it is not for is a Refusal, or None",
        step=name,
        kind=f"raises {what} in {phase}",
        applications=applications,
    )


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
    return StepFailure(
        f"{subject}{name} returns {shown} from {phase}",
        describe_op(op) if op is not None else None,
        f"{phase} returns {wanted}; it begins at {first_line(step, phase)}",
        step=name,
        kind=f"returns {type(given).__name__} from {phase}",
        applications=applications,
    )


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
