"""Rewrites: `match` returns a match or a refusal, `build` writes the replacement.

A rewrite is a frozen dataclass named after its verb. `match` is called for an op of its `anchors`.
It returns None (the rewrite does not concern the op), a `Refusal` (it does, but correctness is not
certain; the reason is kept for `stepwell explain`) or a match: the op or a frozen dataclass, the
argument of `build`. Nothing is created before every guard has passed. `ir/rewriting/rewriter.py`
defines what `build` may do then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Generic, cast

from typing_extensions import TypeVar
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from stepwell.ir.compat.xdsl.xdsl_private import discard, operands_of
from stepwell.ir.context import ChoiceError
from stepwell.ir.declared.bounds import EXACT, Bound
from stepwell.ir.declared.numerics import Deviation, TakenDeviation, forbidden
from stepwell.ir.diagnostics import StepwellError, describe_op, node_name, op_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.dispatch import Ask, candidates_of, dispatch_of, may_match
from stepwell.ir.rewriting.failures import NO_MATCH, StepFailure, first_line, raised, returned
from stepwell.ir.rewriting.history import Event, History
from stepwell.ir.rewriting.inherited_deviations import judged
from stepwell.ir.rewriting.rewriter import Rewriter, Scope, neighbors
from stepwell.ir.side_effects import is_dead, is_empty, is_one_of
from stepwell.ir.traversal import walk
from stepwell.ir.weights import UnknownValue

DEEP = 8
"""An op is deep if this number of consecutive applications led to it, each at an op that the
previous one had created or changed. Lowerings of models reach depth four; rewrites that undo each
other, or recreate what they match, have no limit.
"""
DEEP_APPLICATIONS = 4096
"""How many applications at deep ops, in addition to one for each op of the initial program, a run
may make before the driver reports that it does not terminate.
"""


@dataclass(frozen=True)
class Refusal:
    """The reason why a rewrite that concerns an op did not match it.

    Attributes:
        reason: a sentence.
        saving: the estimated nanoseconds that the rewrite would save, if only the option `numerics`
            refuses it.
    """

    reason: str
    saving: float = 0.0


Value = Callable[[SSAValue], Any]
"""Returns the run-time value of any SSA value in the program."""


M = TypeVar("M")
O = TypeVar("O", bound=Operation, default=Any, contravariant=True)  # noqa: E741


class Rewrite(ABC, Generic[M, O]):
    """A rewrite. Subclasses are frozen dataclasses whose fields are its options.

    `Rewrite[Match]` is the type of matches, `Rewrite[Match, ReluOp]` also the type of the ops.
    """

    name: ClassVar[str]
    anchors: ClassVar[tuple[type[Operation], ...]]
    bound: ClassVar[Bound] = EXACT
    deviation: ClassVar[Deviation | None] = None
    """The special values that every application may lose: allowed, recorded, or a refusal."""
    takes_empty: ClassVar[bool] = True
    """Whether it applies to ops with an operand or result without elements."""
    deep_applications: ClassVar[int] = DEEP_APPLICATIONS
    """How many applications at deep ops it may make; the minimum counts for rewrites driven
    together.
    """
    phases: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """The phases of pipelines to which it belongs, with its options there: `decompose` of every
    target that lacks an op that it matches, `xnnpack/decompose` of one target.
    """
    exact: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Ops, with dtypes, whose results have none of the deviations of their nodes after it."""

    @abstractmethod
    def match(self, op: O, program: Program) -> M | Refusal | None:
        """Return a match at `op`, a refusal with its reason, or None."""

    @abstractmethod
    def build(self, match: M, rw: Rewriter) -> None:
        """Replace a match by new ops, written with a `Rewriter`."""

    def asked_of(self, cls: type[Operation]) -> Ask:
        """Return `match`, or a specialization of it for ops of a class, which the driver calls."""
        return self.match

    def deviates(self, match: M, program: Program) -> Deviation | None:
        """Return the deviation of this application; None if it provably has no deviation."""
        return self.deviation

    def bound_at(self, match: M, value: Value) -> Bound:
        """Return the error bound of this application at the value that it replaces.

        Args:
            match: the match.
            value: returns the run-time value of any SSA value in the current program.
        """
        return self.bound

    def apply(self, program: Program, history: History) -> int:
        """Apply to a fixed point, and return the number of applications."""
        return run_rewrites(program, (self,), history)


Converted = Callable[[Any], Any] | None
"""The conversion of a value at the boundary of a method, if any."""


