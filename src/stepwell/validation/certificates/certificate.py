"""A certificate: the source and the lowered program as texts, and the evidence for each
application.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from types import NoneType
from typing import Any, cast

import torch

from stepwell.ir.diagnostics import StepwellError, quoted
from stepwell.ir.dtypes import element_type, torch_dtype
from stepwell.ir.platform.files import as_path, write_atomically
from stepwell.ir.program import Program
from stepwell.ir.types import AnyTensor, dims, element, tensor
from stepwell.ir.weights import WeightStore
from stepwell.validation.certificates.application import (
    allowed,
    follows_rule,
    has_quantized_values,
    hash_of_rule,
    is_reproduced_by,
    runs,
)
from stepwell.validation.certificates.decision import KINDS, Decisions, Undecided, is_constant
from stepwell.validation.certificates.exhaustive import NotOfBytes, apart_on_all
from stepwell.validation.certificates.recorder import Application, StatementRecorder, signatures
from stepwell.validation.certificates.statements import read

VERSION = 2
VALUES = "values"
"""The label of statements whose two sides were run on all values of their bytes."""
PROVED = ("rule", *KINDS, VALUES, "step", "follows")
"""The labels of evidence that is a proof."""

QUOTED = re.compile(r'"([^"\n]*)"')
"""A quoted name in a text; only a weight's name is replaced."""


@dataclass(frozen=True)
class Entry:
    """One application of a rewrite in a certificate, and the evidence that it is right.

    Attributes:
        step, rewrite, op, node: the pass, the rewrite, and the op and model node to which it was
            applied.
        by: the label of the evidence. `rule`: a proof of the rule. `bits`, `reals`: this instance
            was decided, for any weights or `by the numbers of small weights`; a statement of
            symbolic sizes `at sizes that were tried`. `values`: its sides were compared within its
            bound for all values of its 8-bit operands. `follows`: nothing had to be proved. `step`:
            only the pass as a whole was decided. `run`: the statement was run on random numbers.
            `nothing`: there is no evidence.
        statement: the text of the statement.
        rule: the hash of the rule's text.
        reason: why it is not proved.
    """

    step: str
    rewrite: str
    op: str
    node: str | None
    by: str
    statement: str = ""
    rule: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class Certificate:
    """The evidence that a lowering is right; `stepwell verify-certificate` verifies it from its
    texts.
    """

    target: str
    start: str
    end: str
    entries: tuple[Entry, ...]
    weights: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def counts(self) -> Counter[str]:
        """Count the applications by label of evidence."""
        return Counter(entry.by for entry in self.entries)

    @property
    def proved(self) -> int:
        """The number of rewrite applications that are proved."""
        return sum(self.counts[by] for by in PROVED)

    def __str__(self) -> str:
        count, run = len(self.entries), self.counts["run"]
        left = count - self.proved - run
        text = f"{self.proved} of {count} applications proved, {run} run"
        return text + (f", {left} taken as they are" if left else "")

    def to_json(self) -> str:
        """Return the certificate as JSON, with its digest."""
        rows = {"version": VERSION, **asdict(self)}
        return json.dumps({**rows, "digest": _digest(rows)}, indent=1)

    def save(self, path: Any) -> None:
        """Write the certificate to a file."""
        write_atomically(as_path(path), self.to_json().encode())

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Parse a certificate from its JSON text.

        Raises:
            StepwellError: the text is not a certificate.
        """
        try:
            held = json.loads(text, object_pairs_hook=_of_pairs)
            _has_types(held, {**_fields(cls), "version": int, "digest": str})
            if held.pop("version") != VERSION:
                raise ValueError("another version of stepwell wrote it")
            if held.pop("digest") != _digest({"version": VERSION, **held}):
                raise ValueError("it was changed after it was written: its digest does not match")
            rows: list[dict[str, Any]] = held.pop("entries")
            return cls(entries=tuple(map(_entry_of, rows)), **held)
        except (ValueError, TypeError, RecursionError) as error:
            raise StepwellError(
                f"this is no certificate: {error}",
                help="`stepwell lower --certify FILE` writes one",
            ) from error


_FIELDS = {"str": str, "str | None": (str, NoneType), "dict[str, Any]": dict}
"""The classes of JSON values by the types of fields; others are lists."""


def _fields(cls: type[Any]) -> dict[str, Any]:
    return {f.name: _FIELDS.get(cast(str, f.type), list) for f in fields(cls)}


def _has_types(row: Any, wanted: Mapping[str, Any]) -> None:
    """Check that a part of a certificate has the required fields, and no others.

    Raises:
        ValueError: a field is missing or unknown.
    """
    if not isinstance(row, dict) or set(cast("dict[str, Any]", row)) != set(wanted):
        raise ValueError(f"a JSON object must have the fields {', '.join(wanted)}, and no others")
    for name, kind in wanted.items():
        if not isinstance(row[name], kind) or isinstance(row[name], bool):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            held = type(cast(Any, row[name])).__name__
            allowed = " or ".join(one.__name__ for one in kinds)
            raise ValueError(f"the field {name} has type {held}, must be {allowed}")


def _entry_of(row: Any) -> Entry:
    _has_types(row, _fields(Entry))
    return Entry(**row)


def _of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a JSON object has a key twice")
    return found


def _digest(rows: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def certificate(recorder: StatementRecorder, target: str) -> Certificate:
    """Determine the evidence for each application of a lowering.

    Raises:
        StepwellError: the lowered program has other inputs or results than its source.
    """
    program = recorder.program
    if (problem := changed_signature(recorder.signatures, program)) is not None:
        raise StepwellError(f"this lowering has no certificate: {problem}", help=PORTS)
    decisions = Decisions(recorder.weights)
    entries = [_entry(made, decisions) for made in recorder.applications]
    pairs = list(zip(recorder.applications, entries, strict=True))
    by_step = {made.step: entry.by for made, entry in pairs if made.op == "the program"}
    found: list[Entry] = []
    for application, entry in pairs:
        if entry.by == "nothing" and not application.statements:
            how = by_step.get(application.step, "bits")
            kind = "step" if how in PROVED else how
            entry = Entry(*_place(application), kind, reason="" if kind == "step" else entry.reason)
        found.append(entry)
    ends = [recorder.start, str(program)]
    kept = _weights(recorder.weights, [*(entry.statement for entry in found), *ends], ends)
    held = program.weights.entries  # The verifier reads them from the program.
    held.update({key: each for key, each in recorder.weights.entries.items() if key not in held})
    return Certificate(target, recorder.start, str(program), tuple(found), kept)


PORTS = (
    "leave out io=, io_layout=, sizes=; a target without floats has none: `stepwell check` runs it"
)


def changed_signature(first: Mapping[str, Any], last: Program) -> str | None:
    """Return the name of a method whose signature differs from the first program's, or None."""
    found = signatures(last)
    names = [name for name in {**first, **found} if found.get(name) != first.get(name)]
    return f"method @{names[0]} has another signature than the first program's" if names else None


