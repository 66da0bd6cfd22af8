"""More ways to tamper: with programs, with weights, and with what a check takes."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from honest import EDITS, PROGRAMS, Honest, honest
from tamper_kinds import KINDS, Input, Json, Tamper, applied, first_entry, kind, with_, written
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

import stepwell
from stepwell.ir.core import MutateInputOp, UpdateOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.observed import observed
from stepwell.ir.syntax.text import to_text
from stepwell.ir.weights import Given

LABELS = (
    "rule", "bits", "reals", "bits, by the numbers of small weights",
    "reals, by the numbers of small weights", "bits, at sizes that were tried",
    "reals, at sizes that were tried", "values", "run", "nothing", "step", "follows", "proved", "",
)  # fmt: skip


# -- an end that is wrong, and what is said of it --------------------------------------------------


def _body(func: FuncOp, known: dict[SSAValue, SSAValue], block: Block, number: int) -> int:
    for op in func.body.block.ops:
        if isinstance(op, ReturnOp | UpdateOp | MutateInputOp):
            continue
        copy = op.clone(known)
        block.add_op(copy)
        for old, new in zip(op.results, copy.results, strict=True):
            known[old] = new
            new.name_hint = old.name_hint if re.fullmatch(r"v\d+", old.name_hint or "") else None
            if new.name_hint is None or number >= 10_000:
                number += 1
                new.name_hint = f"v{number}"
    return number


def claim(start: stepwell.Program, end: stepwell.Program) -> str:
    """The statement that two programs give the same."""
    (first,), (last,) = start.methods.values(), end.methods.values()
    block = Block(arg_types=[a.type for a in first.body.block.args])
    known: dict[SSAValue, SSAValue] = {}
    for func in (first, last):
        known.update(zip(func.body.block.args, block.args, strict=True))
    for argument, old in zip(block.args, first.body.block.args, strict=True):
        argument.name_hint = old.name_hint
    _body(first, known, block, 0)
    _body(last, known, block, 10_000)
    pairs = [[known[v] for _, v in observed(p)] for p in (start, end)]
    block.add_op(ReturnOp(*pairs[0], *pairs[1]))
    types = [[a.type for a in block.args], [v.type for side in pairs for v in side]]
    func = FuncOp("equal", (types[0], types[1]), Region(block))
    if ranges := first.attributes.get("stepwell.ranges"):
        func.attributes["stepwell.ranges"] = ranges
    return to_text(ModuleOp([func]))


def edited(case: Honest, edit: tuple[str, str]) -> str:
    """The last program's text, made wrong."""
    old, new = edit
    text = str(case.program)
    assert old in text, old
    return text.replace(old, new)


def wrong_end(edit: str, label: str | None, *, is_said: bool = True) -> Tamper:
    """A last program that is wrong, and a statement of a label that it is right."""

    def tamper(case: Honest, held: Json) -> Input | None:
        if edit not in case.edits:
            return None
        text = edited(case, case.edits[edit])
        held["end"] = text if is_said else held["end"]
        store = case.program.weights
        try:
            program = stepwell.Program.parse(text, store)
            if label is not None:
                start = stepwell.Program.parse(held["start"], store)
                entry = dict(first_entry(held))
                entry |= {"by": label, "statement": claim(start, program), "rule": None}
                held["entries"].append(entry)
        except (StepwellError, KeyError, ValueError):
            program = None if is_said else case.program
            if not is_said or label is not None:
                return None
        return Input(written(held), case.source, program)

    return tamper


for _edits in EDITS.values():
    for _edit in _edits:
        kind(f"the last program: {_edit}")(wrong_end(_edit, None))
PROVOKED = ("an operator", "an aliased result", "a branch", "no softmax", "a difference",
            "an addend")  # fmt: skip
for _label in LABELS:

    @kind(f"a false claim by {_label!r}")
    def _claimed(case: Honest, held: Json, label: str = _label) -> Input | None:
        edit = next((each for each in PROVOKED if each in case.edits), "")
        return wrong_end(edit, label)(case, held)


@kind("a false claim by every known rule")
def _ruled(case: Honest, held: Json) -> Input | None:
    from stepwell.validation.rules.kept_verdicts import known

    edit = next((each for each in PROVOKED if each in case.edits), "")
    made = wrong_end(edit, "rule")(case, held)
    if made is None or isinstance(made, bytes):
        return None
    held = json.loads(made.data)
    false = held["entries"].pop()
    held["entries"] += [{**false, "rule": rule} for rule in known()]
    return Input(written(held), made.source, made.program)