class Pass(ABC):
    """A pass over the whole program."""

    name: ClassVar[str]
    bound: ClassVar[Bound] = EXACT

    @abstractmethod
    def apply(self, program: Program, history: History) -> int:
        """Change the program in place, and return the number of changes."""

    def crossing(self, func: FuncOp) -> tuple[Sequence[Converted], Sequence[Converted]]:
        """Return how callers of a method must convert its inputs and outputs after the pass.

        There is one entry for each input and for each output, queried before the pass runs; None
        means no change. A pass that moves the boundary between program and caller implements this.
        """
        return (), ()


Step = Rewrite[Any] | Pass


def apply_step(step: Step, program: Program, history: History) -> int:
    """Apply a pass, and return the number of changes.

    Raises:
        StepFailure: the pass failed by an internal error.
        StepwellError: the pass refuses the program.
    """
    before = len(history.events)
    program.context.forget()
    program.context.running = step_name(step)
    try:
        applied: Any = step.apply(program, history)
    except StepwellError:
        raise
    except Exception as error:
        made = len(history.events) - before
        raise raised(step, step_name(step), "apply", error, None, made) from error
    finally:
        program.context.forget()
    if type(applied) is not int:
        raise returned(step, step_name(step), "apply", applied, None, 0)
    return applied


@dataclass(frozen=True)
class GreedyRewrites(Pass):
    """Several rewrites driven to one common fixed point, tried in the given order."""

    label: str
    rewrites: tuple[Rewrite[Any], ...]
    name: ClassVar[str] = "together"

    def apply(self, program: Program, history: History) -> int:
        """Apply all rewrites to a fixed point."""
        return run_rewrites(program, self.rewrites, history)


@dataclass(frozen=True)
class NamedPass(Pass):
    """A pass with another name, for a pipeline that contains it twice."""

    label: str
    held: Pass
    name: ClassVar[str] = "named"

    def apply(self, program: Program, history: History) -> int:
        """Apply the renamed pass, and return the number of changes."""
        return self.held.apply(program, history)

    def crossing(self, func: FuncOp) -> tuple[Sequence[Converted], Sequence[Converted]]:
        """Return how callers must convert inputs and outputs after the pass (`Pass.crossing`)."""
        return self.held.crossing(func)


def step_name(step: Step) -> str:
    """Return the kebab-case name of a pass."""
    return cast("GreedyRewrites | NamedPass", step).label if _is_labeled(type(step)) else step.name


@cache
def _is_labeled(cls: type[Any]) -> bool:
    """Whether passes of a class contain others; cached, as `isinstance` of an ABC is slow."""
    return issubclass(cls, GreedyRewrites | NamedPass)


def parts_of(step: Step) -> tuple[Step, ...]:
    """Return the rewrites or the pass that a pass contains; empty for other passes."""
    if isinstance(step, GreedyRewrites):
        return step.rewrites
    return (step.held,) if isinstance(step, NamedPass) else ()


def bound_of(step: Step) -> Bound:
    """Return the error bound of a pass over the whole program."""
    return step.held.bound if isinstance(step, NamedPass) else step.bound


def anchors_of(step: Step) -> tuple[type[Operation], ...] | None:
    """Return the op classes that a pass matches; None for a pass over the whole program."""
    if _is_labeled(type(step)):
        if isinstance(step, NamedPass):
            return anchors_of(step.held)
        held = cast(GreedyRewrites, step).rewrites
        return tuple(anchor for rewrite in held for anchor in rewrite.anchors)
    if isinstance(step, Rewrite) and type(step).apply is Rewrite.apply:
        return step.anchors
    return None


_EMPTY = Refusal("an operand or a result of the op is empty")


def run_rewrites(
    program: Program, rewrites: Sequence[Rewrite[Any]], history: History | None = None
) -> int:
    """Drive rewrites to a fixed point with a worklist; dead pure ops are removed as they appear.

    Each op is visited once, and again only when an operand, a user or the op itself changed.

    Returns: the number of applications.

    Raises:
        StepwellError: rewrites undo each other, or one recreates what it matches, without an end
            (see `DEEP_APPLICATIONS`).
    """
    return _Driver(program, rewrites, history if history is not None else History()).run()


def looks_at(step: Step, classes: Iterable[type[Operation]]) -> bool:
    """Whether a pass may match ops of some classes; a pass over the whole program always may."""
    if type(step) is NamedPass:
        return looks_at(step.held, classes)
    if _is_labeled(type(step)):
        return may_match(cast(GreedyRewrites, step).rewrites, classes)
    anchors = anchors_of(step)
    return anchors is None or any(is_one_of(cls, anchors) for cls in classes)


