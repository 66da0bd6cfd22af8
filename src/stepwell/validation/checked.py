"""Compare what a program computes before and after each pass of its lowering, for `check`."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from stepwell.ir.calls.calling import bind_inputs
from stepwell.ir.diagnostics import StepwellError, describe_op, node_name, op_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import (
    Bound,
    Converted,
    GreedyRewrites,
    History,
    Pass,
    Rewrite,
    Step,
    apply_step,
    bound_of,
    step_name,
)
from stepwell.validation.compare import (
    Difference,
    describe_bound,
    deviation,
    differs,
    tolerated,
    total_bound,
)
from stepwell.validation.histories import make_histories
from stepwell.validation.recording import NotRecorded, Recording, record, recorded_bytes
from stepwell.validation.result import CheckResult, Finding, StepVerdict
from stepwell.validation.rounding import rounds_floats, with_noise
from stepwell.validation.samples import Sample, make_samples
from stepwell.validation.step_observer import Derived, Watcher

Crossing = tuple[Sequence[Converted], Sequence[Converted]]
"""How a pass converts each input and each output of a method, if it does."""

FOLLOWED = Bound(1e-4, 1e-6, "values that followed each pass, against a complete run at the end")


@dataclass
class Checked:
    """A program during its lowering, with the values that it computed before the current pass."""

    program: Program
    memory: int
    recordings: dict[str, list[Recording]] = field(default_factory=dict[str, list[Recording]])
    verdicts: list[StepVerdict] = field(default_factory=list[StepVerdict])
    findings: list[Finding] = field(default_factory=list[Finding])
    skipped: list[str] = field(default_factory=list[str])
    history: History = field(default_factory=History)
    tried: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The labels of each method's samples on which the program runs."""
    _left: int = 0
    """The remaining bytes for inner values."""
    derived: Derived | None = None
    engines: Sequence[str] = ()
    """The families of CPUs whose special values each application is tried on."""

    def _example(self, method: str) -> list[Any] | None:
        """Return the example inputs that the export stored, if the program has some and accepts
        them.
        """
        if method not in self.program.samples:
            return None
        args, kwargs = self.program.samples[method]
        try:
            return bind_inputs(self.program.method(method), args, kwargs)
        except StepwellError:
            return None  # Sizes were pinned to other values meanwhile.

    def start(self, inputs: Sequence[Any] | None, seed: int) -> None:
        """Record the source program on every sample on which it runs."""
        self._left = self.memory
        for name, func in self.program.methods.items():
            example = bind_inputs(func, inputs) if inputs is not None else self._example(name)
            kept = self._recorded(name, make_samples(func, example, seed))
            if not kept:
                raise StepwellError(
                    f"the method @{name} fails on every sample",
                    help="pass inputs that the model accepts: check(..., inputs=example_inputs); "
                    + "; ".join(self.skipped[:3]),
                )
            self.recordings[name] = kept
        samples = {name: [run.sample for run in runs] for name, runs in self.recordings.items()}
        for name, histories in make_histories(self.program, samples, seed).items():
            self.recordings[name] += self._recorded(name, histories)
        for name, runs in self.recordings.items():
            self.tried[name] = tuple(run.sample.label for run in runs)

    def _recorded(self, method: str, samples: Sequence[Sample]) -> list[Recording]:
        """Run a method on all samples; return the recordings (all values) of the runs that did not
        fail.
        """
        kept: list[Recording] = []
        for sample in samples:
            try:
                recording = record(self.program.method(method), self.program.weights, sample)
            except StepwellError as error:
                if not sample.guessed:
                    fact = error.problems[0].fact
                    self.skipped.append(f"@{method} on {sample.label}: the program fails: {fact}")
                continue
            self._left = self._within(recording, self._left)
            kept.append(recording)
        return kept

    def _within(self, recording: Recording, left: int) -> int:
        """Return the memory that is left after a recording; discard the recording's inner values if
        they do not fit.
        """
        size = recorded_bytes(recording)
        if size > left and left < self.memory:
            recording.values.clear()
            return left
        return left - size

    def step(self, step: Step) -> None:
        """Apply one pass of the pipeline, and compare what the program computes before and after
        it.
        """
        name, of_rewrites = step_name(step), isinstance(step, Rewrite | GreedyRewrites)
        every = [run for runs in self.recordings.values() for run in runs]
        if not of_rewrites and any(run.followed_to for run in every):
            # A pass is compared with a real run, not with values that followed the rewrites.
            self._run_followed()
        watcher = Watcher(self.program, self.history, self.recordings, name)
        watcher.engines, watcher.derived = self.engines, self.derived
        crossings = {
            method: step.crossing(func) if isinstance(step, Pass) else ((), ())
            for method, func in self.program.methods.items()
        }
        self.history.watch = watcher
        applied = apply_step(step, self.program, self.history)
        self.history.watch = None
        started = time.perf_counter()
        if not applied:
            said = describe_bound(bound_of(step))
            self.verdicts.append(StepVerdict(name, 0, said, 0, 0, 0.0, 0.0, True))
            return
        bounds = [*watcher.bounds, *([] if of_rewrites else [bound_of(step)])]
        bound, floats = total_bound(bounds), tolerated(bounds)
        is_jumpy = not bound.exact and rounds_floats(self.program)
        is_covered = watcher.compared > 0 and not watcher.not_compared
        follow = (bound.is_local and watcher.trusted) or (is_jumpy and is_covered)
        wanted, not_followed = self._wanted(follow, crossings)
        is_whole = of_rewrites and not watcher.not_compared
        after, failures = self._again(name, crossings, is_whole)
        findings = list(watcher.findings) + failures
        largest = watcher.largest
        compared = 0
        for method, befores in self.recordings.items():
            for before in befores:
                now = after[method].get(before.sample.label)
                expected = wanted.get(id(before))
                if now is None or expected is None or not (bound.exact or before.sample.plain):
                    continue
                compared += 1
                for what, old in expected.items():
                    new = now.observed().get(what)
                    largest = max(largest, deviation(old, new))
                    difference = differs(old, new, floats, against="tensor")
                    if difference is not None and not watcher.findings:
                        findings.append(_located(name, what, difference, before, now, bound))
        said, seconds = describe_bound(bound), time.perf_counter() - started
        counts, note = (compared, watcher.compared), _note(watcher, not_followed)
        ok = not findings
        self.verdicts.append(StepVerdict(name, applied, said, *counts, largest, seconds, ok, note))
        self.findings += findings
        self.recordings = {method: list(runs.values()) for method, runs in after.items()}

    def _wanted(
        self, follow: bool, crossings: Mapping[str, Crossing]
    ) -> tuple[dict[int, dict[str, Any]], int]:
        """Return what a caller must observe in each recorded run after a pass, by the identity of
        the recording. Also return the number of runs that cannot be compared.

        A difference of one unit in an inner value may become any number of units at the outputs,
        and so may a last bit that decides a rounding to integers. In these cases each application
        was compared at the value that it replaced, and the outputs must equal the recording that
        adopted every such new value.
        """
        wanted: dict[int, dict[str, Any]] = {}
        unknown = 0
        for method, befores in self.recordings.items():
            for before in befores:
                try:
                    func = self.program.method(method)
                    seen = before.followed(func) if follow else before.observed()
                except NotRecorded:
                    unknown += 1
                    continue
                for index, convert in enumerate(crossings[method][1]):
                    if convert is not None:
                        seen[f"output {index}"] = convert(seen[f"output {index}"])
                wanted[id(before)] = seen
        return wanted, unknown

    def _again(
        self, step: str, crossings: Mapping[str, Crossing], is_whole: bool = False
    ) -> tuple[dict[str, dict[str, Recording]], list[Finding]]:
        """Run and record every sample again; report a sample that now fails as a finding.

        Args:
            step: the pass's name.
            crossings: how the pass converts the inputs and outputs of each method.
            is_whole: whether every application was compared at the values that it replaced. Samples
                of which only replaced values are computed need not be run then.
        """
        left = self.memory
        after: dict[str, dict[str, Recording]] = {}
        failures: list[Finding] = []
        for name, befores in self.recordings.items():
            func = self.program.method(name)
            after[name] = {}
            for before in befores:
                kept, sample = bool(before.values), _converted(before.sample, crossings[name][0])
                try:
                    if is_whole and sample.followed and kept:
                        with suppress(NotRecorded):
                            after[name][sample.label] = before.on(func)
                            continue
                    recording = record(func, self.program.weights, sample)
                except StepwellError as error:
                    problem = error.problems[0]
                    fact = f"fails, although it ran before the pass: {problem.fact}"
                    failures.append(Finding(step, sample.label, fact, where=problem.where))
                    continue
                if kept:
                    left = self._within(recording, left)
                else:
                    recording.values.clear()
                after[name][sample.label] = recording
        return after, failures

    def finish(self) -> None:
        """After the last pass, run completely the samples for which only replaced values were
        computed.
        """
        started, before = time.perf_counter(), len(self.findings)
        largest, compared = self._run_followed()
        if compared:
            said, ok = describe_bound(FOLLOWED), len(self.findings) == before
            seconds = time.perf_counter() - started
            verdict = StepVerdict("all steps", 1, said, compared, 0, largest, seconds, ok)
            self.verdicts.append(verdict)

    def _run_followed(self) -> tuple[float, int]:
        """Run all samples completely, also those for which passes only computed replaced values;
        return the largest deviation and their number.
        """
        largest, compared = 0.0, 0
        after, failures = self._again("all steps", dict.fromkeys(self.recordings, ((), ())))
        self.findings += failures
        for method, runs in self.recordings.items():
            for run in runs:
                now = after[method].get(run.sample.label)
                if run.followed_to is None or now is None or not run.sample.plain:
                    continue
                compared += 1
                shown = now.observed()
                pairs = {what: (old, shown.get(what)) for what, old in run.followed_to.items()}
                bound = FOLLOWED
                if any(differs(old, new, bound, against="tensor") for old, new in pairs.values()):
                    is_jumpy = rounds_floats(self.program)
                    bound = (
                        with_noise(bound, self.program, method, run.sample) if is_jumpy else bound
                    )
                for what, (old, new) in pairs.items():
                    largest = max(largest, deviation(old, new))
                    difference = differs(old, new, bound, against="tensor")
                    if difference is not None and not self.findings:
                        self.findings.append(
                            _located("all steps", what, difference, run, now, bound)
                        )
        self.recordings = {method: list(runs.values()) for method, runs in after.items()}
        return largest, compared

    def result(self, target: str, started: float, **more: Any) -> CheckResult:
        """Return the result of a check; `begin` is its start time."""
        lists = (tuple(self.verdicts), tuple(self.findings), tuple(self.skipped))
        return CheckResult(target, *lists, time.perf_counter() - started, **more)

    def verify(self) -> None:
        """Verify the lowered program at its level."""
        try:
            self.program.verify()
        except StepwellError as error:
            for problem in error.problems:
                self.findings.append(Finding("verify", "", problem.fact, where=problem.where))

    def add(
        self,
        verdicts: Sequence[StepVerdict],
        findings: Sequence[Finding],
        skipped: Sequence[str],
    ) -> None:
        """Add the findings of another comparison to the result of the check."""
        self.verdicts += verdicts
        self.findings += findings
        self.skipped += skipped


