"""Check a certificate from its texts.

The ops of the source program's text define the first known values. Each statement claims that pairs
of known values are equal, and must be decided again; all values computed from them are equal, too.
The lowered program must have the same results. A statement that is not decided is an assumption.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import prod
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.op_text import ONCE, text_of
from stepwell.ir.calls.arguments import exactly
from stepwell.ir.core import MutateInputOp, UpdateOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.observed import changed_signature, observed, signatures
from stepwell.ir.program import Program
from stepwell.ir.types import dims
from stepwell.ir.verification import find_problems
from stepwell.ir.weight_descriptions import store_of
from stepwell.ir.weights import WeightStore
from stepwell.validation.certificates.checker import statements
from stepwell.validation.certificates.checker.expressions import chosen_by
from stepwell.validation.certificates.checker.statements import ASSUMED, KINDS, Undecided

VERSION = 2
MOST_ELEMENTS = 1 << 28  # Of all values and weights of a statement.
_NAME = re.compile(r"v\d{1,18}")
_READINGS = {kind + "".join(end): KINDS[i // 2 * 2 : i + 1] for i, kind in enumerate(KINDS)
             for end in product(*(("", each) for each in ASSUMED))}  # fmt: skip
_ASSUMED = ("rule", "values", "run", "nothing")  # Labels of statements that are not decided.
_ASSERTIONS = ("aten._assert_", "aten.sym_constrain_range")


@dataclass(frozen=True)
class Entry:
    """One application of a rewrite, and by which evidence it is right (docs/proofs.md)."""

    step: str
    rewrite: str
    op: str
    node: str | None
    by: str
    statement: str = ""
    rule: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class Text:
    """The texts of both programs, all applications, and the descriptions of weights."""

    target: str
    start: str
    end: str
    entries: tuple[Entry, ...]
    weights: dict[str, Any]

    @classmethod
    def from_json(cls, text: str) -> Any:
        """Parse a certificate from its JSON text, or raise a `StepwellError`."""
        try:
            held = json.loads(text, object_pairs_hook=_of_pairs)
            if held.pop("digest") != digest_of(held):
                raise ValueError("it was changed after it was written: its digest does not match")
            if held.pop("version") != VERSION:
                raise ValueError("another version of stepwell wrote it")
            held["entries"] = tuple(exactly(Entry, row) for row in held["entries"])
            return exactly(cls, held)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            help_ = "`stepwell lower --certify FILE` writes one"
            raise StepwellError(f"this is no certificate: {error}", help=help_) from error


def _of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a JSON object has a key twice")
    return found


def digest_of(rows: Mapping[str, Any]) -> str:
    """Return the digest of a certificate's other fields."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Definition:
    """An op of a program: its text, and the numbers of its operands and results."""

    said: str
    operands: tuple[int, ...]
    results: tuple[int, ...]


