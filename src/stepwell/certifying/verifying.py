"""A certificate, checked again from its texts, without the pipeline that made it.

The ops of its first text are definitions. Each statement must begin at values that are known, say
of them what stands there, and be provable anew: then its pairs are equal, and all that is computed
of them. The last text must then give what the first does.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue

from stepwell.certifying.applying import by_hash, follows_rule, runs
from stepwell.certifying.certificate import PROVED, VALUES, Certificate, Entry, parsed, store_of
from stepwell.certifying.deciding import KINDS, TRIED, Undecided
from stepwell.certifying.exhausting import NotOfBytes, apart_on_all
from stepwell.certifying.graph import Definition, Graph, said_by
from stepwell.certifying.recording import observed
from stepwell.certifying.renaming import Decisions
from stepwell.certifying.statements import pairs_of
from stepwell.ir.core import MutateInputOp, UpdateOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.records import dataclass
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.ir.weights import WeightStore

_NAME = re.compile(r"v(\d+)")
_READINGS = {
    f"{kind}{tried}": KINDS[i // 2 * 2 : i + 1]
    for i, kind in enumerate(KINDS)
    for tried in ("", TRIED)
}
"""Those tried up to each."""


@dataclass(frozen=True)
class Verified:
    """What came of checking a certificate.

    Attributes:
        proved, run: applications that were proved, and run, again.
        taken: those that could be neither, and are believed.
        faults: what is wrong with it; none, if it holds.
    """

    proved: int
    run: int
    taken: int
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the certificate says what is so."""
        return not self.faults

    def __str__(self) -> str:
        if self.faults:
            return "refused: " + "; ".join(self.faults[:3])
        text = f"holds: {self.proved} applications proved again, {self.run} run again"
        return text + (f", {self.taken} taken as they are" if self.taken else "")


class Refused(Exception):
    """What a certificate says that is not so."""


def verify_certificate(
    certificate: Certificate, program: Program | None = None, seed: int = 1
) -> Verified:
    """Check a certificate again.

    Args:
        certificate: what `lower(..., certify=True)` gave.
        program: what was lowered, as it came out (`lowered.program`, or an artefact that was read):
            the certificate must speak of it. Its weights are used where something is run.
        seed: of the variables; another than the certificate was made with.
    """
    check = _Check(certificate, seed, program)
    try:
        check.begin()
    except (StepwellError, Refused, KeyError) as error:
        return Verified(0, 0, 0, (_said(error),))
    for number, entry in enumerate(certificate.entries, 1):
        try:
            check.entry(entry)
        except (StepwellError, Refused, KeyError, AssertionError) as error:
            check.faults.append(f"application {number}, {entry.rewrite}: {_said(error)}")
    try:
        check.end(check.last)
        if program is not None:
            check.end(program)
    except (StepwellError, Refused, KeyError) as error:
        check.faults.append(_said(error))
    return Verified(check.proved, check.run, check.taken, tuple(check.faults))


def _limited(bound: tuple[float, float, int]) -> Bound:
    """What an entry says that it may be off by, if that is little."""
    relative, absolute, units = bound
    return Bound(min(relative, 1e-2), min(absolute, 1e-2), "run", min(units, 2))


def _said(error: Exception) -> str:
    return error.problems[0].fact if isinstance(error, StepwellError) else str(error)


