"""Verify a rule's conditions: each one is either necessary, or serves the purpose that its label
states.

A condition excludes the programs that match without it but not with it. Without the condition, one
of these programs must change its result or be impossible to construct. A condition with a label
(`where reads_once(%a) for cost`) is not part of the proved statement: the stored proof is for the
rule without it (`verdicts.prove`), and this module verifies the label: `termination` (the rule
applies to its own result), `cost` (the program does not get fewer ops) or `overflow` (a number
becomes infinite or zero). If there is no such proof, the excluded programs are run, as for the
labels `target`, `accuracy` and `choice`: without the condition the results stay within the rule's
bound, or the target has no op for them. `accuracy` excludes halves, for which more ops would round
than before, or a loss of digits. `choice` excludes programs for which the model, an option or a
table of choices decides otherwise. The programs are those that the rule's text names as `not for`,
and drafted ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from inspect import signature
from itertools import chain, islice
from math import prod
from typing import Any

from torch import Tensor
from xdsl.ir import Operation

from stepwell.ir.compat.xdsl.xdsl_private import put_before
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import bf16, f16
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.sizes.size import number_of
from stepwell.ir.traversal import producers
from stepwell.ir.types import dims, element
from stepwell.translate.rules.compiling import Matched, Matcher, Namespace, compile_rule
from stepwell.translate.rules.examples import missed, root_of
from stepwell.translate.rules.notation import Computed, Miss, Rule, Where
from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.translate.rules.writing import RuleWriter
from stepwell.validation.rules.counterexamples import (
    Counterexample,
    differs,
    failure_of,
    inputs_of,
    sizes_of,
    values_of,
)
from stepwell.validation.rules.drafts import drafts
from stepwell.validation.rules.hashes import hash_of, whole_hash_of
from stepwell.validation.rules.instantiation import FAILS, NotWritten, RuleProgram, applied, drafted
from stepwell.validation.rules.kept_verdicts import Dropped, Kind, known, shortened
from stepwell.validation.rules.numbers import Unproven
from stepwell.validation.rules.verdicts import UNNEEDED

_TRIED, _ALIKE = 60, 3
"""The number of excluded programs that are run, in total and of one instance."""


def conditions(rule: Rule) -> list[Where]:
    """Return the conditions that can be dropped: those that define no variable of the rule."""
    return [clause for clause in rule.where if not clause.binds]


def spelled(clause: Where) -> str:
    """Return the text of a rule's condition, abbreviated."""
    kind = "unless" if clause.is_guard else "where not" if clause.negated else "where"
    return f"{kind} {clause.predicate}({', '.join(map(_term, clause.arguments))})"


def _term(term: Any) -> str:
    if isinstance(term, Computed):
        return f"{term.function}({', '.join(map(_term, term.arguments))})"
    name = getattr(term, "name", None)
    if name is None:
        return str(term)
    return f"{'%' if type(term).__name__ == 'ValueName' else '$'}{name}"


def taken(rewrite: type[RuleRewrite]) -> list[str]:
    """Return the `not for` examples of a rule's text to which it applies nevertheless.

    Raises:
        NotWritten: an example cannot be built as a program.
    """
    found: list[str] = []
    for form in rewrite.rule.forms:
        for miss in form.misses:
            without = _Without(rewrite, form, conditions(form)[0], miss)
            programs = chain.from_iterable(without.drafts())
            found += [miss.text for program in programs if without._applies(program)]
    return found


def without_each(name: str, rewrite: type[RuleRewrite]) -> Iterator[Dropped]:
    """Yield each condition of a rule with the verdict on the rule without it."""
    for clause in conditions(rewrite.rule):
        yield dropped(name, rewrite, clause)


def dropped(name: str, rewrite: type[RuleRewrite], clause: Where) -> Dropped:
    """Return the verdict whether a rule needs one of its conditions."""
    show = _labeled if clause.label else _needed
    kind, reason = show(rewrite, clause)
    hash_ = whole_hash_of(rewrite)
    return Dropped(name, spelled(clause), clause.label, kind, shortened(reason, 160), hash_)


# -- programs that a condition excludes -----------------------------------------------------------


