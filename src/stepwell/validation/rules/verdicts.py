"""Prove a rule over all its forms, instances and paths, and return the verdict."""

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, islice
from typing import Literal

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from stepwell.ir.core import WeightOp
from stepwell.ir.declared.engine_behavior import changes_special_values
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.ir.sizes.size import UNKNOWN
from stepwell.ir.types import IntType, dims, is_static, symbols_of
from stepwell.translate.passes import folder_of, pass_modules
from stepwell.translate.rules.examples import root_of
from stepwell.translate.rules.notation import Rule
from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.validation.certificates.checker.expressions import chosen_by
from stepwell.validation.certificates.checker.statements import Undecided
from stepwell.validation.certificates.checker.statements import decide as decide_expressions
from stepwell.validation.certificates.exhaustive import NotOfBytes, apart_on_all
from stepwell.validation.certificates.unknown_numbers import arithmetic_with
from stepwell.validation.rules.any_rank import Argument, Evidence, Requirement, requirement
from stepwell.validation.rules.atoms import atoms
from stepwell.validation.rules.counterexamples import (
    Counterexample,
    changed_on_engines,
    concrete,
    differs,
    failure_of,
    search,
)
from stepwell.validation.rules.decision import Decision, Proof, Question, decide, go_together
from stepwell.validation.rules.hashes import hash_of
from stepwell.validation.rules.instances import Instance, Instances
from stepwell.validation.rules.instantiation import NotWritten, RuleProgram, Statement
from stepwell.validation.rules.numbers import Path, Unproven, paths
from stepwell.validation.rules.recipes import POSITIVE
from stepwell.validation.rules.rule_terms import in_all_orders, reads_producers
from stepwell.validation.rules.steps import step_between

Pair = tuple[SSAValue, SSAValue]
Kind = Literal["bits", "zeros", "reals", "refuted", "open"]
_KINDS: dict[Proof, Kind] = {Proof.BITS: "bits", Proof.ZEROS: "zeros", Proof.REALS: "reals"}
SAID: dict[Kind, str] = {
    "bits": "proved bit for bit",
    "zeros": "proved bit for bit but for the sign of a zero",
    "reals": "proved over the reals",
    "refuted": "refuted",
    "open": "open",
}


@dataclass
class Verdict:
    """The verdict on a rule.

    Attributes:
        rule: the rule's name.
        kind: the proved equality of both sides.
        scope: the shapes that the proof covers.
        argument: why it covers every rank and size (`any_rank`); empty if it does not.
        reason: why it is open, or the counterexample.
        instances, pairs: the number of instances, and of pairs of values that were decided.
        partial: the number of shapes for which not all arguments were tried.
        seconds: the CPU time.
        hash: the rule's hash (`hashes.hash_of`).
        of_labels: whether the rule is proved without the labeled conditions, except for the
            target's.
    """

    rule: str
    kind: Kind
    scope: str = ""
    reason: str = ""
    instances: int = 0
    pairs: int = 0
    partial: int = 0
    seconds: float = 0.0
    hash: str = ""
    of_labels: bool = True
    argument: Argument = ""
    counterexample: Counterexample | None = field(default=None, repr=False)

    @property
    def is_proved(self) -> bool:
        """Whether the rule is proved, for the shapes in its scope."""
        return self.kind in ("bits", "zeros", "reals")

    def __str__(self) -> str:
        why = f" ({self.argument})" if self.argument else ""
        more = f", {self.scope}{why}" if self.is_proved else f": {self.reason}"
        return f"{SAID[self.kind]}{more}"


_LONG = 20.0
_COUNTEREXAMPLE = "the solver has a counterexample"
_AGREES = "both sides agree on all numbers that were run"
_MOST_FAR = 4
_MOST_WHOLE = 4
"""The greatest rank at which all instances are tried."""
_MOST_DOUBTS = 4
"""The number of instances with neither proof nor counterexample after which a rule is open."""


UNNEEDED = ("target", "accuracy", "choice")
"""Labels of conditions that are tested by running: another type, another engine, a choice."""