@kind("a last program other than the certificate's")
def _other_end(case: Honest, held: Json) -> Input | None:
    edit = next((each for each in PROVOKED if each in case.edits), "")
    return wrong_end(edit, None, is_said=False)(case, held)


def wrong_start(old: str, new: str) -> Tamper:
    """A first text that is not the source's."""

    def tamper(case: Honest, held: Json) -> bytes | None:
        text = re.sub(old, new, held["start"], count=1)
        if text == held["start"]:
            return None
        held["start"] = text
        return written(held)

    return tamper


for _name, (_old, _new) in {
    "an operator": (
        r"aten\.(softmax\.int\((%v\d+), -1\)|relu\.default|neg\.default)",
        r"aten.tanh",
    ),
    "an axis": (r"softmax\.int\((%v\d+), -1\)", r"softmax.int(\1, 0)"),
    "a number": (r"mul\.Scalar\((%v\d+), 2\)", r"mul.Scalar(\1, 3)"),
    "a sum": (r"sum\.dim_IntList\((%v\d+), \[0\]", r"sum.dim_IntList(\1, [1]"),
    "a type of an input": (r"(\(%v\d+): tensor<3x4xf32>", r"\1: tensor<3x4xf64>"),
    "a size of an input": (r"(\(%v\d+): tensor<3x4xf32>", r"\1: tensor<4x4xf32>"),
    "a lost update": (r"\n.*stepwell\.update.*", ""),
    "a name of the method": ("@forward", "@other"),
    "a value twice": (r"%v2 =", "%v1 ="),
    "a scale": (r"per_tensor\.default\((%v\d+), 0\.05", r"per_tensor.default(\1, 0.06"),
    "a range": ("2 <= s77", "3 <= s77"),
    "an unnamed value": (r"%v0", "%zero"),
    "an infinite loop of names": (r"%v\d+ =", "%v10000000000 ="),
}.items():
    kind(f"the first text: {_name}")(wrong_start(_old, _new))


# -- weights of programs ---------------------------------------------------------------------------


def _first_bit(value: torch.Tensor) -> None:
    value.view(torch.uint8)[0] ^= 1


def _fill(number: float) -> Callable[[torch.Tensor], Any]:
    return lambda value: value[:1].copy_(torch.tensor(number).to(value.dtype))


CHANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "one bit": _first_bit, "a NaN": _fill(float("nan")), "an infinity": _fill(float("inf")),
    "a denormal": _fill(1e-40), "the sign": lambda v: v.copy_(-v) if v.is_floating_point() else
    v.add_(1), "half of it": lambda v: v[: len(v) // 2 + 1].add_(1), "the order": lambda v:
    v.copy_(v.flip(0).add(1)), "all of it": _fill(0.125),
}  # fmt: skip


def wrong_weight(which: str, change: Callable[[torch.Tensor], Any]) -> Tamper:
    """Other elements of a weight that a program names."""

    def tamper(case: Honest, held: Json) -> Input | None:
        programs = {"source": case.source, "last": case.program}
        program = programs[which].clone()
        keys = sorted(programs[which].used_weights())
        if not keys:
            return None
        key = keys[-1]
        value = program.weights.get(key).clone()
        before = value.clone()
        change(value.reshape(-1))
        if before.view(torch.uint8).equal(value.view(torch.uint8)):
            return None
        program.weights.entries[key] = Given(value)
        program.weights._hashes.pop(key, None)
        programs[which] = program
        return Input(written(held), programs["source"], programs["last"])

    return tamper


for _which in ("source", "last"):
    for _name, _change in CHANGES.items():
        kind(f"a weight of the {_which} program: {_name}")(wrong_weight(_which, _change))


@kind("a weight of the last program: of another type")
def _other_type(case: Honest, held: Json) -> Input | None:
    keys = sorted(case.program.used_weights())
    if not keys:
        return None
    program = case.program.clone()
    program.weights.entries[keys[0]] = Given(case.program.weights.get(keys[0]).double())
    program.weights._hashes.pop(keys[0], None)
    return Input(written(held), case.source, program)


@kind("another model's source")
def _other_source(case: Honest, held: Json) -> Input | None:
    names = [name for name in PROGRAMS if honest(name) is not case]
    return Input(written(held), honest(names[0]).source, case.program)