@dataclass
class _Check:
    certificate: Certificate
    seed: int
    program: Program | None
    graph: Graph = field(default_factory=Graph)
    faults: list[str] = field(default_factory=list[str])
    proved: int = 0
    run: int = 0
    taken: int = 0
    wanted: list[int] = field(default_factory=list[int])
    inputs: list[int] = field(default_factory=list[int])

    def begin(self) -> None:
        """Define what the first text says."""
        by_hash()  # Recipes are known where the rules are.
        self.store = store_of(self.certificate.weights)
        self.decisions = Decisions(self.store, self.seed)
        start = parsed(self.certificate.start, self.store)
        self.last = parsed(self.certificate.end, self.store)
        numbers: dict[SSAValue, int] = {}
        for func in _methods(start):
            for argument in func.body.block.args:
                numbers[argument] = _number(argument)
                self.inputs.append(numbers[argument])
            for op in func.body.block.ops:
                if op.results:
                    results = tuple(map(_number, op.results))
                    numbers.update(zip(op.results, results, strict=True))
                    operands = tuple(numbers[value] for value in op.operands)
                    self._define(Definition(op, {}, {}, operands, results, said_by(op)))
        for value in numbers.values():
            self.graph.grow(value)
        self.wanted = [numbers[value] for value in observed(start)]
        self.seen = list(_seen(start))
        self.known = set(numbers.values())

    def _define(self, definition: Definition) -> None:
        for value in (*definition.operands, *definition.results):
            self.graph.grow(value)
        self.graph.define(definition)

    def entry(self, entry: Entry) -> None:
        """Check one application, and believe its pairs."""
        if not entry.statement:
            if entry.by in PROVED:
                self.proved += 1
            else:
                self.taken += 1
            return
        program = parsed(entry.statement, self.store)
        pairs = self._placed(program)
        if entry.by == "rule":
            why = follows_rule(program, entry.rule) if entry.rule else "no rule is named"
            if why is not None:
                raise Refused(why)
            self.proved += 1
        elif entry.by in _READINGS:
            try:
                self.decisions.decide(entry.statement, _READINGS[entry.by])
            except Undecided as error:
                raise Refused(f"it is not so: {error}") from error
            self.proved += 1
        elif entry.by == VALUES:
            try:
                why = apart_on_all(program, _limited(entry.bound))
            except NotOfBytes as error:
                raise Refused(f"it is not of bytes: {error}") from error
            if why is not None:
                raise Refused(f"it is not so: {why}")
            self.proved += 1
        elif entry.by == "run" and self.program is not None:
            again = Program.parse(entry.statement, self._full())
            try:
                why = runs(again, _limited(entry.bound), self.seed)
                self.run += 1
            except StepwellError:  # Of weights that the program has no more.
                why, self.taken = None, self.taken + 1
            if why is not None:
                raise Refused(f"it was run: {why}")
        else:
            self.taken += 1
        self.graph.unite(pairs)

    def _full(self) -> WeightStore:
        assert self.program is not None
        return self.program.weights

    def _placed(self, program: Program) -> list[tuple[int, int]]:
        """The pairs of a statement in the program; what it says stands there must stand there."""
        numbers: dict[SSAValue, int] = {}
        block = program.method("equal").body.block
        for argument in block.args:
            number = numbers[argument] = _number(argument)
            if number not in self.known:
                raise Refused(f"%v{number} is no value that is known")
        for op in block.ops:
            if isinstance(op, ReturnOp):
                continue
            results = tuple(map(_number, op.results))
            numbers.update(zip(op.results, results, strict=True))
            operands = tuple(numbers[value] for value in op.operands)
            definition = Definition(op, {}, {}, operands, results, said_by(op))
            for value in results:
                self.graph.grow(value)
            if any(value in self.known for value in results):
                same = self.graph.find(definition)
                if same is None or not self.graph.are_equal(same.results, results):
                    raise Refused(f"%v{results[0]} is not what stands there")
            else:
                self.graph.define(definition)
                self.known |= set(results)
        return [(numbers[old], numbers[new]) for old, new in pairs_of(program)]

    def end(self, program: Program) -> None:
        """A program must give what the first text does.

        Raises:
            Refused: it does not.
        """
        numbers: dict[SSAValue, int] = {}
        inputs = iter(self.inputs)
        for func in _methods(program):
            for argument in func.body.block.args:
                numbers[argument] = next(inputs, -1)
            for op in func.body.block.ops:
                if op.results:
                    results = tuple(self.graph.new() for _ in op.results)
                    numbers.update(zip(op.results, results, strict=True))
                    operands = tuple(numbers[value] for value in op.operands)
                    self.graph.define(Definition(op, {}, {}, operands, results, said_by(op)))
        found = [numbers[value] for value in observed(program)]
        if list(_seen(program)) != self.seen or len(found) != len(self.wanted):
            raise Refused("the last text writes other things than the first")
        if not self.graph.are_equal(found, self.wanted):
            raise Refused("the last text does not follow from the first")


def _methods(program: Program) -> list[FuncOp]:
    return [func for _, func in sorted(program.methods.items())]


def _seen(program: Program) -> Any:
    for func in _methods(program):
        for op in func.body.block.ops:
            if isinstance(op, UpdateOp):
                yield "state", op.key.data
            elif isinstance(op, MutateInputOp):
                yield "input", op.index.value.data


def _number(value: SSAValue) -> int:
    match = _NAME.fullmatch(value.name_hint or "")
    if match is None:
        raise Refused(f"%{value.name_hint} has no number")
    return int(match[1])