def is_driven(step: Step) -> bool:
    """Whether a pass consists of rewrites only, each driven at ops of its anchors."""
    if type(step) is NamedPass:
        return is_driven(step.held)
    return _is_labeled(type(step)) or anchors_of(step) is not None


class _Driver:
    """One run to a fixed point: the worklist, and the record of applications and refusals.

    Ops are identified by `id`, which costs less than their hash; each entry keeps its op alive.
    """

    def __init__(
        self, program: Program, rewrites: Sequence[Rewrite[Any]], history: History
    ) -> None:
        self.program = program
        self.rewrites = rewrites
        self.history = history
        self.applied = 0
        self._dispatch = dispatch_of(rewrites)
        self._work: deque[Operation] = deque()
        self._waiting: set[int] = set()
        self._depths: dict[int, tuple[Operation, int]] = {}
        self._deep: Counter[str] = Counter()
        self._allowed = 0
        self._scopes: dict[Block, Scope] = {}
        self._refused: dict[tuple[int, str], tuple[Operation, Refusal]] = {}
        self._left_alone = program.context.left_alone

    def run(self) -> int:
        """Visit ops until the worklist is empty, and return the number of applications."""
        ops = walk(self.program.module)
        self._allowed = len(ops) + min(
            (rewrite.deep_applications for rewrite in self.rewrites), default=DEEP_APPLICATIONS
        )
        dispatch, rewrites = self._dispatch, self.rewrites
        candidates = {cls: candidates_of(cls, rewrites, dispatch) for cls in set(map(type, ops))}
        work = self._work = deque([op for op in ops[1:] if candidates[type(op)] or is_dead(op)])
        waiting, visits = self._waiting, 0
        waiting.update(map(id, work))
        while work:
            op = work.popleft()
            waiting.discard(id(op))
            if op.parent is None:
                continue
            visits += 1
            if is_dead(op):
                self._sweep(op)
            else:
                self._visit(op)
        self.history.visits += visits
        for (_, name), (op, refusal) in self._refused.items():
            if op.parent is not None or refusal.saving:
                self.history.refuse(name, op, refusal.reason, refusal.saving)
        return self.applied

    def _push(self, ops: Iterable[Operation]) -> None:
        work, waiting, dispatch = self._work, self._waiting, self._dispatch
        for op in ops:
            if id(op) in waiting or op.parent is None:
                continue
            candidates = dispatch.get(type(op))
            if candidates is None:
                candidates = candidates_of(type(op), self.rewrites, dispatch)
            if candidates or is_dead(op):
                waiting.add(id(op))
                work.append(op)

    def _sweep(self, op: Operation) -> None:
        """Erase an op without readers or effects."""
        operands = operands_of(op)
        discard(op)
        self._depths.pop(id(op), None)
        self.history.swept += 1
        self._push(neighbors(operands))

    def _visit(self, op: Operation) -> None:
        """Apply the first rewrite that matches, if any."""
        refused, is_hollow = self._refused, None
        for rewrite, ask in self._dispatch[type(op)]:
            if not rewrite.takes_empty and is_hollow is None:
                is_hollow = is_empty(op)
            found = _EMPTY if is_hollow and not rewrite.takes_empty else self._ask(rewrite, ask, op)
            lost = None if found is None else self._loss(rewrite, op, found)
            if isinstance(lost, Refusal):
                refused[id(op), rewrite.name] = (op, lost)
                continue
            if refused:
                refused.pop((id(op), rewrite.name), None)
            if found is None:
                continue
            if lost is not None and not lost.everywhere:
                self._record_deviation(rewrite, op, lost)
            self._apply(rewrite, op, found)
            if lost is not None:
                self.program.context.forget()
            return

    def _ask(self, rewrite: Rewrite[Any], ask: Ask, op: Operation) -> Any:
        """Return a rewrite's match at an op, its refusal or None."""
        if self._left_alone:
            place = (rewrite.name, op_name(op), node_name(op.location))
            all_places = (rewrite.name, "", None)
            if reason := self._left_alone.get(place) or self._left_alone.get(all_places):
                return Refusal(reason)
        try:
            found = ask(op, self.program)
        except Exception as error:
            return self._excused(rewrite, op, error)
        if found is not None and isinstance(found, NO_MATCH):
            raise returned(rewrite, rewrite.name, "match", found, op, self.applied)
        return found

    def _loss(self, rewrite: Rewrite[Any], op: Operation, found: Any) -> Deviation | Refusal | None:
        """Return the deviation of a match, or a refusal if the mode does not allow it."""
        if isinstance(found, Refusal):
            return found
        try:
            lost = rewrite.deviates(found, self.program)
        except Exception as error:
            return self._excused(rewrite, op, error)
        if lost is not None and (reason := forbidden(lost, self.program.context)):
            return Refusal(reason)
        return lost

    def _excused(self, rewrite: Rewrite[Any], op: Operation, error: Exception) -> Refusal:
        """Return the refusal of a rewrite that needs the elements of a weight that are not
        available.

        Raises:
            StepFailure: any other error of the rewrite.
        """
        if isinstance(error, UnknownValue):
            return Refusal(error.problems[0].fact)
        if isinstance(error, StepFailure | ChoiceError):
            raise error
        raise raised(rewrite, rewrite.name, "match", error, op, self.applied) from error

    def _record_deviation(self, rewrite: Rewrite[Any], op: Operation, lost: Deviation) -> None:
        where = describe_op(op)
        taken = TakenDeviation(rewrite.name, op_name(op), node_name(op.location), where, lost.loses)
        self.history.deviations.append(taken)

    def _apply(self, rewrite: Rewrite[Any], op: Operation, found: Any) -> None:
        depths = self._depths
        depth = depths.pop(id(op), (op, 0))[1] + 1
        if depth > DEEP:
            self._deep[rewrite.name] += 1
            if self._deep.total() > self._allowed:
                raise self._endless(op)
        rw = Rewriter(op, self.program, self._scopes)
        self.program.context.running = rewrite.name
        root, where = (op_name(op), node_name(op.location)), describe_op(op)
        watch = self.history.watch
        if watch is not None:
            watch.before(rewrite, op, found)
        self._build(rewrite, op, found, rw)
        if (lost := judged(rewrite, root, where, rw, self.program)) is not None:
            self.history.deviations.append(lost)
        if rw.superseded:
            self.program.context.forget()
        self.applied += 1
        for heir in (*rw.inserted, *rw.modified, op):
            if heir.parent is not None:
                depths[id(heir)] = (heir, max(depth, depths.get(id(heir), (heir, 0))[1]))
        _record(self.history, rewrite.name, root, where, rw)
        if watch is not None:
            watch.after(rewrite, rw)
        self._push(_affected(op, rw))

    def _build(self, rewrite: Rewrite[Any], op: Operation, found: Any, rw: Rewriter) -> None:
        """Call `build`.

        If it raises, its partial changes remain in the program; a caller that continues must start
        again.
        """
        try:
            given: Any = rewrite.build(found, rw)
        except (StepFailure, ChoiceError, UnknownValue):
            raise
        except Exception as error:
            raise raised(rewrite, rewrite.name, "build", error, op, self.applied) from error
        if given is not None:
            raise returned(rewrite, rewrite.name, "build", given, op, self.applied)

    def _endless(self, op: Operation) -> StepFailure:
        """Return the error that names the rewrites that do not terminate."""
        names = [name for name, count in self._deep.most_common() if count * 100 > self._allowed]
        cause = "it makes again what it matches" if len(names) == 1 else "they undo each other"
        guilty = [rewrite for rewrite in self.rewrites if rewrite.name in names]
        lines = ", ".join(first_line(rewrite, "match") for rewrite in guilty)
        return StepFailure(
            f"{op_name(op)}: {', '.join(names)} applied {self._deep.total()} times without an end",
            describe_op(op),
            f"{cause}; let a guard refuse what is done already, or run them in separate steps; "
            f"they begin at {lines}",
            step=" and ".join(sorted(names)),
            kind="endless",
            applications=self.applied,
        )


def _record(
    history: History, name: str, root: tuple[str, str | None], where: str | None, rw: Rewriter
) -> None:
    dead = rw.name_fused()
    created = tuple((op_name(o), node_name(o.location)) for o in rw.inserted)
    erased = (*rw.erased, *((op_name(o), node_name(o.location)) for o in dead))
    heirs = {new.owner: None for _, new in rw.replaced if isinstance(new.owner, Operation)}
    absorbed_by = tuple(
        (op_name(o), node_name(o.location))
        for o in heirs
        if o in rw.modified or node_name(o.location) not in (None, root[1])
    )
    history.events.append(Event(name, root, erased, created, where, absorbed_by))


def _affected(root: Operation, rw: Rewriter) -> Iterable[Operation]:
    ops: list[Operation] = []
    for op in rw.inserted:
        if op.regions:
            ops += walk(op)
        else:
            ops.append(op)
    ops += rw.touched
    for op in rw.inserted:
        for result in op.results:
            ops += [use.operation for use in result.uses]
    if root.parent is not None:
        ops.append(root)
    return ops
