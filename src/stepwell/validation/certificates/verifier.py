"""Verify a certificate from its texts, without the pipeline that produced it.

The ops of the source program's text define the first known values. Each statement claims that pairs
of values are equal. Its operands must be known values, its ops must match the program's
definitions, and its proof must succeed again. Its pairs of values are then equal, and so are all
values computed from them. Finally, the lowered program's text must have the same results as the
source program's.
"""

import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.ir.core import MutateInputOp, UpdateOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.levels import level_of
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Rewrite, Step, bound_of
from stepwell.ir.verification import find_problems
from stepwell.ir.weights import WeightStore
from stepwell.pipelines.pass_pipeline.named_passes import step_classes
from stepwell.targets.table import find_target
from stepwell.validation.certificates.application import (
    DRAWS,
    allowed,
    by_hash,
    follows_rule,
    has_quantized_values,
    is_reproduced_by,
    runs,
    writes_otherwise,
)
from stepwell.validation.certificates.certificate import (
    VALUES,
    Certificate,
    Entry,
    changed_signature,
    store_of,
)
from stepwell.validation.certificates.decision import KINDS, TRIED, Decisions, Undecided
from stepwell.validation.certificates.exhaustive import NotOfBytes, apart_on_all
from stepwell.validation.certificates.field import chosen_by
from stepwell.validation.certificates.graph import ONCE, Definition, EqualityGraph, text_of
from stepwell.validation.certificates.recorder import observed, signatures
from stepwell.validation.certificates.statements import (
    MOST_ELEMENTS,
    elements_of,
    pairs_of,
    weights_of,
)