@dataclass
class _Without:
    """A form of a rule without one condition, to try on `not for` examples or drafted programs."""

    rewrite: type[RuleRewrite]
    form: Rule
    clause: Where
    miss: Miss | None = None

    def __post_init__(self) -> None:
        """Compile the rule's form with and without the condition.

        Raises:
            StepwellError: the rule does not compile without the condition.
        """
        left = tuple(c for c in self.form.where if c is not self._mine())
        self.bare = replace(self.form, where=left)
        namespace = self.rewrite.namespace
        stated = self.miss.example if self.miss else {}
        options = {
            option.name: _named(stated.get(option.name, option.default), namespace)
            for option in self.form.options
        }
        self.whole: Matcher = compile_rule(self.form, namespace, options)
        self.matcher: Matcher = compile_rule(self.bare, namespace, options)
        self.writer = RuleWriter(self.bare, self.rewrite.namespace)

    def _mine(self) -> Where:
        alike = (self.clause.predicate, self.clause.arguments, self.clause.negated)
        return next(c for c in self.form.where if (c.predicate, c.arguments, c.negated) == alike)

    def drafts(self) -> Iterator[Iterator[Program]]:
        """Yield programs on which the rule may fail without the condition."""
        if self.miss:
            form = missed(self.form, self.miss)
            first, last = (drafted(self.rewrite, form, {}, states=True) for _ in range(2))
            _make_last(self.root(last))
            return iter([iter([first, last])])
        return chain(drafts(self.rewrite, self.form), [self._by_tables()])

    def _by_tables(self) -> Iterator[Program]:
        """Yield programs in which a tuned choice overrides the one of least estimated cost."""
        if "program" not in signature(self.rewrite.namespace[self.clause.predicate]).parameters:
            return
        for program in islice(chain.from_iterable(drafts(self.rewrite, self.form)), _TRIED):
            self._applies(program)
            for choice in list(program.context.choices.values()):
                for other in set(choice.costs) - {choice.chosen}:
                    program.context.options = {"tuned": {choice.key: other}}
                    yield program

    def root(self, program: Program) -> Operation:
        """Return the last op of the pattern, which the rule replaces."""
        return root_of(program, self.form)

    def programs(self) -> Iterator[tuple[Program, Refusal | None]]:
        """Yield programs that the rule would match without this condition, with the condition's
        reason if it states one.

        Raises:
            Unproven: without the condition, other conditions fail.
        """
        tried = 0
        for instance in self.drafts():
            alike = 0
            for program in instance:
                refused = self._refused(program)
                if refused:
                    yield program, refused[0]
                    alike += 1
                if alike == _ALIKE:
                    break
            tried += alike
            if tried >= _TRIED:
                return

    def applications(self) -> Iterator[tuple[Program, None]]:
        """Yield a few programs to which the complete rule applies."""
        count = 0
        for instance in self.drafts():
            for program in instance:
                if self._applies(program):
                    yield program, None
                    count += 1
                if count == _ALIKE * _ALIKE:
                    return

    def _applies(self, program: Program) -> bool:
        try:
            return isinstance(self.whole(self.root(program), program), Matched)
        except (*FAILS, StepwellError):
            return False

    def _refused(self, program: Program) -> tuple[Refusal | None] | None:
        """Return why the condition refuses a program; None if another condition refuses it too."""
        root = self.root(program)
        try:
            whole = self.whole(root, program)
        except (*FAILS, StepwellError):
            return None
        if isinstance(whole, Matched):
            return None
        try:
            return (whole,) if isinstance(self.matcher(root, program), Matched) else None
        except (*FAILS, StepwellError) as error:
            raise Unproven(f"another condition fails: {_said(error)}") from error


def _make_last(root: Operation) -> None:
    """Move the root's operands directly before it, if no other op uses or needs them."""
    for value in root.operands:
        maker = value.owner
        is_free = isinstance(maker, Operation) and not any(
            isinstance(v.owner, Operation) for v in maker.operands
        )
        if isinstance(maker, Operation) and is_free and value.has_one_use():
            maker.detach()
            put_before(maker, root)


def _named(name: str, namespace: Namespace) -> Any:
    """Return a module's attribute by name, also from a nested namespace."""
    first, *rest = name.split(".")
    return reduce(getattr, rest, namespace[first])


def _withouts(rewrite: type[RuleRewrite], clause: Where) -> Iterator[_Without]:
    """Yield each form of a rule without one of its conditions, first for the rule's `not for`
    examples.
    """
    for form in rewrite.rule.forms:
        for miss in (*form.misses, None):
            yield _Without(rewrite, form, clause, miss)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _needed(rewrite: type[RuleRewrite], clause: Where) -> tuple[Kind, str]:
    count = 0
    try:
        for without in _withouts(rewrite, clause):
            for program, _ in without.programs():
                count += 1
                if (wrong := _wrong(without, program)) is not None:
                    return "refuted", wrong
    except NotWritten as error:
        return "open", f"a program of its text is none: {error.problems[0].fact}"
    except StepwellError as error:
        return "refuted", error.problems[0].fact
    if not count:
        return "open", "no program was drafted that it refuses"
    return "open", f"{count} programs that it refuses are right without it"