def _place(application: Application) -> tuple[str, str, str, str | None]:
    return application.step, application.rewrite, application.op, application.node


def _decided(text: str, decisions: Decisions) -> str:
    """Return the arithmetic (bitwise, or over the reals) in which both sides of a statement are
    equal.

    Raises:
        Undecided: they are equal in neither; the reason is the one for arbitrary weights.
    """
    try:
        return decisions.decide(text, KINDS[:2])
    except Undecided as error:
        with suppress(Undecided):
            return decisions.decide(text, KINDS[2:])
        raise error


def _entry(application: Application, decisions: Decisions) -> Entry:
    entry = partial(Entry, *_place(application))
    if not application.claims:
        return entry("follows", next(iter(application.statements), ""))
    held = allowed(application.bound)
    reason = "values stand for others"
    hash_ = hash_of_rule(application.rule)
    weights = decisions.weights
    for text in application.statements:
        if hash_ is not None and follows_rule(read(text, weights)[0], hash_) is None:
            return entry("rule", text, hash_)
        try:
            return entry(_decided(text, decisions), text)
        except Undecided as error:
            reason = str(error)
    for text in application.statements:
        with suppress(NotOfBytes, StepwellError):
            program = read(text, weights)[0]
            if apart_on_all(program) is None or (
                apart_on_all(program, held) is None
                and is_reproduced_by(program, application.rewrite)
            ):
                return entry(VALUES, text)
    for text in application.statements:
        try:
            program, _ = read(text, weights)
            apart = runs(program, held)
            if has_quantized_values(program) and not is_reproduced_by(program, application.rewrite):
                apart = apart or f"{application.rewrite}, applied again, does not write this"
            if apart is None:
                return entry("run", text, reason=reason)
            reason = f"{reason}; run: {apart}"
        except StepwellError as error:
            reason = f"{reason}; {error.problems[0].fact}"
    text = application.statements[0] if application.statements else ""
    return entry("nothing", text, reason=reason)


# -- weights -------------------------------------------------------------------------------------