_NAME = re.compile(r"v\d{1,18}")
_READINGS = {
    f"{kind}{tried}": KINDS[i // 2 * 2 : i + 1]
    for i, kind in enumerate(KINDS)
    for tried in ("", TRIED)
}
"""The readings that are tried for each label."""
_IMPLIED = frozenset(("follows", "step", "nothing", "run"))
"""Labels of applications without a statement, which must follow from other statements."""
_ASSERTIONS = ("aten._assert_", "aten.sym_constrain_range")
TRUSTED = {
    "run": "both sides were run on random inputs, and are as close as the rewrite's bound says",
    "values": "as close as the rewrite's bound says on all values of their bytes, not equal",
    "sizes": "equal at two choices of the symbolic sizes, not shown for all",
    "recipes": "weights of the last program are taken to be made of the first one's as they say",
    "assertions": "the last program no longer asserts what the first one does",
    "lower-dynamic-linear": "the kernel rounds activations in its own way",
    "lower-dynamic-convolution": "the kernel rounds activations in its own way",
}
"""The assumptions that are accepted without a proof, by label, and why; there are no others."""


@dataclass(frozen=True)
class Verified:
    """The result of verifying a certificate.

    Attributes:
        proved: the number of statements that were proved again.
        implied: the number of applications without a statement; their equality follows from the
            other ones.
        trusted: the number of unproved assumptions, by label of `TRUSTED`.
        faults: the errors of the certificate; empty if it holds.
    """

    proved: int
    implied: int
    trusted: Mapping[str, int]
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether each step from the first program to the last is proved, or explicitly trusted."""
        return not self.faults

    @property
    def is_proved(self) -> bool:
        """Whether every step is proved, so that none is only trusted."""
        return self.ok and not self.trusted

    def __str__(self) -> str:
        if self.faults:
            return "refused: " + "; ".join(self.faults[:3])
        text = f"{self.proved} statements proved again, {sum(self.trusted.values())} trusted"
        text += f"; {self.implied} applications state nothing" if self.implied else ""
        if self.is_proved:
            return f"proved: {text}"
        reasons = "; ".join(f"{n} {TRUSTED[label]}" for label, n in self.trusted.items())
        return f"holds, not proved: {text} ({reasons})"


class FalseClaim(Exception):
    """Raised if a claim of a certificate is false."""


def verify_certificate(
    certificate: Certificate,
    program: Program | None = None,
    seed: int | None = None,
    *,
    source: Program | None = None,
) -> Verified:
    """Check every statement of a certificate, and return the verdict.

    Args:
        certificate: the result of `lower(..., certify=True)`.
        program: the lowered program (`lowered.program`, or read from an artifact), which the
            certificate must describe. The elements of weights are read from it.
        seed: the seed of the variables, the prime and the digests; None: a random one.
        source: the source program; the first text must equal it, and so must its weights.
    """
    given = [each for each in (source, program) if each is not None]
    seed = secrets.randbits(62) if seed is None else seed
    with chosen_by(seed):
        check = _Check(certificate, seed, [each.weights for each in given])
        if not check.tried("", check.begin):
            return Verified(0, 0, {}, tuple(check.faults))
        if source is not None:
            check.tried("the source", lambda: check.end(source))
        for number, entry in enumerate(check.certificate.entries, 1):
            check.tried(f"application {number}, {entry.rewrite}", partial(check.entry, entry))
        for last in (check.last, *([] if program is None else [program])):
            check.tried("the last program", partial(check.end, last))
        check.tried("the target", check.target)
    check.trusted["assertions"] = len(check.dropped)
    return Verified(check.proved, check.implied, dict(+check.trusted), tuple(check.faults))


def _bound_of(name: str) -> Bound:
    """Return the error bound that stepwell's rewrite declares; a certificate cannot define it."""
    found = [bound_of(cast(Step, each)) for each in step_classes().values() if each.name == name]
    if not found:
        raise FalseClaim(f"there is no step {name[:40]!r}, so nothing is run for it")
    return allowed(max(found, key=lambda each: (each.relative, each.absolute, each.units)))


def _said(error: Exception) -> str:
    if isinstance(error, StepwellError):
        return error.problems[0].fact
    lines = str(error).splitlines()
    text = lines[0] if lines else ""
    return text if isinstance(error, FalseClaim) else f"it cannot be checked: {text or error!r}"


@dataclass
class _Check:
    certificate: Certificate
    seed: int
    given: Sequence[WeightStore]
    graph: EqualityGraph = field(default_factory=EqualityGraph)
    faults: list[str] = field(default_factory=list[str])
    proved: int = 0
    implied: int = 0
    trusted: Counter[str] = field(default_factory=Counter[str])
    _names: dict[str, int] = field(default_factory=dict[str, int])
    _types: dict[int, Attribute] = field(default_factory=dict[int, Attribute])

    def tried(self, place: str, step: Callable[[], None]) -> bool:
        """Run a step of the verification and record any error as a fault."""
        try:
            step()
        # The text is not trusted, so a statement that cannot be checked is rejected.
        except Exception as error:
            text = f"{place}: {_said(error)}" if place else _said(error)
            self.faults.append(text.encode(errors="backslashreplace").decode())
            return False
        return True

    def begin(self) -> None:
        """Record the ops of the source program's text as definitions of values."""
        by_hash()  # Importing the rules registers the recipes.
        self.certificate = Certificate.from_json(self.certificate.to_json())  # Of its types.
        self.store, self.trusted["recipes"] = store_of(self.certificate.weights, self.given)
        self.decisions = Decisions(self.store, self.seed)
        self.start = Program.parse(self.certificate.start, self.store)
        self.last = Program.parse(self.certificate.end, self.store)
        for program in (self.start, self.last):
            if problem := next(find_problems(program.module, program.weights), None):
                raise FalseClaim(problem.fact)
        numbers: dict[SSAValue, int] = {}
        self.effects: dict[str, list[Definition]] = {}
        self.dropped = set[Definition]()
        for name, func in self.start.methods.items():
            effects = self.effects[name] = list[Definition]()
            for argument in func.body.block.args:
                numbers[argument] = self._new(argument)
            for op in func.body.block.ops:
                for result in op.results:
                    numbers[result] = self._new(result)
                made = _definition(op, numbers)
                if op.results:
                    self.graph.define(made)
                if _has_effect(op, made):
                    effects.append(made)
        self.wanted = [numbers[value] for _, value in observed(self.start)]
        self.inputs = {
            name: [numbers[argument] for argument in func.body.block.args]
            for name, func in self.start.methods.items()
        }

    def target(self) -> None:
        """Check that the certificate's target is known, and that the lowered program is at its
        level.
        """
        name, level = self.certificate.target, level_of(self.last.module)
        stages = find_target(name).stages
        if level not in ("aten", *stages):
            raise FalseClaim(f"a program at level {level!r} is none of target {name}")
        said = self.last.module.attributes.get("tosa.target")
        if isinstance(said, StringAttr) and find_target(said.data).name != find_target(name).name:
            raise FalseClaim(f"the last program is for {said.data}, not {name}")

    def _number(self, value: SSAValue) -> int:
        """Return the graph's number of a value that is named in a text."""
        name = value.name_hint or ""
        if _NAME.fullmatch(name) is None:
            raise FalseClaim(f"%{name[:40]} has no number")
        if name not in self._names:
            self._names[name] = self.graph.new()
        return self._names[name]

    def _new(self, value: SSAValue) -> int:
        number = self._number(value)
        if number in self._types:
            raise FalseClaim(f"%{value.name_hint} is defined twice")
        self._types[number] = value.type
        return number

    def entry(self, entry: Entry) -> None:
        """Verify the statement of one rewrite application, and record that its pairs of values are
        equal.
        """
        if not entry.statement:
            if entry.by not in _IMPLIED:
                raise FalseClaim(f"it states nothing, and is said to rest on {entry.by[:40]!r}")
            self.implied += 1
            return
        program = Program.parse(entry.statement, self.store)
        self._check_form(program)
        pairs = self._placed(program)
        if entry.by == "follows" and self.graph.are_equal(*zip(*pairs, strict=True)):
            self.implied += 1
            return
        try:
            label = self._rests_on(entry, program)
        except (FalseClaim, StepwellError) as error:
            raise self._with_remedy(program, error) from error
        if label is None:
            self.proved += 1
        else:
            self.trusted[label] += 1
        self.graph.unite(pairs)

    def _rests_on(self, entry: Entry, program: Program) -> str | None:
        """Return why a statement is trusted; None if it is proved.

        Raises:
            Refused: the statement is neither proved nor trusted.
        """
        if entry.by == "rule":
            why = follows_rule(program, entry.rule) if entry.rule else "no rule is named"
        elif entry.by in _READINGS:
            try:
                found = self.decisions.decide(str(program), _READINGS[entry.by])
                return "sizes" if found.endswith(TRIED) else None
            except Undecided as error:
                why = f"it is not so: {error}"
        elif entry.by == VALUES:
            try:
                if apart_on_all(program) is None:
                    return None
                why = apart_on_all(program, _bound_of(entry.rewrite))
                if why is None and is_reproduced_by(program, entry.rewrite):
                    return "values"
                why = why or f"{entry.rewrite}, applied again, does not write this"
            except NotOfBytes as error:
                why = f"it is not of bytes: {error}"
        elif entry.by == "run":
            bound, is_its = _bound_of(entry.rewrite), is_reproduced_by(program, entry.rewrite)
            if not is_its and has_quantized_values(program):
                raise FalseClaim(f"{entry.rewrite}, applied again, does not write this")
            draws = DRAWS[:1] if is_its else DRAWS * 4  # Small tensors hold few special numbers.
            found = (runs(program, bound, self.seed + n, draw) for n, draw in enumerate(draws))
            if (why := next(filter(None, found), None)) is None:
                return "run"
            why = f"it was run: {why}"
        elif entry.by == "nothing" and entry.rewrite in TRUSTED:
            step = cast("type[Rewrite[Any]]", step_classes()[entry.rewrite])
            if (why := writes_otherwise(program, step)) is None:
                return entry.rewrite
        else:
            why = f"it rests on {entry.by[:40]!r}, which is no proof"
        if why is not None:
            raise FalseClaim(why)
        return None

    def _with_remedy(self, program: Program, error: Exception) -> Exception:
        """Return the error; if elements of weights are missing, its help states the remedy."""
        leaves = [k for k in weights_of(program) if self.store.recipe_of(k) is None]
        bare = [key for key in leaves if not self.store.is_known(key)]
        hint = f"; no program that is given holds {bare[0]!r}: give the source" if bare else ""
        return FalseClaim(_said(error) + hint)

    def _check_form(self, program: Program) -> None:
        """Check that a statement is one method whose ops compute its pairs and have their declared
        types.

        Raises:
            Refused: the text does not have this form.
        """
        (method,) = program.methods.values()
        last = method.body.block.last_op
        if method.sym_name.data != "equal" or not isinstance(last, ReturnOp):
            raise FalseClaim("its method is not @equal, or returns nothing")
        if not last.operands or len(last.operands) % 2:
            raise FalseClaim("its results are no pairs")
        method.attributes.pop("stepwell.ranges", None)
        for func in self.start.methods.values():
            if (ranges := func.attributes.get("stepwell.ranges")) is not None:
                method.attributes.setdefault("stepwell.ranges", ranges)
        if problem := next(find_problems(program.module, self.store, membership=False), None):
            raise FalseClaim(problem.fact)
        if (count := elements_of(program)) > MOST_ELEMENTS:
            raise FalseClaim(f"its values have {count} elements, more than {MOST_ELEMENTS}")

    def _placed(self, program: Program) -> list[tuple[int, int]]:
        """Return a statement's pairs as numbers of the program's values, whose defining ops must
        match the statement's.
        """
        numbers: dict[SSAValue, int] = {}
        block = program.method("equal").body.block
        for argument in block.args:
            number = numbers[argument] = self._number(argument)
            if number not in self._types:
                raise FalseClaim(f"%{argument.name_hint} is not a known value")
            if argument.type != self._types[number]:
                stated, held = argument.type, self._types[number]
                raise FalseClaim(f"%{argument.name_hint} is {held}, not {stated}")
        for op in block.ops:
            if isinstance(op, ReturnOp):
                continue
            if not op.results:
                raise FalseClaim(f"{op.name} gives no value")
            numbers.update((result, self._number(result)) for result in op.results)
            made = _definition(op, numbers)
            if any(value in self._types for value in made.results):
                same = self.graph.find(made)
                if same is None or not self.graph.are_equal(same.results, made.results):
                    raise FalseClaim(
                        f"%{op.results[0].name_hint} does not match the program's definition"
                    )
            else:
                self.graph.define(made)
                self._types.update((numbers[result], result.type) for result in op.results)
        pairs = pairs_of(program)
        for old, new in pairs:
            if old.type != new.type:
                raise FalseClaim(f"{old.type} is claimed to be equal to {new.type}")
        return [(numbers[old], numbers[new]) for old, new in pairs]

    def end(self, program: Program) -> None:
        """Check that a program has the inputs, results and side effects of the source program's
        text.

        Raises:
            Refused: the program differs from the first text.
        """
        if (problem := changed_signature(signatures(self.start), program)) is not None:
            raise FalseClaim(problem)
        numbers: dict[SSAValue, int] = {}
        for name, func in program.methods.items():
            numbers.update(zip(func.body.block.args, self.inputs[name], strict=True))
            effects = iter(self.effects[name])
            for op in func.body.block.ops:
                for result in op.results:
                    numbers[result] = self.graph.new()
                made = _definition(op, numbers)
                if not _has_effect(op, made):
                    if op.results:
                        self.graph.define(made)
                    continue
                same = self._next(effects, made)
                numbers.update(zip(op.results, same.results, strict=True))
            self._next(effects, None)
        if [name for name, _ in observed(program)] != [name for name, _ in observed(self.start)]:
            raise FalseClaim("it writes to other state or inputs than the first program")
        found = [numbers[value] for _, value in observed(program)]
        if not self.graph.are_equal(found, self.wanted):
            raise FalseClaim("it does not follow from the first program")

    def _next(self, effects: Iterator[Definition], wanted: Definition | None) -> Definition:
        """Return the source program's next side effect, which must equal the lowered program's."""
        for effect in effects:
            is_same = wanted is not None and effect.said == wanted.said
            if wanted and is_same and self.graph.are_equal(effect.operands, wanted.operands):
                return effect
            if not effect.op.name.startswith(_ASSERTIONS):
                raise FalseClaim(f"{effect.op.name} of the first program is not there, or moved")
            # The verifier checks types.
            if effect.op.name != "aten._assert_tensor_metadata.default":
                self.dropped.add(effect)
        if wanted is not None:
            raise FalseClaim(f"{wanted.op.name} is not in the first program")
        return cast(Definition, None)


def _definition(op: Operation, numbers: Mapping[SSAValue, int]) -> Definition:
    operands = tuple(numbers[value] for value in op.operands)
    results = tuple(numbers[value] for value in op.results)
    return Definition(op, {}, {}, operands, results, text_of(op))


def _has_effect(op: Operation, made: Definition) -> bool:
    """Whether an op draws random numbers, or has a side effect."""
    is_shown = isinstance(op, UpdateOp | MutateInputOp | ReturnOp)  # `observed` yields them.
    return made.said.startswith(ONCE) or not (op.results or is_shown)