def _converted(sample: Sample, how: Sequence[Converted]) -> Sample:
    """Return a sample whose inputs are converted as a pass converted those of the method."""
    if not any(how):
        return sample
    pairs = zip(sample.inputs, how, strict=True)
    return replace(sample, inputs=tuple(v if f is None else f(v) for v, f in pairs))


def _note(watcher: Watcher, not_followed: int) -> str:
    not_compared, underived = watcher.not_compared, watcher.underived
    notes = [f"{not_compared} applications compared at the outputs only"] if not_compared else []
    if not_followed:
        notes.append(
            f"{not_followed} samples not compared: their inner values exceed the memory limit"
        )
    if underived:
        why = ", ".join(sorted(set(underived))[:3])
        notes.append(f"{len(underived)} values within 2e-05, not a derived bound: {why}")
    return "; ".join(notes)


def _located(
    step: str, what: str, difference: Difference, before: Recording, after: Recording, bound: Bound
) -> Finding:
    """Return the first model node whose value differs, after a pass that was not observed."""
    label, said = before.sample.label, describe_bound(bound)
    old: dict[tuple[str, str], tuple[Any, Any]] = {}
    for value, held in before.values.items():
        if (node := _node(value)) is not None:
            old[node, str(value.type)] = (held, value.owner)
    new: dict[tuple[str, str], tuple[SSAValue, Any]] = {}
    for value, held in after.values.items():
        if (node := _node(value)) is not None and (node, str(value.type)) in old:
            # The last op that a node was lowered to represents it.
            new.pop((node, str(value.type)), None)
            new[node, str(value.type)] = (value, held)
    for (node, type_), (value, held) in new.items():
        earlier, owner = old[node, type_]
        found = differs(earlier, held, bound, against="tensor")
        if found is not None:
            where = _described(owner) or _described(value.owner)
            op = (op_name(owner), node, where)
            return Finding(step, label, str(found), found.largest, said, None, *op)
    return Finding(step, label, f"{what}: {difference}", difference.largest, said)


def _described(owner: Operation | Block) -> str | None:
    return describe_op(owner) if isinstance(owner, Operation) else None


def _node(value: Any) -> str | None:
    owner = value.owner
    return node_name(owner.location) if hasattr(owner, "location") else None