def _weights(store: WeightStore, texts: list[str], ends: list[str]) -> dict[str, Any]:
    """Return the data about weights that the texts need: types, recipes, digests, and the elements
    of constants.

    The elements of the model's own weights are not included: they are read from the verified
    program.
    """
    waiting = _named(store, texts)
    shown = set(_named(store, ends))
    weights: dict[str, Any] = {}
    while waiting:
        key = waiting.pop()
        if key in weights:
            continue
        recipe = store.recipe_of(key)
        row: dict[str, Any] = {"digest": store.content_hash(key) if key in shown else ""}
        weights[key] = row
        if recipe is not None:
            row |= {"recipe": recipe[0], "sources": list(recipe[1]), "parameters": recipe[2]}
            waiting += recipe[1]
            continue
        type_ = store.type_of(key)
        row["digest"] = store.content_hash(key)
        row["shape"] = list(dims(type_))
        row["dtype"] = str(torch_dtype(element(type_))).removeprefix("torch.")
        if "#" in key and is_constant(store, key):
            row["data"] = base64.b64encode(_bytes(store.get(key).contiguous())).decode()
    return weights


def _named(store: WeightStore, texts: list[str]) -> list[str]:
    """Return the weights to which a certificate's texts refer, in the store's order."""
    names = {name for text in texts for name in QUOTED.findall(text)}
    return [key for key in store if key in names]


def _bytes(value: torch.Tensor) -> bytes:
    return bytes(value.reshape(-1).view(torch.uint8).tolist())


def store_of(rows: Mapping[str, Any], given: Sequence[WeightStore]) -> tuple[WeightStore, int]:
    """Create the weight store of a certificate; elements of weights come from the given programs.

    Returns:
        The store, in which other weights have types only; and the number of the programs' weights
        that are assumed to be derived by their recipes from weights that are not given.

    Raises:
        StepwellError: a weight contradicts its name, its digest or a program.
    """
    store, begun = WeightStore(), set[str]()
    taken = 0

    def add(key: str) -> None:
        nonlocal taken
        if key in store:
            return
        row = rows.get(key)
        if row is None or key in begun:
            raise StepwellError(
                f"weight {quoted(key)} has no entry in the certificate, or is derived from itself"
            )
        begun.add(key)
        holders = [each for each in given if key in each and each.is_known(key)]
        if "recipe" in row:
            _has_types(row, {"digest": str, "recipe": str, "sources": list, "parameters": dict})
            for source in row["sources"]:
                add(source)
            derived_key = store.derive(row["recipe"], row["sources"], **row["parameters"])
            if derived_key != key:
                raise StepwellError(
                    f"the weight {quoted(key)} is not a result of the recipe {row['recipe']}"
                )
        else:
            type_ = _type_of(row)
            if "data" in row:
                _add_constant(store, key, row)
            elif holders:
                store.add(key, holders[0].get(key))
            else:
                store.add_unknown(key, type_)
            if store.type_of(key) != type_:
                raise StepwellError(f"the weight {quoted(key)} differs in type from the program's")
        made = store.recipe_of(key)
        found = [each for each in holders if made is None or each.recipe_of(key) != made]
        taken += bool(found) and not store.is_known(key)
        known = [store] if store.is_known(key) and (found or row["digest"]) else []
        digests = {each.content_hash(key) for each in (*found, *known)}
        if (row["digest"] and known) or (found and not known):
            digests.add(row["digest"])
        if len(digests) > 1 or any(s.type_of(key) != store.type_of(key) for s in found):
            raise StepwellError(
                f"the weight {quoted(key)} differs in type or elements from the program's"
            )

    for key in rows:
        add(key)
    return store, taken


def _type_of(row: Any) -> AnyTensor:
    wanted = {"digest": str, "shape": list, "dtype": str}
    _has_types(row, wanted | ({"data": str} if "data" in row else {}))
    dtype = getattr(torch, row["dtype"], None)
    is_shape = all(type(size) is int and 0 <= size < 1 << 40 for size in row["shape"])
    if not isinstance(dtype, torch.dtype) or not is_shape:
        raise ValueError("the shape or dtype of a weight is invalid")
    return tensor(row["shape"], element_type(dtype))


def _add_constant(store: WeightStore, key: str, row: dict[str, Any]) -> None:
    """Add a constant of the certificate, whose name defines its elements."""
    dtype = getattr(torch, row["dtype"])
    data = bytearray(base64.b64decode(row["data"], validate=True))
    flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    made = store.constant(flat.reshape(row["shape"]), key.rpartition("#")[0])
    if made != key or store.content_hash(key) != row["digest"]:
        raise StepwellError(f"the elements of the constant {quoted(key)} do not match its digest")