def without_labels(rule: Rule, kept: Collection[str] = UNNEEDED) -> Rule:
    """Return a form without its labeled conditions, which are not part of the proved statement,
    except those with a label in `kept`.
    """
    return replace(rule, where=tuple(c for c in rule.where if not c.label or c.label in kept))


def prove(rewrite: type[RuleRewrite], forms: tuple[Rule, ...] | None = None) -> Verdict:
    """Prove a rule for all its forms and instances; return the verdict.

    The statement without any labeled condition is tried first (also without the ops around it in
    its example, which conditions ask for), then that with the conditions on
    types, engines and choices, and then the whole rule.

    Args:
        rewrite: the rule.
        forms: forms to prove in place of the rule's own, for example with other conditions.
    """
    begun = time.process_time()
    whole = forms or rewrite.rule.forms
    bare = [tuple(without_labels(form, kept) for form in whole) for kept in ((), UNNEEDED)]
    alone = tuple(replace(form, beside=()) for form in bare[0])
    if bare[0] not in (whole, alone) and not reads_producers(rewrite, alone):
        bare.insert(0, alone)
    tried: list[tuple[Rule, ...]] = []
    found: list[Verdict] = []
    for statement in (*bare, whole):
        if statement in tried or (statement is whole and any(v.is_proved for v in found)):
            continue
        tried.append(statement)
        try:
            verdict = _Case(rewrite, requirement(rewrite, statement)).verdict(statement)
        except StepwellError as error:
            verdict = Verdict(rewrite.name, "open", reason=error.problems[0].fact)
        found.append(replace(verdict, of_labels=statement in bare))
        if verdict.kind == "bits" and verdict.argument:
            break
    proved = [verdict for verdict in found if verdict.is_proved]
    verdict = max(proved, key=_strength) if proved else found[-1]
    return replace(verdict, seconds=time.process_time() - begun, hash=hash_of(rewrite))


def _strength(verdict: Verdict) -> tuple[int, bool]:
    """Return what makes one verdict on a rule a better one than another."""
    kinds: tuple[Kind, ...] = ("reals", "zeros", "bits")
    return kinds.index(verdict.kind) if verdict.is_proved else -1, bool(verdict.argument)


def limits(rewrite: type[RuleRewrite]) -> str:
    """Return how a proof is restricted to the example: to ops of a family, or quantized types."""
    if any(line.is_again for form in rewrite.rule.forms for line in form.before):
        return ", operators and their arguments as in its example"
    if "!quant" in str(rewrite.rule.example):
        return ", quantized types as in its example"
    return ""


_OF_TYPES = frozenset(("aten._assert_tensor_metadata.default",))
"""Ops without results that fail depending on the types of their operands."""


def _is_symbolic(reason: str) -> bool:
    return "symbolic size" in reason


def _is_said(size: IntType, written: RuleProgram) -> bool:
    """Whether the value of a dynamic integer follows from the input types: a constant, or an
    expression of their symbolic sizes.
    """
    symbols = symbols_of(a.type for a in written.program.method().body.block.args)
    value = size.size
    return isinstance(value, int) or {*value.symbols} <= symbols - UNKNOWN.symbols


def keys_of(program: Program) -> list[str]:
    """Return the keys of the weights that a program reads."""
    return [op.key.data for op in program.module.walk() if isinstance(op, WeightOp)]


class Refutable(Unproven):
    """A statement of a rule that a counterexample of the solver may refute, with its numbers."""

    def __init__(self, found: Decision) -> None:
        super().__init__(f"{'of a symbolic size: ' if found.has_symbols else ''}{found.reason}")
        self.numbers = dict(found.counterexample or {})


