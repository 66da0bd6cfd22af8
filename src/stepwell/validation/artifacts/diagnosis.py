"""Find the first operator that is wrong, and say what its difference is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from xdsl.ir import Operation, SSAValue

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.validation.artifacts.classify import cause, is_quantized, is_special, is_tie
from stepwell.validation.artifacts.comparing import Allowed, apart, differs, is_within
from stepwell.validation.artifacts.engine_process import Failure, run_calls
from stepwell.validation.artifacts.fingerprints import (
    Fingerprint,
    interpret,
    is_exact,
    recorded_call,
)
from stepwell.validation.artifacts.kernels import ending_kernel, wrong_kernel
from stepwell.validation.artifacts.matching import (
    Correspondence,
    Parting,
    correspond,
    parting,
    tolerances,
)
from stepwell.validation.artifacts.naming import errors_of, wrong_kernel_of, wrong_of
from stepwell.validation.artifacts.opaque import values_of
from stepwell.validation.artifacts.pair import RUNTIME, ComparedCall, Pair
from stepwell.validation.artifacts.recomputing import Region
from stepwell.validation.artifacts.script import Reproduction, reproduction
from stepwell.validation.artifacts.synchronizing import (
    arranged,
    local_tolerances,
    synchronized,
)
from stepwell.validation.artifacts.verdict import CallDifference, Validation, Wrong
from stepwell.validation.compare import deviation
from stepwell.validation.histories import state_of
from stepwell.validation.rounding import NOISE

_Values = Mapping[SSAValue, Any]
QUANTIZED = 0.5
"""The relative error (of Euclidean norms) of half of the calls that quantization explains."""


def diagnose(pair: Pair) -> Validation:
    """Return the verdict on an artifact whose calls were compared with its source's."""
    found = _Diagnosis(pair)
    try:
        found.run()
    except StepwellError as error:  # An operator of the artifact cannot be interpreted.
        pair.notes.append(f"the search for the operator ended: {error.problems[0].fact}")
    shapes = {
        tuple(x.shape for x in one.case.sample.inputs if isinstance(x, torch.Tensor))
        for one in pair.compared
    }
    differences = tuple(said for _, said in (*pair.crashes, *pair.differing))
    matches = found.matches
    matched = 0 if matches is None else len(matches.found)
    return Validation(
        differences,
        found.wrong,
        len(pair.compared),
        len(shapes),
        matched,
        0 if matches is None else matches.covered - matched,
        0 if matches is None else len(matches.source.prints),
        pair.engine,
        pair.refused,
        pair.opaque(),
        tuple(pair.notes),
        {} if matches is None else errors_of(matches),
        found.script,
    )


