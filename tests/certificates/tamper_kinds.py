"""Ways to tamper with a certificate, the programs that it speaks of, and their weights.

    python tools/tampering.py            # all of them, and a table

Each gives what a checker is given. A certificate that is changed has the digest of what it says
then, but for those kinds that are about the text alone: whoever forges one writes that too.
"""

import base64
import gzip
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from honest import Honest

import stepwell
from stepwell.ir.diagnostics import StepwellError
from stepwell.validation.certificates.audit import Verified, verify_certificate
from stepwell.validation.certificates.certificate import Certificate
from stepwell.validation.certificates.checker.check import check, digest_of


@dataclass
class Input:
    """What a checker is given: a file's bytes, and two programs."""

    data: bytes
    source: stepwell.Program | None
    program: stepwell.Program | None


Json = dict[str, Any]


def written(held: Json) -> bytes:
    """A certificate's file, with its digest."""
    held.pop("digest", None)
    return json.dumps({**held, "digest": digest_of(held)}).encode()


def checked(given: Input) -> str | Verified:
    """What a checker says: a sentence where the file is no certificate, or what came of it.

    Raises:
        Exception: whatever it raises beside a `StepwellError`.
    """
    with tempfile.NamedTemporaryFile() as file:
        file.write(given.data)
        file.flush()
        try:
            try:
                text = Path(file.name).read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                return str(error)
            made = Certificate.from_json(text)
            return verify_certificate(made, given.program, 5, source=given.source)
        except StepwellError as error:
            return error.problems[0].fact


def is_refused(found: str | Verified) -> bool:
    """Whether it is refused, each reason a line."""
    if isinstance(found, str):
        return bool(found) and "\n" not in found
    return not found.ok and all(fault and "\n" not in fault for fault in found.faults)


def said_by_checker(given: Input, honest: Honest) -> tuple[str, str]:
    """What the small checker says without the audit, and why: `refused`; `assumed`, where it lists
    assumptions other than those of the honest certificate; or `accepted`.
    """

    def listed(text: str, *programs: stepwell.Program | None) -> tuple[Any, list[str]]:
        found = check(text, 5, *programs)
        told = [f"{e.by} {e.rewrite} {e.rule} {e.statement}" for _, e, *_ in found.assumptions]
        return (sorted(told), found.recipes, len(found.dropped)), found.faults

    try:
        assumed, faults = listed(given.data.decode(), given.program, given.source)
    except (StepwellError, UnicodeDecodeError) as error:
        return "refused", str(error)
    if faults:
        return "refused", faults[0]
    known, _ = listed(honest.certificate.to_json(), honest.program, honest.source)
    return "accepted" if assumed == known else "assumed", str(assumed)


# -- what is tampered with -----------------------------------------------------------------------

Tamper = Callable[[Honest, Json], Input | bytes | None]
"""None: there is nothing of that kind in it."""
KINDS: dict[str, Tamper] = {}


def kind(name: str) -> Callable[[Tamper], Tamper]:
    def register(function: Tamper) -> Tamper:
        assert name not in KINDS, name
        KINDS[name] = function
        return function

    return register


def applied(name: str, case: Honest) -> Input | None:
    """A kind of tampering, on a copy."""
    held = json.loads(case.certificate.to_json())
    made = KINDS[name](case, held)
    if isinstance(made, bytes):
        return Input(made, case.source, case.program)
    return made


def _of_text(change: Callable[[str], bytes]) -> Tamper:
    return lambda case, held: change(case.certificate.to_json())


def with_(change: Callable[[Json], Any]) -> Tamper:
    """A change of what the file says; where it gives False there is nothing to change."""

    def tamper(case: Honest, held: Json) -> bytes | None:
        return None if change(held) is False else written(held)

    return tamper