@dataclass
class _Case:
    rewrite: type[RuleRewrite]
    asked: Requirement
    worst: Proof = Proof.BITS
    instances: int = 0
    pairs: int = 0
    partial: int = 0
    rank: int = 0
    of_numbers: int = 0
    of_symbols: int = 0
    loses_signs: bool = False
    on_engine: Counterexample | None = None
    evidence: Evidence = field(default_factory=Evidence)
    doubts: list[str] = field(default_factory=list[str])
    changed_by_engines: set[str] = field(default_factory=set[str])
    """Nodes that a rule writes, and that do not say what they make of special values."""

    @property
    def bound(self) -> Bound:
        return self.rewrite.bound

    def verdict(self, forms: tuple[Rule, ...]) -> Verdict:
        """Return the verdict on a rule over all of its forms; stop at the first refutation."""
        name = self.rewrite.name
        refutation = self._all(forms)
        if refutation is None and self._may_conclude():
            doubts, partial = list(self.doubts), self.partial
            refutation = self._all(forms, self.evidence.needed(self.asked))
            self.evidence.is_whole = (self.doubts, self.partial) == (doubts, partial)
            self.doubts = doubts
        is_open = bool(self.doubts) or not self.of_numbers + self.of_symbols
        refutation = refutation or self.on_engine
        if refutation is None and not is_open and not self.evidence.conclude(self.asked):
            refutation = self._far(forms)
        if refutation is not None:
            return self._of("refuted", str(refutation), refutation)
        left = [doubt for doubt in self.doubts if not self._is_of_size(doubt)]
        if left or not self.of_numbers + self.of_symbols:
            return self._of("open", (left or self.doubts or ["no instance of it was written"])[0])
        argument = self.evidence.conclude(self.asked)
        verdict = self._of(_KINDS[self.worst], "")
        return replace(verdict, rule=name, scope=self.scope(argument), argument=argument)

    def _all(self, forms: tuple[Rule, ...], whole: int | None = None) -> Counterexample | None:
        """Decide the instances of some forms, a sample or all up to a rank; return the first
        refutation.
        """
        is_blind = self.evidence.is_blind(self.asked)
        for form in forms if whole is None else chain(*map(in_all_orders, forms)):
            statement = Statement(self.rewrite, form)
            before, begun = self.of_numbers + self.of_symbols, time.process_time()
            for as_example in (False, True):
                is_decided = self.of_numbers + self.of_symbols > before
                if as_example and (is_decided or any(not _is_symbolic(d) for d in self.doubts)):
                    continue
                instances = Instances(self.rewrite, form, as_example, whole, is_blind)
                is_varied = whole is not None and instances.is_templated
                for instance in instances:
                    refutation = self._tried(statement, instance, not is_varied)
                    if refutation is not None:
                        return refutation
                    if self._is_hopeless(begun):
                        break
        return None

    def _far(self, forms: tuple[Rule, ...]) -> Counterexample | None:
        """Run a rule at ranks for which it is not proved; return a counterexample."""
        for form in forms:
            statement = Statement(self.rewrite, form)
            for instance in Instances(self.rewrite, form, is_far=True):
                for given in islice(concrete(instance), _MOST_FAR):
                    with suppress(NotWritten, Unproven):
                        written = statement.concrete(given)
                        found = written and differs(written, self.bound)
                        if isinstance(found, Counterexample):
                            return found
        return None

    def _may_conclude(self) -> bool:
        """Whether trying all instances up to a rank may lead to a conclusion about any rank."""
        asked = self.asked
        is_open = bool(self.doubts) or asked.problems or asked.named is None
        if is_open or not self.evidence.is_promising:
            return False
        if self.evidence.needed(asked) > _MOST_WHOLE:
            return False
        return self.evidence.conclude(asked) in ("", "axes")

    def _is_hopeless(self, begun: float) -> bool:
        """Whether to stop the proof of a rule because too many instances are undecided (one, if the
        others took long).
        """
        took = time.process_time() - begun
        if all(map(_is_symbolic, self.doubts)) and took < _LONG:
            return False
        return len(self.doubts) >= (1 if took > _LONG else _MOST_DOUBTS)

    def _tried(
        self, statement: Statement, instance: Instance, may_run: bool
    ) -> Counterexample | None:
        """Decide by the solver whether one instance of a rule is right; else run it on numbers, if
        its types are those of a program: kernels do not check all shapes.
        """
        self.loses_signs = False
        try:
            self.instance(statement, instance)
            if self.loses_signs and self.bound.exact:
                found = search(statement, instance, self.bound)
                return found if isinstance(found, Counterexample) else None
        except NotWritten:
            return None
        except (Unproven, IndexError, ValueError, KeyError, TypeError) as error:
            is_ours = isinstance(error, Unproven)
            reason = error.problems[0].fact if is_ours else f"{type(error).__name__}: {error}"
            if not may_run:
                self.doubts.append(reason)
                return None
            numbers = error.numbers if isinstance(error, Refutable) else {}
            found = search(statement, instance, self.bound, numbers)
            if isinstance(found, Counterexample):
                return found
            if found == "agrees":
                tried = ", ".join(f"{name} = {value}" for name, value in numbers.items())
                run = f"run with {tried}, both sides agree" if tried else _AGREES
                spurious = f", which is spurious: {run}" if _COUNTEREXAMPLE in reason else ""
                self.doubts.append(f"{reason}{spurious} ({instance})")
        return None

    def _of(self, kind: Kind, reason: str, found: Counterexample | None = None) -> Verdict:
        counts = (self.instances, self.pairs, self.partial)
        return Verdict(self.rewrite.name, kind, "", reason, *counts, counterexample=found)

    def _is_of_size(self, reason: str) -> bool:
        return _is_symbolic(reason) and self.of_numbers + self.of_symbols > 0

    def scope(self, argument: Argument) -> str:
        """Return for which shapes the rule is proved, and on which nodes engines treat special
        values otherwise.
        """
        nodes = " and ".join(sorted(self.changed_by_engines))
        return self._of_shapes(argument) + (
            f", but for special values that engines change at {nodes}" if nodes else ""
        )

    def _of_shapes(self, argument: Argument) -> str:
        if argument:
            ranks = "its rank" if argument == "its rank" else "any rank"
            return f"{ranks}, any size{limits(self.rewrite)}"
        if self.of_symbols and not any(map(self._is_of_size, self.doubts)):
            found = f"all sizes, up to rank {self.rank}"
        else:
            found = f"sizes that were tried, up to rank {self.rank}"
        return found + (", some arguments of each" if self.partial else "") + limits(self.rewrite)

    def instance(self, statement: Statement, instance: Instance) -> None:
        """Decide whether each old result equals its replacement for one choice of types and
        arguments (an instance), whatever the outcomes of comparisons between symbolic numbers.
        """
        found = paths(lambda path: statement.written(instance, path), possible=go_together)
        for path, written in found:
            if written is None:
                continue
            self.instances += 1
            self.partial += instance.is_partial
            for op in written.fresh if self.rewrite.deviation is None else ():
                if changes_special_values(op):
                    self.changed_by_engines.add(op.name)
                    if self.on_engine is None and not statement.rule.proven:
                        self.on_engine = self._on_engine(statement, instance)
            if written.misfits:
                raise Unproven(f"types do not fit: {written.misfits[0]}")
            if not statement.rule.root.results:
                self._passes(written)
            for old, new in written.pairs:
                self.pairs += 1
                if isinstance(old.type, IntType) and _is_said(old.type, written):
                    self.of_symbols += 1  # The replacement has the type that its op infers.
                    continue
                if not isinstance(old.type, TensorType):
                    raise Unproven(f"a result of type {old.type}")
                self.rank = max(self.rank, len(dims(old.type)))
                decision = self._decided(statement, path, written, (old, new))
                self.worst = min(self.worst, decision.proof)
                self.loses_signs |= decision.proof is Proof.ZEROS
                if decision.has_symbols:
                    self.of_symbols += 1
                else:
                    self.of_numbers += 1
            self.evidence.add(written)

    def _on_engine(self, statement: Statement, instance: Instance) -> Counterexample | None:
        """Return a counterexample on a measured engine, to a rule that says of no special values
        that they may change.
        """
        for given in islice(concrete(instance), 2):
            with suppress(NotWritten, Unproven):
                written = statement.concrete(given)
                found = None if written is None else changed_on_engines(written)
                if found is not None:
                    return found
        return None

    def _passes(self, written: RuleProgram) -> None:
        """Run an op without results, which asserts a fact about types; one run shows the fact for
        all values.

        Raises:
            Unproven: the op fails, or depends on a value that no type defines.
        """
        root = root_of(written.program)
        if root.name not in _OF_TYPES:
            raise Unproven(f"{root.name} gives nothing, and what it asserts is not of types alone")
        self.pairs += 1
        self.of_numbers += 1
        arguments = written.program.method().body.block.args
        if any(isinstance(a.type, TensorType) and not is_static(a.type) for a in arguments):
            raise Unproven(f"of a symbolic size: {root.name} is not run")
        if (error := failure_of(root, written.program)) is not None:
            raise Unproven(f"it fails: {error}") from error

    def _decided(
        self, statement: Statement, path: Path, written: RuleProgram, pair: Pair
    ) -> Decision:
        """Decide whether a pair of values is equal: by its axes, by the solver, by computing all
        possible values, or by expression numbering.
        """
        one, other = (atoms(value, written.program.weights) for value in pair)
        if one is not None and one == other:
            return Decision(Proof.BITS, not all(isinstance(size, int) for size in one[1]))
        with suppress(NotOfBytes):
            if apart_on_all(written.program, pairs=[pair]) is None:
                return Decision(Proof.BITS, False)
        weights, tokens = written.program.weights, statement.tokens
        try:
            of_finite = self.rewrite.deviation is not None
            asked = Question(*pair, weights, tokens, path, self.bound)
            found = decide(asked, self.worst, of_finite)
        except Unproven as error:
            found = Decision(Proof.NONE, False, error.problems[0].fact)
        if found.counterexample is not None:
            raise Refutable(found)
        if found.proof is Proof.NONE:
            found = self._by_expressions(statement, written, pair, found)
        step = step_between(pair, weights) if found.proof is Proof.REALS else None
        if step is not None:
            raise Unproven(f"real numbers prove nothing here: {step}")
        return found

    def _by_expressions(
        self, statement: Statement, written: RuleProgram, pair: Pair, undecided: Decision
    ) -> Decision:
        """Decide a pair of static sizes by expression numbering (`validation.certificates`).

        Raises:
            Unproven: the pair depends on unknown numbers or sizes, or is not decided.
        """
        arguments = written.program.method().body.block.args
        if any(key.endswith(POSITIVE) for key in keys_of(written.program)):
            # The actual elements would count, although the weight is arbitrary.
            raise Unproven(undecided.reason)
        if undecided.has_symbols or any(
            isinstance(v.type, TensorType) and not is_static(v.type) for v in arguments
        ):
            raise Unproven(f"of a symbolic size: {undecided.reason}")
        tokens = statement.tokens
        numbers = {**tokens.known, **tokens.whole}
        if any(held.node.function != "variable" for held in numbers.values()):
            raise Unproven(undecided.reason)
        named = {number: str(held.node.operands[0]) for number, held in numbers.items()}
        kinds = ("bits",) if self.bound.exact else ("bits", "reals")
        try:
            with chosen_by(int(hash_of(self.rewrite), 16)):  # No constant is near a multiple.
                arithmetic = arithmetic_with(named)
                kind = decide_expressions(written.program, kinds, 0, [pair], arithmetic)
        except Undecided:
            raise Unproven(undecided.reason) from None
        if kind not in kinds:
            raise Unproven(f"{undecided.reason}; its expressions are equal {kind}")
        return Decision(Proof.BITS if kind == "bits" else Proof.REALS, False)


@cache
def rules() -> dict[str, type[RuleRewrite]]:
    """Return every rule that is defined by its text, by (name, module), in the order of modules."""
    found: dict[str, type[RuleRewrite]] = {}
    for module in pass_modules():
        for rewrite in getattr(module, "RULES", ()):
            if isinstance(rewrite, type) and issubclass(rewrite, RuleRewrite):
                prefix = f"{folder_of(rewrite.__module__)}." if rewrite.name in found else ""
                found[prefix + rewrite.name] = rewrite
    return found