@dataclass
class _Diagnosis:
    """The search for the first wrong operator."""

    pair: Pair
    wrong: Wrong | None = None
    matches: Correspondence | None = None
    script: Reproduction | None = None

    def run(self) -> None:
        """Set the first wrong operator, the matched values and the script."""
        pair = self.pair
        if pair.differing:
            self._set_ties()
        if pair.made is not None and is_quantized(pair.made) and not is_quantized(pair.origin):
            self._set_quantized()
        elif pair.made is not None and self._is_local:
            self._set_rounded()
        faults = [(one, said) for one, said in pair.differing if said.kind == "unknown"]
        if faults and pair.made is not None:
            self.wrong = wrong_buffer(pair.origin, pair.made)
        comparable = pair.made is not None or pair.recorded is not None
        for at in self._calls([one for one, _ in faults]) if comparable else ():
            self._match(at)
            if self.matches is None:
                break
            designed = any(said.kind == "quantization" for _, said in pair.differing)
            skipped = self.wrong is not None or (designed and not faults)
            place = None if skipped else parting(self.matches, differ=bool(faults))
            if place is None and faults and not skipped:
                place = self._reordered(at)
            if place is not None:
                self._place(place, at)
                break
        if self.wrong is None and faults:
            self._on_runtime(*faults[0])
        is_crash = bool(pair.crashes) and pair.crashes[0][1].kind == "crash"
        if self.wrong is None and is_crash and pair.made is not None:
            self._crash()

    @property
    def _is_local(self) -> bool:
        """Whether the source is computed with the artifact's numbers, because it rounds floats."""
        pair = self.pair
        return pair.noise == NOISE and pair.recorded is None and not pair.opaque()

    def _calls(self, wrong: list[ComparedCall]) -> list[ComparedCall]:
        """Return the calls in which both programs are compared value by value.

        Without state it is a wrong one, of random inputs if there is one, because values of equal
        numbers are not recognized. With state it is each call up to the first wrong one: a buffer
        may have become wrong in an earlier call. If no call is wrong, it is one at the largest
        sizes, at which the artifact was read.
        """
        if wrong and wrong[0].case.state:
            compared = self.pair.compared
            return compared[: compared.index(wrong[0]) + 2]
        drawn = [one for one in wrong if one.case.sample.label.startswith(("random", "given"))]
        if wrong:
            return [max(drawn or wrong, key=_distinct)]

        def size(one: ComparedCall) -> int:
            return sum(x.numel() for x in one.case.sample.inputs if isinstance(x, torch.Tensor))

        largest = max(self.pair.compared, key=size, default=None)
        return [] if largest is None else [largest]

    def _match(self, at: ComparedCall) -> None:
        pair, inputs, name = self.pair, at.case.sample.inputs, at.case.method
        source = pair.origin.method(name), pair.origin.weights, inputs, at.case.state
        if pair.recorded is not None:
            exact = interpret(*source)
            found = recorded_call(exact, pair.recorded)
        else:
            try:
                found = pair.made_call(at.case, pair.state_at(at.case), prints=True)
            except StepwellError as error:
                pair.notes.append(f"its operators were not compared: {error.problems[0].fact}")
                return
            if self._is_local:
                made = self._values(at, pair.at_sizes(at.case))
                exact = synchronized(*source, found, made)
                self.matches = correspond(exact, found, local_tolerances(exact), local=True)
                return
            exact = interpret(*source)
        allowed = tolerances(exact, pair.noisy(at.case, prints=True))
        self.matches = correspond(exact, found, allowed)

    def _set_quantized(self) -> None:
        """Accept differences from a float model that the artifact's integers imply."""
        pair = self.pair
        meant = [(one, said) for one, said in pair.differing if self._as_meant(one)]
        errors = sorted(max(map(apart, one.exact, one.found)) for one, _ in meant)
        if not errors or errors[len(errors) // 2] > QUANTIZED:
            return
        for one, said in meant:
            self._say(one, replace(said, kind="quantization"))
        largest = max(max(map(deviation, one.exact, one.found)) for one, _ in meant)
        pair.notes.append(
            f"the artifact is quantized and the model is not: results differ by up to "
            f"{largest:.1%} of their largest number, as the artifact's integers imply"
        )

    def _set_rounded(self) -> None:
        """Accept differences that no operator causes: each is right for the numbers it gets."""
        for one, said in [*self.pair.differing]:
            if said.kind == "unknown" and self._as_meant(one):
                self._match(one)
                matches = self.matches
                if matches is None or parting(matches, differ=True) is not None:
                    continue
                last = matches.source.func.body.block.last_op
                assert last is not None
                allowed = [matches.tolerances.get(value) for value in last.operands]
                exact, found = matches.source.outcome.outputs, matches.artifact.outcome.outputs
                if all(map(is_within, exact, found, allowed)):
                    self._say(one, replace(said, kind="rounding"))

    def _as_meant(self, one: ComparedCall) -> bool:
        """Whether the results of a call are those that the artifact's operators mean."""
        pair = self.pair
        try:
            meant = pair.made_call(one.case, pair.state_at(one.case))
            made = pair.at_sizes(one.case)
            noisy = list(pair.noisy(one.case, prints=False, program=made))
        except StepwellError:
            return False
        allowed = Allowed(lambda: [call.results for call in noisy])
        return differs(meant.results, one.found, allowed) is None

    def _values(self, at: ComparedCall, made: Program | None = None) -> _Values:
        """Return the values of a call of the source, or of the artifact's program."""
        program = made or self.pair.origin
        case = at.case
        if made is not None:
            case = replace(case, state=self.pair.state_at(case))
        return values_of(program, program.method(case.method), case)

    def _place(self, place: Parting, at: ComparedCall) -> None:
        """Describe where both programs part."""
        values = self._values(at)
        if self.pair.recorded is None and not self.pair.opaque():
            others = self._values(at, self.pair.at_sizes(at.case))
            for narrower in (self._misplaced, self._constant):
                place = narrower(place, values, others) or place
            assert self.matches is not None
            again = Interpreter(self.pair.origin.weights, dict(at.case.state))
            region = Region(place, self.matches, values, others, again)
            place = region.missing() or region.misplaced() or place
        near = [value for op in place.ops for value in (*op.operands, *op.results)]
        special = is_special([values.get(value) for value in near])
        meant = place.value.owner
        assert isinstance(meant, Operation)
        kind, why = cause(place.by[-1], meant, special) if place.by else ("unknown", None)
        self.wrong = wrong_of(place, kind, why)
        self._cut(place.ops, place.value, values, f"{self.wrong}")

    def _reordered(self, at: ComparedCall) -> Parting | None:
        """Return the movement of data that is wrong, if the artifact has all values of the source
        up to the order of their numbers.
        """
        last = self.pair.origin.method(at.case.method).body.block.last_op
        if last is None or self.pair.recorded is not None:
            return None
        whole = Parting((last,), last.operands[0], (), None, torch.inf, 0.0)
        others = self._values(at, self.pair.at_sizes(at.case))
        return self._misplaced(whole, self._values(at), others)

    def _misplaced(self, place: Parting, values: _Values, others: _Values) -> Parting | None:
        """Return the movement of data before a place that is wrong: the artifact has the numbers of
        its result, in other places.
        """
        matches = self.matches
        assert matches is not None

        def is_moved(value: SSAValue) -> bool:
            twins = [others[other] for other in matches.found.get(value, ()) if other in others]
            own, allowed = values.get(value), matches.tolerances.get(value, 0.0)
            if not isinstance(own, torch.Tensor) or not twins:
                return False
            return all(arranged(own, twin, allowed) is None for twin in twins)

        waiting = [value for op in place.ops for value in op.operands]
        found: Parting | None = None
        while waiting:
            value = waiting.pop()
            owner = value.owner
            if not isinstance(owner, Operation) or not is_moved(value):
                continue
            waiting = [*owner.operands]
            if is_exact(owner):
                by = [o.owner for o in matches.found[value] if isinstance(o.owner, Operation)]
                found = Parting((owner,), value, tuple(by[:1]), None, torch.inf, 0.0)
        return found

    def _constant(self, place: Parting, values: _Values, others: _Values) -> Parting | None:
        """Return the constant at a place that the artifact has with other numbers."""
        matches = self.matches
        assert matches is not None
        data = matches.source.prints
        made = [v for op in place.by for v in (*op.operands, *op.results) if v in others]
        prints = [Fingerprint.of(x) for v in made if isinstance(x := others[v], torch.Tensor)
                  and v not in matches.artifact.prints and x.numel() > 1]  # fmt: skip
        for op in place.ops:
            value = op.results[0]
            own = values.get(value)
            if isinstance(op, WeightOp) or value in data or not isinstance(own, torch.Tensor):
                continue
            held = Fingerprint.of(own)
            near = [held.distance(one) for one in prints if one.count == held.count]
            if not held.is_constant and near and min(near) > 1e-6 * held.scale:
                return Parting((op,), value, place.by[:1], None, min(near), 1e-6 * held.scale)
        return None

    def _cut(self, ops: Any, value: SSAValue, values: Mapping[SSAValue, Any], title: str) -> None:
        made = self.pair.made
        delegated = made is not None and any(
            op.name == "xnnpack.delegate" for op in made.module.walk()
        )
        weights = self.pair.origin.weights
        self.script = reproduction(ops, value, values, weights, title, delegated=delegated)

    def _on_runtime(self, at: ComparedCall, said: CallDifference) -> None:
        """Find the kernel that is wrong, or the calls before that make a difference."""
        pair = self.pair
        if pair.engine != RUNTIME:
            return
        alone = self._alone(at)
        if alone is not None and at is not pair.compared[0]:
            allowed = pair.allowed(at.case)
            if not at.case.state and differs(at.exact, alone, allowed) is None:
                self._say(at, replace(said, kind="history", fact=(
                    f"{said.fact}; right in a program that was loaded anew, so an earlier call "
                    "(of another size) changes it"
                )))  # fmt: skip
                return
        self._say(at, replace(said, kind="runtime"))
        if pair.made is None or at.case.state:
            return
        made = pair.at_sizes(at.case)
        op = wrong_kernel(made, at.case.method, at.case.sample.inputs)
        if op is not None:
            self._kernel(op, at)

    def _kernel(self, op: Operation, at: ComparedCall) -> None:
        images = self.matches.images if self.matches is not None else {}
        meant = next((v for r in op.results for v in images.get(r, ())), None)
        values = self._values(at)
        owner = None if meant is None else meant.owner
        source = owner if isinstance(owner, Operation) else None
        near = () if source is None else (*source.operands, *source.results)
        special = is_special([*at.case.sample.inputs, *(values.get(value) for value in near)])
        kind, why = cause(op, source, special)
        self.wrong = wrong_kernel_of(op, source, "runtime" if kind == "unknown" else kind, why)
        if source is not None and meant is not None:
            self._cut([source], meant, values, str(self.wrong))

    def _crash(self) -> None:
        pair, (case, first) = self.pair, self.pair.crashes[0]
        op = ending_kernel(pair.at_sizes(case), first.method, case.sample.inputs)
        if op is not None:
            _, why = cause(op, None, False)
            self.wrong = wrong_kernel_of(op, None, "crash", why or first.fact)

    def _alone(self, at: ComparedCall) -> tuple[Any, ...] | None:
        pair = self.pair
        found = run_calls(pair.data, [pair.engine_call(at.case)], pair.external)[0]
        return None if isinstance(found, Failure) else pair.without_constants(at.case, found)[0]

    def _say(self, at: ComparedCall, said: CallDifference) -> None:
        """Replace what was said of a call."""
        pair = self.pair
        pair.differing = [(one, said if one is at else before) for one, before in pair.differing]

    def _set_ties(self) -> None:
        """Recognize results that differ by the order of equal scores, or by designed rounding."""
        pair = self.pair
        for one, said in [*pair.differing]:
            allowed = pair.allowed(one.case)
            func = pair.origin.method(one.case.method)
            if is_tie(func, dict(self._values(one)), one.found, allowed.of):
                self._say(one, replace(said, kind="tie"))


def wrong_buffer(origin: Program, made: Program) -> Wrong | None:
    """Return the first buffer of the source whose initial value no buffer of the artifact has."""
    others = [Fingerprint.of(value) for value in state_of(made).values() if value.numel()]
    for key, value in state_of(origin).items():
        if not value.numel() or value.is_complex():
            continue
        own = Fingerprint.of(value)
        near = [own.distance(one) for one in others if one.count == own.count]
        if (error := min(near, default=torch.inf)) > 1e-6 * own.scale:
            by = "a buffer that begins with other numbers" if near else None
            return Wrong(f"the buffer {key}", key, None, None, (key,), by, error)
    return None


def _distinct(call: ComparedCall) -> float:
    """Return the share of different numbers among a call's inputs."""
    inputs = [x for x in call.case.sample.inputs if isinstance(x, torch.Tensor) and x.numel()]
    return sum(len(x.flatten()[:1000].unique()) / min(x.numel(), 1000) for x in inputs)
