"""A certificate: a program's two texts, and between them what each application rests on."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, field
from typing import Any

import torch

from stepwell.certifying.applying import allowed, follows_rule, hash_of_rule, runs
from stepwell.certifying.deciding import KINDS, TRIED, Undecided, is_constant
from stepwell.certifying.exhausting import NotOfBytes, apart_on_all
from stepwell.certifying.recording import Application, Recorder
from stepwell.certifying.renaming import Decisions
from stepwell.certifying.statements import read
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import element_type, torch_dtype
from stepwell.ir.outside.files import as_path, write_atomically
from stepwell.ir.program import Program
from stepwell.ir.records import dataclass
from stepwell.ir.types import dims, element, tensor
from stepwell.ir.weights import WeightStore

VERSION = 1
VALUES = "values"
"""That both sides were run on all values of their bytes."""
PROVED = ("rule", *KINDS, *(f"{kind}{TRIED}" for kind in KINDS), VALUES, "step", "follows")
"""What an application may rest on that is a proof."""

QUOTED = re.compile(r'"([^"\n]*)"')
"""A name in a text; one in another's place is no weight's."""


@dataclass(frozen=True)
class Entry:
    """An application, and what it rests on.

    Attributes:
        step, rewrite, op, node: which, and where.
        by: `rule`: a proof of the rule; `bits`, `reals`: its own instance was decided, for any
            weights or `by the numbers of small weights`, of symbolic sizes `at sizes that were
            tried`; `values`: its sides are as close as its
            bound says for all values of their bytes; `follows`: nothing had to be proved;
            `step`: the step as a whole was decided; `run`: it was run; `nothing`: not even that.
        statement: its text.
        rule: the hash of the rule's text.
        bound: (relative, absolute, units) for what is run.
        reason: why it is not proved.
    """

    step: str
    rewrite: str
    op: str
    node: str | None
    by: str
    statement: str = ""
    rule: str | None = None
    bound: tuple[float, float, int] = (0.0, 0.0, 0)
    reason: str = ""


@dataclass(frozen=True)
class Certificate:
    """What a lowering rests on; `stepwell verify-certificate` checks it again from its texts."""

    target: str
    start: str
    end: str
    entries: tuple[Entry, ...]
    weights: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def counts(self) -> Counter[str]:
        """How many applications rest on what."""
        return Counter(entry.by for entry in self.entries)

    @property
    def proved(self) -> int:
        """How many applications are proved."""
        return sum(self.counts[by] for by in PROVED)

    def __str__(self) -> str:
        count, run = len(self.entries), self.counts["run"]
        left = count - self.proved - run
        text = f"{self.proved} of {count} applications proved, {run} run"
        return text + (f", {left} taken as they are" if left else "")

    def to_json(self) -> str:
        """All of it."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1)

    def save(self, path: Any) -> None:
        """Write it to a file."""
        write_atomically(as_path(path), self.to_json().encode())

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """A certificate from its text.

        Raises:
            StepwellError: the text is none.
        """
        try:
            held = json.loads(text)
            if held.pop("version") != VERSION:
                raise StepwellError("the certificate is of another version of stepwell")
            rows: list[dict[str, Any]] = held.pop("entries")
            bounds = [tuple(row.pop("bound")) for row in rows]
            entries = tuple(
                Entry(**row, bound=bound) for row, bound in zip(rows, bounds, strict=True)
            )
            return cls(entries=entries, **held)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StepwellError(
                f"this is no certificate: {error}",
                help="`stepwell lower --certify FILE` writes one",
            ) from error


def certificate(recorder: Recorder, target: str) -> Certificate:
    """Decide what each application of a lowering rests on."""
    program = recorder.program
    decisions = Decisions(recorder.weights)
    entries = [_entry(made, decisions) for made in recorder.applications]
    by_step = {
        made.step: entry.by
        for made, entry in zip(recorder.applications, entries, strict=True)
        if made.op == "the program"
    }
    found: list[Entry] = []
    for application, entry in zip(recorder.applications, entries, strict=True):
        if entry.by == "nothing" and not application.statements:
            how = by_step.get(application.step, "bits")
            kind = "step" if how in PROVED else how
            entry = Entry(*_place(application), kind, reason="" if kind == "step" else entry.reason)
        found.append(entry)
    texts = [entry.statement for entry in found] + [recorder.start, str(program)]
    counted = (*KINDS[2:], *(f"{kind}{TRIED}" for kind in KINDS[2:]), VALUES)
    statements = [entry.statement for entry in found if entry.by in counted]
    kept = _weights(recorder.weights, texts, statements)
    return Certificate(target, recorder.start, str(program), tuple(found), kept)