TEXTS: dict[str, Callable[[str], bytes]] = {
    "empty": lambda t: b"",
    "half": lambda t: t[: len(t) // 2].encode(),
    "without its end": lambda t: t[:-1].encode(),
    "without its beginning": lambda t: t[1:].encode(),
    "in UTF-16": lambda t: t.encode("utf-16"),
    "with bytes of Latin-1": lambda t: t.replace("forward", "för").encode("latin-1"),
    "behind a byte order mark": lambda t: t.encode("utf-8-sig"),
    "with a zero byte": lambda t: b"\0" + t.encode(),
    "no JSON": lambda t: b"holds: 7 applications proved again",
    "a list": lambda t: f"[{t}]".encode(),
    "a number": lambda t: b"2",
    "null": lambda t: b"null",
    "a string": lambda t: json.dumps(t).encode(),
    "nested deeply": lambda t: b"[" * 100_000 + b"]" * 100_000,
    "nested deeply in a field": lambda t: t.replace(
        '"weights": {', '"weights": {"w": ' + "[" * 100_000 + "]" * 100_000 + ",", 1
    ).encode(),
    "a key twice": lambda t: t.replace("{", '{"target": "xnnpack",', 1).encode(),
    "a key of an entry twice": lambda t: t.replace('"by":', '"by": "bits", "by":', 1).encode(),
    "something behind it": lambda t: (t + "{}").encode(),
    "single quotes": lambda t: t.replace('"', "'").encode(),
    "a comment": lambda t: ("// proved\n" + t).encode(),
    "packed": lambda t: gzip.compress(t.encode()),
    "a number of many digits": lambda t: t.replace('"version": 2', '"version": ' + "9" * 5000, 1)
    .encode(),
    "a digest of another": lambda t: re.sub(r'"digest": "\w{64}"\n}$', '"digest": "0"\n}', t)
    .encode(),
    "no digest": lambda t: re.sub(r',\s*"digest": "\w{64}"\n}$', "}", t).encode(),
    "changed in place": lambda t: t.replace("aten.", "tosa.", 1).encode(),
}  # fmt: skip
for _name, _change in TEXTS.items():
    kind(f"text: {_name}")(_of_text(_change))

WRONG: dict[str, Any] = {
    "null": None, "a number": 7, "a fraction": 0.5, "a truth value": True, "a string": "7",
    "a list": [], "an object": {"a": 1},
}  # fmt: skip
TYPES: dict[str, type[Any] | tuple[type[Any], ...]] = {
    "version": int, "target": str, "start": str, "end": str, "entries": list, "weights": dict,
}  # fmt: skip
ENTRY: dict[str, Any] = {
    "step": str, "rewrite": str, "op": str, "node": (str, type(None)), "by": str,
    "statement": str, "rule": (str, type(None)), "reason": str,
}  # fmt: skip
ROW: dict[str, Any] = {
    "digest": str, "shape": list, "dtype": str, "recipe": str, "sources": list, "data": str,
    "parameters": dict,
}  # fmt: skip


def _wrong(wanted: Any) -> Iterator[tuple[str, Any]]:
    for name, value in WRONG.items():
        if not isinstance(value, wanted) or isinstance(value, bool):
            yield name, value


def first_entry(held: Json) -> Json:
    return next(each for each in held["entries"] if each["statement"])


def _row_with(held: Json, name: str) -> Json | None:
    return next((row for row in held["weights"].values() if name in row), None)


def _set(find: Callable[[Json], Json | None], name: str, value: Any) -> Tamper:
    def change(held: Json) -> bool:
        row = find(held)
        if row is None:
            return False
        row[name] = value
        return True

    return with_(change)


for _field, _wanted in TYPES.items():
    for _name, _value in _wrong(_wanted):
        kind(f"{_field}: {_name}")(_set(lambda held: held, _field, _value))
    kind(f"{_field}: missing")(with_(lambda held, n=_field: held.pop(n)))
for _field, _wanted in ENTRY.items():
    for _name, _value in (*_wrong(_wanted), ("bytes of a surrogate", ["\ud800"])):
        kind(f"an entry's {_field}: {_name}")(_set(first_entry, _field, _value))
    kind(f"an entry's {_field}: missing")(with_(lambda h, n=_field: first_entry(h).pop(n)))
for _field, _wanted in ROW.items():
    for _name, _value in _wrong(_wanted):
        kind(f"a weight's {_field}: {_name}")(
            _set(lambda held, n=_field: _row_with(held, n), _field, _value)
        )
for _name, _value in {
    "version: of before": ("version", 1), "version: of later": ("version", 3),
    "target: unknown": ("target", "abacus"), "target: of another level": ("target", "cortex-m55"),
    "target: a path": ("target", "../../xnnpack"), "start: empty": ("start", ""),
    "end: empty": ("end", ""), "entries: none": ("entries", []), "weights: none": ("weights", {}),
    "start: no program": ("start", "builtin.module {}"), "more fields": ("more", 1),
    "end: no program": ("end", "builtin.module {}"),
    "start: no MLIR": ("start", "def forward(x): return x"),
    "entries: of strings": ("entries", ["proved"]), "weights: of strings": ("weights", {"w": "1"}),
}.items():  # fmt: skip
    kind(_name)(with_(lambda held, v=_value: held.get(v[0]) != v[1] and held.update([v])))

# -- weights as they are described -----------------------------------------------------------------


def _key_with(held: Json, name: str) -> str | None:
    return next((key for key, row in held["weights"].items() if name in row), None)


for _name, (_field, _value) in {
    "digest of another": ("digest", "0" * 64), "a shape below zero": ("shape", [-1, 4]),
    "a shape of fractions": ("shape", [2.5]), "an enormous shape": ("shape", [10**12]),
    "a shape above all": ("shape", [2**62, 4]), "a shape of many axes": ("shape", [1] * 10_000),
    "another shape": ("shape", [5, 7]), "an unknown type": ("dtype", "float99"),
    "a type that is none": ("dtype", "nn"), "a function for a type": ("dtype", "load"),
    "another type": ("dtype", "int64"), "an unknown recipe": ("recipe", "bread"),
    "another recipe": ("recipe", "tosa_bytes"), "no source": ("sources", []),
    "an unknown source": ("sources", ["nowhere"]), "sources that are none": ("sources", [[1], {}]),
    "other parameters": ("parameters", {"factor": 2.0}),
    "parameters of another function": ("parameters", {"self": 1, "recipe_name": "x"}),
    "data that is no Base64": ("data", "*" * 9), "other data": ("data", base64.b64encode(
        torch.tensor([41.5]).numpy().tobytes()).decode()),
    "no data": ("data", ""), "data that is too long": ("data", "AAAA" * 999),
}.items():  # fmt: skip
    kind(f"a weight: {_name}")(_set(lambda held, n=_field: _row_with(held, n), _field, _value))


@kind("a weight: made of itself")
def _cycle(case: Honest, held: Json) -> bytes | None:
    key = _key_with(held, "recipe")
    if key is None:
        return None
    held["weights"][key]["sources"] = [key]
    return written(held)


@kind("a weight: missing")
def _missing(case: Honest, held: Json) -> bytes | None:
    key = next((k for k in held["weights"] if f'"{k}"' in case.certificate.end), None)
    return None if key is None or held["weights"].pop(key) is None else written(held)


@kind("a weight: two rows that are swapped")
def _swapped(case: Honest, held: Json) -> bytes | None:
    rows = held["weights"]
    keys = [k for k, row in rows.items() if "shape" in row and f'"{k}"' in case.certificate.end]
    if len(keys) < 2:
        return None
    rows[keys[0]], rows[keys[1]] = rows[keys[1]], rows[keys[0]]
    return written(held)


# -- statements ------------------------------------------------------------------------------------


def _statements(held: Json) -> list[Json]:
    return [each for each in held["entries"] if each["statement"]]


def _rewritten(change: Callable[[str], str], which: int = 0) -> Tamper:
    """Change the text of a statement, the first that changes."""

    def tamper(case: Honest, held: Json) -> bytes | None:
        changed = [e for e in _statements(held) if change(e["statement"]) != e["statement"]]
        if len(changed) <= which:
            return None
        changed[which]["statement"] = change(changed[which]["statement"])
        return written(held)

    return tamper


def _twice(text: str) -> str:
    return text.replace("func.return ", "func.return %v3, ", 1)


STATEMENTS: dict[str, Callable[[str], str]] = {
    "an argument of another size": lambda t: re.sub(r"(\(%v\d+: tensor<)3x", r"\g<1>1x", t, count=1)
    .replace("3x4xf32", "1x4xf32").replace("?x4xf32", "9x4xf32"),
    "an argument of another type": lambda t: t.replace("xf32>", "xf16>"),
    "an argument that is not known": lambda t: re.sub(r"\(%v\d+:", "(%v99999:", t, count=1),
    "names that are no numbers": lambda t: t.replace("%v", "%w"),
    "names in Unicode": lambda t: t.replace("%v", "%ν"),
    "names with more digits than a number has": lambda t: re.sub(r"%v(\d+)", r"%v1" + "0" * 30
    + r"\1", t),
    "names of a gigabyte of values": lambda t: re.sub(r"%v(\d+)", r"%v1000000000\1", t),
    "a name of a megabyte": lambda t: re.sub(r"%v\d+", "%v" + "1" * 1_000_000, t, count=1),
    "another method": lambda t: t.replace("@equal", "@other"),
    "two methods": lambda t: t.replace("  func.func", "  func.func @more() -> () { func.return }\n"
    "  func.func", 1),
    "results that are no pairs": _twice,
    "no results": lambda t: re.sub(r"func\.return .*", "func.return", t),
    "no return": lambda t: re.sub(r"func\.return .*", "", t),
    "no method": lambda t: "builtin.module {\n}",
    "empty": lambda t: " ",
    "no MLIR": lambda t: "x = x",
    "an unknown op": lambda t: re.sub(r"= aten\.\w+", "= aten.prove_it", t, count=1),
    "an unknown dialect": lambda t: re.sub(r"= aten\.", "= magic.", t, count=1),
    "half of it": lambda t: t[: len(t) // 2],
    "nested deeply": lambda t: t.replace("func.return", '%q = "a.b"() (' + "{" * 9000, 1),
    "a weight that is not there": lambda t: re.sub(r'stepwell\.weight <"[^"]*">',
    'stepwell.weight <"nowhere">', t, count=1),
    "elements of a weight in it": lambda t: re.sub(
    r'(stepwell\.weight <"[^"]*"> "\w+") : (tensor<([^>]*)x(f32)>)',
    r"\1 = dense<41.5> : tensor<\3x\4> : \2", t, count=1),
    "an effect in it": lambda t: t.replace("func.return", 'stepwell.update <"q">, %v0 : tensor<f32>'
    "\n func.return", 1),
}  # fmt: skip
for _name, _change in STATEMENTS.items():
    kind(f"a statement: {_name}")(_rewritten(_change))


@kind("a statement: missing")
def _less(case: Honest, held: Json) -> bytes:
    """The one whose absence matters: the last application that is read is that of the end."""
    held["entries"] = held["entries"][: len(held["entries"]) // 2]
    return written(held)


@kind("statements in the reverse order")
def _reversed(case: Honest, held: Json) -> bytes | None:
    held["entries"].reverse()
    return written(held) if len(_statements(held)) > 2 else None


@kind("statements: of another rewrite, run")
def _of_nobody(case: Honest, held: Json) -> bytes | None:
    runs = [entry for entry in held["entries"] if entry["by"] == "run"]
    for entry in runs:
        entry["rewrite"] = "of mine"
    return written(held) if runs else None


def _rare(op: str) -> Tamper:
    """One statement more, which is false of few inputs and named after an honest rewrite."""

    def tamper(case: Honest, held: Json) -> bytes | None:
        found = re.search(r"@forward\(%(v\d+): (tensor<3x4xf32>)", held["start"])
        entry = next((each for each in held["entries"] if each["by"] == "run"), None)
        if found is None or entry is None:
            return None
        name, type_ = found.groups()
        text = f"""builtin.module {{
  func.func @equal(%{name}: {type_}) -> ({type_}, {type_}) {{
    %v900001 = aten.{op.format(f"%{name}")} : ({type_}) -> {type_}
    func.return %{name}, %v900001 : {type_}, {type_}
  }}
}}"""
        held["entries"].append({**entry, "statement": text})
        return written(held)

    return tamper


for _name, _op in {
    "of large numbers": "clamp.default({}, -1000, 1000)",
    "of very large numbers": "clamp.default({}, -10000000000.0, 10000000000.0)",
    "of infinities and NaN": "nan_to_num.default({})",
}.items():
    kind(f"statements: false {_name}, run")(_rare(_op))


@kind("statements: without their texts")
def _untold(case: Honest, held: Json) -> bytes:
    for entry in held["entries"]:
        entry["statement"] = ""
    return written(held)


@kind("statements: each of the one before")
def _shifted(case: Honest, held: Json) -> bytes | None:
    rows = _statements(held)
    texts = [row["statement"] for row in rows]
    for row, text in zip(rows, texts[1:] + texts[:1], strict=True):
        row["statement"] = text
    return written(held) if len(rows) > 2 else None