class EqualityGraph:
    """Classes of equal values, closed under congruence (Nelson and Oppen, JACM 1980)."""

    def __init__(self) -> None:
        self._parents, self._read_by = list[int](), list[list[Definition]]()
        self._known: dict[tuple[str, tuple[int, ...]], Definition] = {}

    def new(self) -> int:
        self._parents.append(len(self._parents))
        self._read_by.append([])
        return len(self._parents) - 1

    def of(self, value: int) -> int:
        """Return the class of values that are known to equal a value."""
        while (parent := self._parents[value]) != value:
            self._parents[value] = self._parents[parent]
            value = parent
        return value

    def are_equal(self, one: Sequence[int], other: Sequence[int]) -> bool:
        return [*map(self.of, one)] == [*map(self.of, other)]

    def find(self, definition: Definition) -> Definition | None:
        """Return the first definition with the same text and operand classes, or None."""
        return self._known.get(self._key(definition))

    def define(self, definition: Definition) -> None:
        for operand in map(self.of, definition.operands):
            self._read_by[operand].append(definition)
        self.unite(self._same(definition))

    def unite(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Merge the classes of equal values, and restore congruence."""
        waiting = list(pairs)
        while waiting:
            one, other = map(self.of, waiting.pop())
            if one != other:
                self._parents[other] = one
                readers, self._read_by[other] = self._read_by[other], []
                self._read_by[one] += readers
                waiting += (pair for reader in readers for pair in self._same(reader))

    def _same(self, definition: Definition) -> Iterable[tuple[int, int]]:
        same = self._known.setdefault(self._key(definition), definition)
        return zip(same.results, definition.results, strict=True)

    def _key(self, definition: Definition) -> tuple[str, tuple[int, ...]]:
        own = definition.results if definition.said.startswith(ONCE) else ()
        return definition.said, (*map(self.of, definition.operands), *own)


@dataclass
class Checked:
    """The result of a check; it holds under the assumptions (each with its decision) or faults."""

    proved: int = 0  # Statements that were decided.
    implied: int = 0  # Applications without a statement, which follow from the others.
    assumptions: list[tuple[int, Entry, Program, str]] = field(default_factory=list[Any])
    recipes: int = 0  # Weights that are assumed to be made by their recipes.
    dropped: set[Definition] = field(default_factory=set[Definition])  # Assertions of the source.
    faults: list[str] = field(default_factory=list[str])
    last: Program | None = None


def check(
    text: str, seed: int, program: Program | None = None, source: Program | None = None
) -> Checked:
    """Check a certificate in JSON of two programs, by a seed that its author must not know."""
    with chosen_by(seed):
        made = _Check(Text.from_json(text), seed)
        given = [each.weights for each in (source, program) if each is not None]
        if made.tried("the texts", partial(made.begin, given)):
            if source is not None:
                made.tried("the source", partial(made.end, source))
            for number, entry in enumerate(made.text.entries, 1):
                place = f"application {number}, {entry.rewrite}"
                made.tried(place, partial(made.entry, number, entry))
            for last in (made.last, program or made.last):
                made.tried("the last program", partial(made.end, last))
    return made.found


class _Check:
    def __init__(self, text: Text, seed: int) -> None:
        self.text, self.seed, self.found = text, seed, Checked()
        self.graph, self.store, self.effects = EqualityGraph(), WeightStore(), dict[str, Any]()
        self.names, self.types = dict[str, int](), dict[int, Attribute]()

    def tried(self, place: str, step: Callable[[], None]) -> bool:
        try:
            step()
        except Exception as error:  # No text is trusted.
            text = error.problems[0].fact if isinstance(error, StepwellError) else str(error)
            fault = f"{place}: {text or repr(error)}".encode(errors="backslashreplace").decode()
            self.found.faults.append(fault.splitlines()[0])
        return not self.found.faults

    def begin(self, given: list[WeightStore]) -> None:
        """Read the texts of both programs, and the ops of the first as definitions of values."""
        self.store, self.found.recipes = store_of(self.text.weights, given)
        self.start = Program.parse(self.text.start, self.store)
        self.last = self.found.last = Program.parse(self.text.end, self.store)
        self.verify(self.start, True)
        self.verify(self.last, True)
        numbers: dict[SSAValue, int] = {}
        for name, func in self.start.methods.items():
            self.effects[name] = []
            numbers.update((value, self.number(value, True)) for value in func.body.block.args)
            for op in func.body.block.ops:
                numbers.update((value, self.number(value, True)) for value in op.results)
                made = _definition(op, numbers)
                self.graph.define(made)
                if _has_effect(op, made):
                    self.effects[name].append(made)
        self.wanted = [numbers[value] for _, value in observed(self.start)]
        self.inputs = {name: [numbers[argument] for argument in func.body.block.args]
                       for name, func in self.start.methods.items()}  # fmt: skip

    def verify(self, program: Program, membership: bool) -> None:
        for problem in find_problems(program.module, self.store, membership=membership):
            raise Undecided(problem.fact)

    def number(self, value: SSAValue, is_new: bool = False) -> int:
        name = value.name_hint or ""
        number = self.names.setdefault(name, self.graph.new())
        if _NAME.fullmatch(name) is None or (is_new and number in self.types):
            raise Undecided(f"%{name[:40]} has no number, or is defined twice")
        if is_new:
            self.types[number] = value.type
        return number

    def entry(self, number: int, entry: Entry) -> None:
        """Check the statement of one application, and record that its pairs of values are equal."""
        program = Program.parse(entry.statement, self.store) if entry.statement else None
        pairs = self.placed(program) if program else []
        same = pairs and entry.by == "follows" and self.graph.are_equal(*zip(*pairs, strict=True))
        if program is None or same:
            self.found.implied += 1
            return
        kinds = _READINGS.get(entry.by, ())
        said = "" if entry.by in _ASSUMED else statements.decide(program, kinds, self.seed)
        self.found.proved += said in KINDS
        if said not in KINDS:
            self.found.assumptions.append((number, entry, program, said))
        self.graph.unite(pairs)

    def check_form(self, program: Program) -> None:
        """Check that a statement is one method whose ops have their declared types."""
        (method,) = program.methods.values()
        last: Any = method.body.block.last_op
        if method.sym_name.data != "equal" or len(last.operands) < 2 or len(last.operands) % 2:
            raise Undecided("its method is not @equal, or its results are no pairs")
        method.attributes.pop("stepwell.ranges", None)
        for func in self.start.methods.values():
            if (ranges := func.attributes.get("stepwell.ranges")) is not None:
                method.attributes.setdefault("stepwell.ranges", ranges)
        self.verify(program, False)
        values: list[SSAValue] = [v for op in program.module.walk() for v in op.results]
        values += [a for op in program.module.walk() for r in op.regions for a in r.block.args]
        keys = list(program.used_weights())
        for key in keys:
            keys += {*(self.store.recipe_of(key) or ("", (), {}))[1]}.difference(keys)
        types = [*(value.type for value in values), *map(self.store.type_of, keys)]
        shapes = (dims(type_) for type_ in types if isinstance(type_, TensorType))
        count = sum(prod(size for size in shape if isinstance(size, int)) for shape in shapes)
        if count > MOST_ELEMENTS:
            raise Undecided(f"its values have {count} elements, more than {MOST_ELEMENTS}")

    def placed(self, program: Program) -> list[tuple[int, int]]:
        """Return a statement's pairs, whose ops must match the program's, as numbers."""
        self.check_form(program)
        numbers: dict[SSAValue, int] = {}
        block = program.method("equal").body.block
        for argument in block.args:
            number = numbers[argument] = self.number(argument)
            if argument.type != (held := self.types.get(number, "not a known value")):
                raise Undecided(f"%{argument.name_hint} is {held}, not {argument.type}")
        for op in [*block.ops][:-1]:
            if not op.results:
                raise Undecided(f"{op.name} gives no value")
            numbers.update((result, self.number(result)) for result in op.results)
            made = _definition(op, numbers)
            if not any(value in self.types for value in made.results):
                self.graph.define(made)
                self.types.update((numbers[result], result.type) for result in op.results)
                continue
            same = self.graph.find(made)
            if same is None or not self.graph.are_equal(same.results, made.results):
                name = op.results[0].name_hint
                raise Undecided(f"%{name} does not match the program's definition")
        for old, new in statements.pairs_of(program):
            if old.type != new.type:
                raise Undecided(f"{old.type} is claimed to be equal to {new.type}")
        return [(numbers[old], numbers[new]) for old, new in statements.pairs_of(program)]

    def end(self, program: Program) -> None:
        """Check that a program has the inputs, results and side effects of the first text."""
        if (problem := changed_signature(signatures(self.start), program)) is not None:
            raise Undecided(problem)
        numbers: dict[SSAValue, int] = {}
        for name, func in program.methods.items():
            numbers.update(zip(func.body.block.args, self.inputs[name], strict=True))
            effects = iter(self.effects[name])
            for op in func.body.block.ops:
                numbers.update((result, self.graph.new()) for result in op.results)
                made = _definition(op, numbers)
                if _has_effect(op, made):
                    numbers.update(zip(op.results, self.next(effects, made), strict=True))
                self.graph.define(made)
            self.next(effects, None)
        if [name for name, _ in observed(program)] != [name for name, _ in observed(self.start)]:
            raise Undecided("it writes to other state or inputs than the first program")
        if not self.graph.are_equal([numbers[v] for _, v in observed(program)], self.wanted):
            raise Undecided("it does not follow from the first program")

    def next(self, effects: Iterator[Definition], wanted: Definition | None) -> tuple[int, ...]:
        """Return the results of the source program's next side effect, which must be the same."""
        for effect in effects:
            equal = wanted and self.graph.are_equal(effect.operands, wanted.operands)
            if wanted and equal and effect.said == wanted.said:
                return effect.results
            name = effect.said.removeprefix(ONCE).split()[0]
            if not name.startswith(_ASSERTIONS):
                raise Undecided(f"{name} of the first program is not there, or moved")
            if name != "aten._assert_tensor_metadata.default":  # The verifier checks types.
                self.found.dropped.add(effect)
        if wanted is not None:
            raise Undecided("an effect of the last program is not in the first one")
        return ()


def _definition(op: Operation, numbers: Mapping[SSAValue, int]) -> Definition:
    operands, results = (tuple(numbers[v] for v in values) for values in (op.operands, op.results))
    return Definition(text_of(op), operands, results)


def _has_effect(op: Operation, made: Definition) -> bool:
    """Whether an op draws random numbers, or has a side effect."""
    is_shown = isinstance(op, UpdateOp | MutateInputOp | ReturnOp)  # `observed` yields them.
    return made.said.startswith(ONCE) or not (op.results or is_shown)