@kind("another model's last program")
def _other_program(case: Honest, held: Json) -> Input | None:
    names = [name for name in PROGRAMS if honest(name) is not case]
    return Input(written(held), case.source, honest(names[0]).program)


@kind("another model's certificate")
def _other_certificate(case: Honest, held: Json) -> Input | None:
    names = [name for name in PROGRAMS if honest(name) is not case]
    return Input(honest(names[1]).certificate.to_json().encode(), case.source, case.program)


# -- numbers of quantized kernels, off by one ------------------------------------------------------


def _next(number: str) -> str:
    return repr(torch.nextafter(torch.tensor(float(number)), torch.tensor(1.0)).item())


def _by(step: int) -> Callable[[str], str]:
    return lambda number: str(int(number) + step)


NUMBERS: dict[str, tuple[str, Callable[[str], str]]] = {
    "a multiplier": (r"(_multipliers? = (?:array<i\d+: )?)(\d+)", _by(1)),
    "a shift": (r"(_shifts? = (?:array<i\d+: )?)(-?\d+)", _by(-1)),
    "an offset of an input": (r"(input_offset = )(-?\d+)", _by(1)),
    "an offset of a result": (r"(output_offset = )(-?\d+)", _by(1)),
    "a zero point of a kernel": (r"(zero_point = )(-?\d+)", _by(-1)),
    "the least of a result": (r"(activation_min = )(-?\d+)", _by(1)),
    "the most of a result": (r"(activation_max = )(-?\d+)", _by(-1)),
    "a zero point of a type": (r"(<i8:f32, [\d.e-]+:)(-?\d+)", _by(1)),
    "a scale of a type": (r"(<i8(?:<-127:127>)?:f32, )([\d.e-]+)", _next),
    "a scale of a channel": (r"(:f32:0, \{)([\d.e-]+)", _next),
    "a rounding": (r"(rounding_mode = )(SINGLE_ROUND)", lambda _: "DOUBLE_ROUND"),
    "a sign of bytes": (r"(output_unsigned = )(false)", lambda _: "true"),
}
"""By name, a pattern of the last program with a number as its second group, and another for it."""
FORGERIES = ("program", "statements", "statements, run", "statements, by values", "a claim, run")
LABEL = {"statements, run": "run", "statements, by values": "values"}


def forged(how: str, case: Honest, held: Json, edit: Callable[[str], str]) -> Input | None:
    """A last program that is off, with what a certificate must say for it."""
    store = case.program.weights
    held["end"] = edit(str(case.program))
    for entry in held["entries"]:
        text = edit(entry["statement"]) if how.startswith("statements") else entry["statement"]
        if text != entry["statement"]:
            entry |= {"statement": text, "by": LABEL.get(how, entry["by"])}
    try:
        program = stepwell.Program.parse(held["end"], store)
        if how == "a claim, run":
            start = stepwell.Program.parse(held["start"], store)
            row = {**first_entry(held), "by": "run", "rule": None}
            held["entries"].append({**row, "statement": claim(start, program)})
    except StepwellError:
        program = None
    return Input(written(held), case.source, program)


def off(how: str, which: int, pattern: str, change: Callable[[str], str]) -> Tamper:
    """A number of the last program that is off, in all its occurrences."""

    def tamper(case: Honest, held: Json) -> Input | None:
        found = list(re.finditer(pattern, str(case.program)))
        if "bytes" not in case.name or not found:
            return None
        match = found[which]
        wrong = match[1] + change(match[2])
        return forged(how, case, held, lambda text: text.replace(match[0], wrong))

    return tamper


def other_constant(how: str, dtype: torch.dtype, which: int) -> Tamper:
    """Another constant for one of the last program, off by one in one element."""

    def tamper(case: Honest, held: Json) -> Input | None:
        store = case.program.weights
        keys = [key for key in case.program.used_weights() if store.get(key).dtype == dtype]
        if "bytes" not in case.name or not keys:
            return None
        value = store.get(keys[which]).clone(memory_format=torch.contiguous_format)
        value.view(-1)[0] ^= 1
        key = store.constant(value, "constant")
        data = base64.b64encode(value.numpy().tobytes()).decode()
        row = {"digest": store.content_hash(key), "shape": list(value.shape), "data": data}
        held["weights"][key] = {**row, "dtype": str(dtype).removeprefix("torch.")}
        old, new = f'"{keys[which]}"', f'"{key}"'
        return forged(how, case, held, lambda text: text.replace(old, new))

    return tamper