def _wrong(form: _Without, program: Program) -> str | None:
    """Return the error that the rule's replacement has without a condition."""
    lost = _lost(form, program)
    if lost:
        return lost
    inputs = ", ".join(str(a.type) for a in program.method().body.block.args)
    try:
        written = applied(form.bare, program, form.matcher, form.writer)
    except (Unproven, NotWritten) as error:
        return f"of {inputs}: {error.problems[0].fact}"
    if written is None:
        return None
    if written.misfits:
        return f"of {inputs}: {written.misfits[0]}"
    if not _can_run(program):
        return None
    if not form.bare.after:
        return _fails(form.root(program), program)
    found = differs(written, form.rewrite.bound, is_strict=True)
    if isinstance(found, Counterexample):
        return str(found)
    is_laid_out = form.bare.after[-1].forwards is not None or any(
        name == "memory_format" for name, _ in form.bare.root.arguments
    )
    return _lies_otherwise(written) if is_laid_out and found == "agrees" else None


def _fails(assertion: Operation, program: Program) -> str | None:
    """Run an op without results that the rule would erase; return its failure, or None."""
    error = failure_of(assertion, program)
    return None if error is None else f"it fails, and nothing would: {error}"


def _lies_otherwise(written: RuleProgram) -> str | None:
    """Return how the memory order of a replaced value changes; None if it is unchanged."""
    arguments = written.program.method().body.block.args
    for pair in written.pairs:
        one, other = values_of(written.program, inputs_of(written.program), list(pair))
        if isinstance(one, Tensor) and one.stride() != other.stride():
            return f"of {arguments[0].type}: it lies by {one.stride()}, then by {other.stride()}"
    return None


def _can_run(program: Program) -> bool:
    """Whether the program's inputs have static sizes, or symbols without constraints."""
    return sizes_of(program) is not None


def _lost(form: _Without, program: Program) -> str | None:
    """Return a result of the pattern that still has users although the rule does not replace it."""
    defined = {name for line in form.bare.after for name in line.results}
    root = form.root(program)
    for name, result in zip(form.bare.root.results, root.results, strict=True):
        if name not in defined and result.first_use is not None:
            return f"%{name} is read, and nothing gives it"
    return None


# -- labels --------------------------------------------------------------------------------------


def _labeled(rewrite: type[RuleRewrite], clause: Where) -> tuple[Kind, str]:
    try:
        return (_of_target if clause.label in UNNEEDED else _of_statement)(rewrite, clause)
    except (Unproven, StepwellError) as error:
        return "open", error.problems[0].fact


def _of_statement(rewrite: type[RuleRewrite], clause: Where) -> tuple[Kind, str]:
    """Verify that the rule is correct without the condition: proved, or right on excluded
    programs.
    """
    proof = known().get(hash_of(rewrite))
    said = "proved without it"
    if proof is None or not proof.is_proved or not proof.of_labels:
        ran = _run(rewrite, clause)
        if ran.wrong or not ran.same:
            return "open", f"the rule is not proved without it{ran.wrong}"
        said = f"{ran.same} that it refuses are the same within its bound"
    show = {"termination": _fires_again, "cost": _is_no_better, "overflow": _overflows}
    for form in _withouts(rewrite, clause):
        found = form.applications() if clause.label == "termination" else form.programs()
        for program, _ in found:
            if (shown := show[clause.label](form, program)) is not None:
                return "labeled", f"{said}; {shown}"
    return "open", f"{said}; that it is for {clause.label} was not shown"


@dataclass
class _Ran:
    """The results of a rule without a condition, on programs that the condition excludes.

    Attributes:
        same: the number of programs that stay within the rule's bound.
        unwritten: the number of programs whose replacement cannot be constructed.
        reason: the condition's refusal of the first program.
        rounds: a description of additional roundings, or of lost digits.
        wrong: a program whose result changes.
    """

    same: int = 0
    unwritten: int = 0
    reason: str = ""
    rounds: str = ""
    wrong: str = ""