def _place(application: Application) -> tuple[str, str, str, str | None]:
    return application.step, application.rewrite, application.op, application.node


def _decided(text: str, decisions: Decisions) -> str:
    """The reading in which a statement holds.

    Raises:
        Undecided: it holds in none; the reason is that of any weights.
    """
    try:
        return decisions.decide(text, KINDS[:2])
    except Undecided as error:
        with suppress(Undecided):
            return decisions.decide(text, KINDS[2:])
        raise error


def _entry(application: Application, decisions: Decisions) -> Entry:
    if not application.claims:
        return Entry(*_place(application), "follows")
    held = allowed(application.bound)
    bound = held.relative, held.absolute, held.units
    reason = "values stand for others"
    hash_ = hash_of_rule(application.rule)
    weights = decisions.weights
    for text in application.statements:
        if hash_ is not None and follows_rule(read(text, weights)[0], hash_) is None:
            return Entry(*_place(application), "rule", text, hash_, bound)
        try:
            return Entry(*_place(application), _decided(text, decisions), text, bound=bound)
        except Undecided as error:
            reason = str(error)
    for text in application.statements:
        with suppress(NotOfBytes, StepwellError):
            if apart_on_all(read(text, weights)[0], held) is None:
                return Entry(*_place(application), VALUES, text, bound=bound)
    for text in application.statements:
        try:
            program, _ = read(text, weights)
            if (apart := runs(program, held)) is None:
                return Entry(*_place(application), "run", text, bound=bound, reason=reason)
            reason = f"{reason}; run: {apart}"
        except StepwellError as error:
            reason = f"{reason}; {error.problems[0].fact}"
    text = application.statements[0] if application.statements else ""
    return Entry(*_place(application), "nothing", text, bound=bound, reason=reason)


# -- weights -------------------------------------------------------------------------------------


def _weights(store: WeightStore, texts: list[str], given: list[str]) -> dict[str, Any]:
    """What texts need to know of weights: types, recipes, constants; of `given` texts, numbers."""
    waiting = _named(store, texts)
    counted = {leaf for key in _named(store, given) for leaf in _leaves(store, key)}
    weights: dict[str, Any] = {}
    while waiting:
        key = waiting.pop()
        if key in weights:
            continue
        recipe = store.recipe_of(key)
        if recipe is not None:
            weights[key] = {
                "recipe": recipe[0],
                "sources": list(recipe[1]),
                "parameters": recipe[2],
            }
            waiting += recipe[1]
            continue
        type_ = store.type_of(key)
        row: dict[str, Any] = {
            "shape": list(dims(type_)),
            "dtype": str(torch_dtype(element(type_))).removeprefix("torch."),
        }
        if is_constant(store, key, key in counted):
            held = store.get(key).contiguous()
            row["data"] = base64.b64encode(_bytes(held)).decode()
        weights[key] = row
    return weights


def _named(store: WeightStore, texts: list[str]) -> list[str]:
    """The weights that texts name, in the store's order."""
    names = {name for text in texts for name in QUOTED.findall(text)}
    return [key for key in store if key in names]


def _leaves(store: WeightStore, key: str) -> Iterator[str]:
    """The weights that a recipe makes a weight of, or itself."""
    recipe = store.recipe_of(key)
    if recipe is None:
        yield key
    else:
        for source in recipe[1]:
            yield from _leaves(store, source)


def _bytes(value: torch.Tensor) -> bytes:
    return bytes(value.reshape(-1).view(torch.uint8).tolist())


def store_of(rows: dict[str, Any]) -> WeightStore:
    """The store that a certificate speaks of: of most weights the types alone.

    Raises:
        StepwellError: a derived weight is not what its name says.
    """
    store = WeightStore()

    def add(key: str) -> None:
        if key in store:
            return
        row = rows[key]
        if "recipe" in row:
            for source in row["sources"]:
                add(source)
            derived_key = store.derive(row["recipe"], row["sources"], **row["parameters"])
            if derived_key != key:
                raise StepwellError(f"the weight {key!r} is none that {row['recipe']} makes")
        elif "data" in row:
            dtype = getattr(torch, row["dtype"])
            data = bytearray(base64.b64decode(row["data"]))
            flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
            held = flat.reshape(row["shape"])
            if "#" in key and store.constant(held, key.rpartition("#")[0]) != key:
                raise StepwellError(f"the constant {key!r} has other elements")
            if key not in store:
                store.add(key, held)
        else:
            dtype = getattr(torch, row["dtype"])
            store.add_unknown(key, tensor(row["shape"], element_type(dtype)))

    for key in rows:
        add(key)
    return store


def parsed(text: str, store: WeightStore) -> Program:
    """A program of a certificate."""
    return Program.parse(text, store)