for _how in FORGERIES:
    for _which in (0, -1) if _how == "statements" else (0,):
        for _name, (_pattern, _new) in NUMBERS.items():
            kind(f"off by one, {_how}: {_name}, {_which}")(off(_how, _which, _pattern, _new))
        for _dtype in (torch.int8, torch.int32):
            kind(f"off by one, {_how}: a constant of {_dtype}, {_which}")(
                other_constant(_how, _dtype, _which)
            )


# -- what takes time or memory ---------------------------------------------------------------------


def _claims(text: str, by: str = "bits") -> Tamper:
    """One more statement."""

    def change(held: Json) -> None:
        entry = dict(first_entry(held))
        held["entries"].append(entry | {"by": by, "statement": text, "rule": None})

    return with_(change)


def _equal(*lines: str, of: str = "tensor<f32>") -> str:
    body = "\n".join(lines)
    return f"builtin.module {{\nfunc.func @equal() -> ({of}, {of}) {{\n{body}\n}}\n}}\n"


_FOREVER = _equal(
    "%v900001 = aten.full.default([], 1.0) : () -> tensor<f32>",
    "%v900002 = control.while_loop(%v900001) : (tensor<f32>) -> tensor<f32> {",
    "^bb0(%a: tensor<f32>):",
    "%b = aten.gt.Scalar(%a, 0) : (tensor<f32>) -> tensor<i1>",
    "control.yield %b : tensor<i1>",
    "} do {",
    "^bb0(%a: tensor<f32>):",
    "control.yield %a : tensor<f32>",
    "}",
    "func.return %v900002, %v900001 : tensor<f32>, tensor<f32>",
)
_HUGE = "tensor<1000000000000xf32>"
for _label in ("bits", "run", "values"):
    kind(f"a statement that never ends, by {_label!r}")(_claims(_FOREVER, _label))
    kind(f"a statement of a terabyte, by {_label!r}")(
        _claims(
            _equal(
                f"%v900001 = aten.full.default([1000000000000], 1.0) : () -> {_HUGE}",
                f"func.return %v900001, %v900001 : {_HUGE}, {_HUGE}",
                of=_HUGE,
            ),
            _label,
        )
    )
    kind(f"a statement of a terabyte that says it is small, by {_label!r}")(
        _claims(
            _equal(
                "%v900001 = aten.full.default([1000000000000], 1.0) : () -> tensor<f32>",
                "func.return %v900001, %v900001 : tensor<f32>, tensor<f32>",
            ),
            _label,
        )
    )
for _name, _number in {"many digits": "9" * 10_000, "an exponent": "1.0e+99999999"}.items():
    kind(f"a number of {_name} in a statement")(
        _claims(
            _equal(
                f"%v900001 = aten.full.default([], {_number}) : () -> tensor<f32>",
                "%v900002 = aten.full.default([], 0.0) : () -> tensor<f32>",
                "func.return %v900001, %v900002 : tensor<f32>, tensor<f32>",
            )
        )
    )
_SIZE = 'tensor<?xf32, #stepwell.shape<["{}"]>>'
for _name, _size in {
    "enormous": "s0*1000000000000", "nested": "(" * 5000 + "s0" + ")" * 5000,
    "a power": "s0**s0**s0", "no size": "__import__('os')",
}.items():  # fmt: skip
    _of = _SIZE.format(_size)
    kind(f"a size that is {_name}")(
        _claims(
            f"builtin.module {{\nfunc.func @equal(%v0: {_of}) -> ({_of}, {_of}) {{\n"
            f"func.return %v0, %v0 : {_of}, {_of}\n}}\n}}\n"
        )
    )


# -- all of them -----------------------------------------------------------------------------------


def sample(every: int) -> Iterator[tuple[str, str]]:
    """Each kind, on one program that has something of it, or on all."""
    for at, name in enumerate(KINDS):
        named = [c for c in PROGRAMS if c.startswith("bytes") == name.startswith("off by one")]
        cases = [case for case in named if applied(name, honest(case)) is not None]
        if every:
            yield from ((name, case) for case in cases)
        elif cases:
            yield name, cases[at % len(cases)]