def _run(rewrite: type[RuleRewrite], clause: Where) -> _Ran:
    ran = _Ran()
    for form in _withouts(rewrite, clause):
        for program, refusal in form.programs():
            ran.reason = ran.reason or ("" if refusal is None else refusal.reason)
            try:
                written = applied(form.bare, program, form.matcher, form.writer)
            except (Unproven, NotWritten):
                written = None
            if written is None or written.misfits:
                ran.unwritten += 1
                continue
            found = differs(written, rewrite.bound) if _can_run(program) else "agrees"
            if isinstance(found, Counterexample):
                ran.wrong = f"; it is needed: {found}"
                return ran
            ran.same += 1
            ran.rounds = ran.rounds or _rounds_more(written) or _is_further_off(written, rewrite)
    return ran


def _of_target(rewrite: type[RuleRewrite], clause: Where) -> tuple[Kind, str]:
    """Verify that the rule keeps the results of programs that the condition excludes, or that these
    are not at the target's level.
    """
    ran = _run(rewrite, clause)
    if ran.wrong:
        return "open", ran.wrong.removeprefix("; ")
    if clause.label == "accuracy" and ran.same:
        kind = "labeled" if ran.rounds else "open"
        return kind, f"{ran.same} the same within its bound; {ran.rounds}"
    if clause.label == "choice" and ran.same:
        return "labeled", f"{ran.same} that it refuses are the same within its bound"
    if not ran.same + ran.unwritten:
        return "open", "no program was drafted that it refuses"
    said = f"{ran.unwritten} that the target has no op for, {ran.same} the same"
    return "labeled" if ran.reason else "open", f"refuses “{ran.reason}”: {said}"


def _rounds_more(written: RuleProgram) -> str:
    """Return the number of ops that round to 16-bit floats after and before the rewrite."""
    of = element(written.pairs[0][1].type)
    if of not in (f16, bf16):
        return ""
    before = sum(op.name.startswith("aten.") for op in _read_by_results(written.program))
    after = sum(element(op.results[0].type) == of for op in written.fresh)
    return f"{after} ops round to {of} for {before}" if after > before else ""


_DIGITS = 1e-6
"""The relative difference that no bound on single numbers allows for a number without
cancellation.
"""


def _is_further_off(written: RuleProgram, rewrite: type[RuleRewrite]) -> str:
    """Return a counterexample that loses digits within the bound; "" if there is none."""
    if not rewrite.bound.magnitudes or not _can_run(written.program):
        return ""
    of_result = replace(rewrite.bound, magnitudes=(), relative=_DIGITS)
    found = differs(written, of_result, is_strict=True)
    return str(found) if isinstance(found, Counterexample) else ""


def _fires_again(form: _Without, program: Program) -> str | None:
    """Whether a rule without the condition matches its own result again."""
    written = applied(form.bare, program, form.matcher, form.writer)
    if written is None:
        return None
    ops = {new.owner for _, new in written.pairs} | set(written.fresh)
    again = [op for op in ops if isinstance(op, Operation) and _fires(form, op, program)]
    return f"it fires on its own {again[0].name}" if again else None


def _fires(form: _Without, op: Operation, program: Program) -> bool:
    try:
        return isinstance(form.matcher(op, program), Matched)
    except (*FAILS, StepwellError):
        return False


def _is_no_better(form: _Without, program: Program) -> str | None:
    before, held = len(_read_by_results(program)), _numbers_held(program)
    written = applied(form.bare, program, form.matcher, form.writer)
    if written is None:
        return None
    for old, new in written.pairs:
        old.replace_all_uses_with(new)
    after, more = len(_read_by_results(program)), _numbers_held(program)
    if after >= before:
        return f"{after} ops for {before}"
    return f"{more} numbers of weights for {held}" if more >= held > 0 else None


def _numbers_held(program: Program) -> int:
    """Return the total number of elements of the weights that a program's results use."""
    weights = (op for op in _read_by_results(program) if isinstance(op, WeightOp))
    return sum(number_of(prod(dims(op.result.type))) for op in weights)


def _read_by_results(program: Program) -> dict[Operation, None]:
    last = program.method().body.block.last_op
    assert last is not None
    return producers(last.operands)


def _overflows(form: _Without, program: Program) -> str | None:
    written = applied(form.bare, program, form.matcher, form.writer)
    if written is None or not _can_run(program):
        return None
    found = differs(written, form.rewrite.bound, of_classes=True)
    return str(found) if isinstance(found, Counterexample) else None
