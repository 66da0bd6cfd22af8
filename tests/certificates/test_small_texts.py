"""Small certificates that were written by hand: what the checker counts, and what it refuses."""

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.weight_descriptions import described
from stepwell.ir.weights import WeightStore
from stepwell.validation.certificates.application import by_hash
from stepwell.validation.certificates.audit import verify_certificate
from stepwell.validation.certificates.certificate import Certificate
from stepwell.validation.certificates.checker import check as checking
from stepwell.validation.certificates.checker.check import (
    Checked,
    Definition,
    Entry,
    EqualityGraph,
    Text,
    check,
    digest_of,
)
from stepwell.validation.certificates.checker.statements import ASSUMED, GIVEN, NARROWED, TRIED

by_hash()  # The recipes of weights.
R = "tensor<4xf32>"
ADD = f"({R}, {R}) -> {R}"
ONE = f"({R}) -> {R}"
NEG, SCALED = f"aten.neg.default(%v0) : {ONE}", f"aten.mul.Scalar(%v0, -1.0) : {ONE}"


def method(*lines: str, takes: str = f"%v0: {R}", gives: str = R, name: str = "forward") -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"  func.func @{name}({takes}) -> {gives} {{\n{body}\n  }}\n"


def module(*methods: str) -> str:
    return 'builtin.module attributes {stepwell.level = "aten"} {\n' + "".join(methods) + "}\n"


def program(*lines: str, **options: Any) -> str:
    return module(method(*lines, **options))


def statement(*lines: str, takes: str = f"%v0: {R}", of: str = R, **options: Any) -> str:
    options = {"name": "equal", "gives": f"({of}, {of})"} | options
    return f"builtin.module {{\n{method(*lines, takes=takes, **options)}}}\n"


def one(op: str, name: str = "%v1") -> str:
    """A program of one op."""
    return program(f"{name} = {op}", f"func.return {name} : {R}")


def both(left: str, right: str) -> str:
    """The statement that two ops are equal."""
    return statement(f"%v1 = {left}", f"%v2 = {right}", f"func.return %v1, %v2 : {R}, {R}")


def entry(text: str = "", by: str = "reals", rewrite: str = "negate") -> Entry:
    return Entry("a step", rewrite, "aten.neg.default", None, by, text)


HELD = WeightStore()
for _name in "st":
    HELD.add(_name, torch.arange(4.0))
HELD.add("m", torch.arange(16.0).reshape(2, 8))
TURNED = HELD.derive("transpose", ["m"], order=[1, 0])
ROWS = described(HELD, list(HELD), (), lambda _: False)


def found(start: str, end: str, *entries: Entry, **given: Any) -> Checked:
    """What the checker says of a certificate."""
    text = Certificate("xnnpack", start, end, entries, ROWS).to_json()
    return check(text, 5, given.get("program"), given.get("source"))


def fault(*given: Any, **options: Any) -> str:
    """The first fault of a certificate that is refused."""
    faults = found(*given, **options).faults
    assert faults
    return faults[0]


# -- what holds ------------------------------------------------------------------------------------


def test_statements_are_counted_by_what_became_of_them() -> None:
    entries = (
        entry(both(NEG, SCALED)),
        entry(both(NEG, SCALED), "follows"),
        entry(both(NEG, SCALED), "run"),
        entry("", "step"),
    )
    made = found(one(NEG), one(SCALED), *entries)
    assert not made.faults
    assert (made.proved, made.implied, made.recipes, len(made.dropped)) == (1, 2, 0, 0)
    assert [(number, row.by) for number, row, *_ in made.assumptions] == [(3, "run")]
    assert str(made.last) == str(Program.parse(one(SCALED)))


def test_nothing_is_stated_of_a_program_that_did_not_change() -> None:
    assert not found(one(NEG), one(NEG)).faults


def test_values_of_equal_operands_are_equal() -> None:
    after = f"%v3 = aten.exp.default(%v1) : {ONE}"
    start = program(f"%v1 = {NEG}", after, f"func.return %v3 : {R}")
    end = program(f"%v9 = {SCALED}", after.replace("%v1", "%v9"), f"func.return %v3 : {R}")
    assert not found(start, end, entry(both(NEG, SCALED))).faults
    assert "does not follow" in fault(start, end)


def test_later_statements_read_values_of_earlier_ones() -> None:
    twice = f"aten.add.Tensor(%v2, %v2) : {ADD}"
    doubled = f"aten.mul.Scalar(%v2, 2.0) : {ONE}"
    later = statement(f"%v3 = {twice}", f"%v4 = {doubled}", f"func.return %v3, %v4 : {R}, {R}",
                      takes=f"%v2: {R}")  # fmt: skip
    start = program(f"%v1 = {NEG}", f"%v8 = aten.add.Tensor(%v1, %v1) : {ADD}",
                    f"func.return %v8 : {R}")  # fmt: skip
    end = program(f"%v2 = {SCALED}", f"%v4 = {doubled}", f"func.return %v4 : {R}")
    assert not found(start, end, entry(both(NEG, SCALED)), entry(later)).faults
    assert "%v2 is not a known value" in fault(start, end, entry(later))


def test_classes_of_values_are_closed_under_congruence() -> None:
    graph = EqualityGraph()
    a, b, c, fa, fb, fc, gg = (graph.new() for _ in range(7))
    for operand, result in ((a, fa), (b, fb), (c, fc)):
        graph.define(Definition("f", (operand,), (result,)))
    graph.define(Definition("g", (fa, fb), (gg,)))
    assert not graph.are_equal((fa,), (fb,))
    graph.unite([(a, b)])
    assert graph.are_equal((fa, a), (fb, b))
    assert not graph.are_equal((fa,), (fc,))
    graph.unite([(c, b)])
    assert graph.are_equal((fa, fb), (fc, fc))
    assert not graph.are_equal((fa,), (a,))
    same = graph.find(Definition("g", (fc, fc), ()))
    assert same is not None
    assert same.results == (gg,)
    assert graph.find(Definition("g", (fc, a), ())) is None
    assert graph.find(Definition("h", (fc, fc), ())) is None


def test_two_random_draws_are_not_one_value() -> None:
    graph = EqualityGraph()
    one, other = graph.new(), graph.new()
    for result in (one, other):
        graph.define(Definition(f"{checking.ONCE}rand", (), (result,)))
    assert not graph.are_equal((one,), (other,))
    graph.unite([(one, other)])
    assert graph.are_equal((one,), (other,))


def test_programs_of_two_methods() -> None:
    second = method(f"%v21 = aten.exp.default(%v20) : {ONE}", f"func.return %v21 : {R}",
                    takes=f"%v20: {R}", name="second")  # fmt: skip
    start = module(method(f"%v1 = {NEG}", f"func.return %v1 : {R}"), second)
    end = module(method(f"%v2 = {SCALED}", f"func.return %v2 : {R}"), second)
    assert not found(start, end, entry(both(NEG, SCALED))).faults
    assert "does not follow" in fault(start, end)
    swapped = end.replace("@forward", "@q").replace("@second", "@forward").replace("@q", "@second")
    assert "does not follow" in fault(start, swapped, entry(both(NEG, SCALED)))


def test_a_weight_is_assumed_if_its_source_is_in_no_program() -> None:
    text = program(f'%v1 = stepwell.weight <"{TURNED}"> "constant" : tensor<8x2xf32>',
                   "func.return %v1 : tensor<8x2xf32>", gives="tensor<8x2xf32>")  # fmt: skip
    alone = WeightStore()
    alone.add(TURNED, HELD.get(TURNED).contiguous())
    shown = described(HELD, [TURNED], [TURNED], lambda _: False)
    made = Certificate("xnnpack", text, text, (), shown).to_json()
    assert check(made, 5, Program.parse(text, alone)).recipes == 1
    assert check(made, 5, Program.parse(text, alone), Program.parse(text, HELD)).recipes == 0
    other = WeightStore()
    other.add(TURNED, HELD.get(TURNED) + 1)
    assert "differs" in check(made, 5, Program.parse(text, other)).faults[0]


def test_ranges_of_sizes_are_those_of_the_first_program() -> None:
    kind = 'tensor<?xf32, #stepwell.shape<["s0"]>>'
    known = 'attributes {stepwell.ranges = ["2 <= s0 <= 8"]} '
    start = program(f"%v1 = {NEG.replace(R, kind)}", f"func.return %v1 : {kind}",
                    takes=f"%v0: {kind}", gives=kind)  # fmt: skip
    for text in (start, start.replace(f"-> {kind} {{", f"-> {kind} {known}{{", 1)):
        made = checking._Check(Text.from_json(Certificate("x", text, text, (), ROWS).to_json()), 5)
        made.begin([])
        claim = statement(f"%v1 = {NEG.replace(R, kind)}", f"func.return %v1, %v1 : {kind}, {kind}",
                          takes=f"%v0: {kind}", of=kind)  # fmt: skip
        for given in (claim, claim.replace(") {", ") " + known.replace("8", "3") + "{", 1)):
            case = Program.parse(given, made.store)
            made.check_form(case)
            wanted = made.start.method("forward").attributes.get("stepwell.ranges")
            assert case.method("equal").attributes.get("stepwell.ranges") == wanted


def test_certificates_are_not_changed_in_place() -> None:
    made = Certificate("xnnpack", "", "", (entry(),), {})
    for held, name in ((made, "start"), (made.entries[0], "by")):
        with pytest.raises(FrozenInstanceError):
            setattr(held, name, "bits")


# -- the file --------------------------------------------------------------------------------------


def written(**changes: Any) -> str:
    held = json.loads(Certificate("xnnpack", one(NEG), one(NEG), (), {}).to_json()) | changes
    held.pop("digest")
    return json.dumps({**held, "digest": digest_of(held)})


@pytest.mark.parametrize(
    ("text", "why"),
    {
        "another digest": (written().replace("relu", "neg").replace("neg", "abs"), "its digest"),
        "another version": (written(version=1), "another version"),
        "a key twice": (written().replace("{", '{"target": "xnnpack", ', 1), "key twice"),
        "a field that is not there": (written(more=1), "and no others"),
        "an entry's field": (written(entries=[{"step": "a"}]), "rewrite"),
        "a list": ("[]", "no certificate"),
        "no JSON": ("{", "no certificate"),
        "nested deeply": ("[" * 100_000, "no certificate"),
    }.values(),
)
def test_a_file_that_is_no_certificate_is_refused(text: str, why: str) -> None:
    with pytest.raises(StepwellError, match="this is no certificate") as raised:
        Text.from_json(text)
    assert why in str(raised.value)


def test_a_fault_is_one_line_that_can_be_written() -> None:
    made = found(one(NEG), one(NEG), entry(both(NEG, NEG), "x", rewrite="\ud800 a\nb"))
    assert made.faults
    assert all(text.encode() and "\n" not in text for text in made.faults)
    assert made.faults[0].startswith("application 1, \\ud800 a")


def test_an_exception_without_a_message_is_named() -> None:
    made: Any = checking._Check(Text("xnnpack", "", "", (), {}), 5)

    def fails() -> None:
        raise KeyError

    assert made.tried("here", list)
    assert not made.tried("here", fails)
    assert not made.tried("here", list)
    assert made.found.faults == ["here: KeyError()"]


# -- programs --------------------------------------------------------------------------------------

WRONG_TYPE = f"%v7 = aten.relu.default(%v0) : ({R}) -> tensor<5xf32>"
LONG = "x" * 60


@pytest.mark.parametrize(
    ("start", "end", "why"),
    [
        (program(WRONG_TYPE, f"func.return %v0 : {R}"), program(f"func.return %v0 : {R}"), "texts"),
        (program(f"func.return %v0 : {R}"), program(WRONG_TYPE, f"func.return %v0 : {R}"), "texts"),
        (one(f"xnnpack.abs(%v0) : {ONE}"), one(NEG), "the texts: "),
        (one(NEG), one(f"xnnpack.abs(%v0) : {ONE}"), "the texts: "),
        (one(NEG, "%x"), one(NEG), "%x has no number, or is defined twice"),
        (one(NEG, f"%{LONG}"), one(NEG), f"%{'x' * 40} has no number"),
        (one(NEG, "%v1"), one(SCALED), "the last program: it does not follow from"),
        (module(method(f"func.return %v0 : {R}"), method(f"func.return %v0 : {R}", name="g")),
         one(NEG), "%v0 has no number, or is defined twice"),
        (one(NEG), module(method(f"func.return %v0 : {R}", name="g")), "another signature"),
    ],
)  # fmt: skip
def test_a_wrong_program_is_refused(start: str, end: str, why: str) -> None:
    assert why in fault(start, end)


def test_the_texts_must_be_those_of_the_programs() -> None:
    honest, other = Program.parse(one(NEG)), Program.parse(one(SCALED))
    assert not found(one(NEG), one(NEG), program=honest, source=honest).faults
    assert fault(one(NEG), one(NEG), source=other).startswith("the source: ")
    made = found(one(NEG), one(NEG), program=other)
    assert made.faults == ["the last program: it does not follow from the first program"]


DRAW = "aten.rand.default([4]) : () -> tensor<4xf32>"
DRAWS = (f"%v1 = {DRAW}", f"%v2 = aten.bernoulli.default(%v1) : {ONE}")
ASSERTED = (f"%v5 = aten.gt.Scalar(%v0, 0) : ({R}) -> tensor<4xi1>",
            "aten._assert_async.default(%v5) : (tensor<4xi1>) -> ()")  # fmt: skip
CHECKED = f"aten._assert_tensor_metadata.default(%v0, dtype = f32) : ({R}) -> ()"
UPDATE = f'stepwell.update <"s">, %v0 : {R}'


def ended(*lines: str) -> str:
    return program(*lines, f"func.return %v0 : {R}")


@pytest.mark.parametrize(
    ("start", "end", "why"),
    [
        (ended(*DRAWS), ended(*DRAWS), ""),
        (ended(*DRAWS), ended(), "aten.rand.default of the first program is not there"),
        (ended(*DRAWS), ended(*DRAWS[:1]), "aten.bernoulli.default of the first"),
        (ended(*DRAWS[:1]), ended(*DRAWS), "an effect of the last program is not in the first"),
        (ended(*DRAWS), ended(DRAWS[0], DRAWS[1].replace("%v1)", "%v0)")), "aten.bernoulli"),
        (ended(UPDATE), ended(UPDATE), ""),
        (ended(UPDATE), ended(), "other state"),
        (ended(UPDATE), ended(UPDATE.replace('"s"', '"t"')), "other state"),
        (ended(), ended(*ASSERTED), "an effect of the last program"),
    ],
)
def test_effects_are_those_of_the_first_program(start: str, end: str, why: str) -> None:
    assert (why in fault(start, end)) if why else not found(start, end).faults


def test_draws_are_read_where_they_are_drawn() -> None:
    lines = (*DRAWS, f"%v3 = {DRAW}")
    start = program(*lines, f"func.return %v1 : {R}")
    assert not found(start, start).faults
    assert "does not follow" in fault(start, program(*lines, f"func.return %v3 : {R}"))
    assert "does not follow" in fault(start, program(*lines, f"func.return %v2 : {R}"))


def test_assertions_that_were_dropped_are_counted() -> None:
    for lines, count in ((ASSERTED, 1), ((CHECKED,), 0), ((*ASSERTED, CHECKED, ASSERTED[1]), 2)):
        made = found(ended(*lines), ended())
        assert not made.faults
        assert len(made.dropped) == count
    assert not found(ended(*ASSERTED, CHECKED), ended(*ASSERTED, CHECKED)).dropped


# -- statements ------------------------------------------------------------------------------------

PAIR = f"func.return %v1, %v2 : {R}, {R}"
STATED = (f"%v1 = {NEG}", f"%v2 = {SCALED}")


@pytest.mark.parametrize(
    ("text", "why"),
    {
        "another name": (statement(*STATED, PAIR, name="other"), "its method is not @equal"),
        "no results": (statement(*STATED, "func.return", gives="()"), "its results are no pairs"),
        "an odd number of results": (
            statement(*STATED, f"func.return %v1, %v2, %v1 : {R}, {R}, {R}",
                      gives=f"({R}, {R}, {R})"), "its results are no pairs"),
        "a type that does not follow": (
            statement(WRONG_TYPE, *STATED, PAIR), "tensor<5xf32>"),
        "an unknown input": (statement(*STATED, PAIR, takes=f"%v0: {R}, %v77: {R}"),
                             "%v77 is not a known value"),
        "an input of another type": (
            statement("%v2 = aten.neg.default(%v0) : (tensor<5xf32>) -> tensor<5xf32>",
                      "func.return %v2, %v0 : tensor<5xf32>, tensor<5xf32>",
                      takes="%v0: tensor<5xf32>", of="tensor<5xf32>"), "%v0 is tensor<4xf32>"),
        "another definition": (statement(f"%v1 = {SCALED}", f"%v2 = {NEG}", PAIR),
                               "%v1 does not match the program's definition"),
        "an op without a value": (statement(*STATED, CHECKED, PAIR),
                                  "aten._assert_tensor_metadata.default gives no value"),
        "a pair of two types": (
            statement(*STATED, "%v3 = aten.view.default(%v1, [2, 2]) : (tensor<4xf32>) -> "
                      "tensor<2x2xf32>", f"func.return %v1, %v3 : {R}, tensor<2x2xf32>",
                      gives=f"({R}, tensor<2x2xf32>)"), "is claimed to be equal to"),
        "a name without a number": (statement(f"%v1 = {NEG}", f"%x = {SCALED}",
                                              f"func.return %v1, %x : {R}, {R}"), "%x has no"),
        "two methods": (f"{both(NEG, SCALED).removesuffix('}' + chr(10))}"
                        f"{method('func.return', gives='()', name='more')}}}\n", "application 1"),
        "a false claim": (both(NEG, f"aten.relu.default(%v0) : {ONE}"), "it is not so"),
        "a false pair of several": (
            statement(*STATED, f"%v3 = aten.abs.default(%v0) : {ONE}",
                      f"func.return %v1, %v1, %v2, %v3 : {R}, {R}, {R}, {R}",
                      gives=f"({R}, {R}, {R}, {R})"), "it is not so"),
    }.values(),
)  # fmt: skip
def test_a_wrong_statement_is_refused(text: str, why: str) -> None:
    assert why in fault(one(NEG), one(SCALED), entry(text))
    assert "application 1, negate: " in fault(one(NEG), one(SCALED), entry(text))


@pytest.mark.parametrize(
    "by", ["bits", "step", "nowhere", "follows", "", "bits" + TRIED, "bits" + GIVEN]
)
def test_a_label_that_is_no_proof_of_it_is_refused(by: str) -> None:
    assert "application 1" in fault(one(NEG), one(SCALED), entry(both(NEG, SCALED), by))


@pytest.mark.parametrize("by", ["rule", "values", "run", "nothing"])
def test_what_is_assumed_is_listed(by: str) -> None:
    made = found(one(NEG), one(SCALED), entry(both(NEG, SCALED), by))
    assert not made.faults
    assert (made.proved, made.implied, len(made.assumptions)) == (0, 0, 1)


@pytest.mark.parametrize("end", ["", *ASSUMED, NARROWED + TRIED, "".join(ASSUMED)])
def test_a_statement_that_claims_less_than_is_so_is_proved(end: str) -> None:
    made = found(one(NEG), one(SCALED), entry(both(NEG, SCALED), f"reals{end}"))
    assert not made.faults
    assert made.proved == 1


@pytest.mark.parametrize("by", ["reals", *(f"reals{end}" for end in ASSUMED)])
def test_the_audit_tells_the_assumption_that_was_made_not_the_one_that_is_written(by: str) -> None:
    floats = R.replace("4xf32", '?xf32, #stepwell.shape<["n"]>')
    of = {"takes": f"%v0: {floats}", "gives": floats}
    neg, scaled = (f"{op.partition(' : ')[0]} : ({floats}) -> {floats}" for op in (NEG, SCALED))
    start, end = (
        program(f"%v1 = {op}", f"func.return %v1 : {floats}", **of) for op in (neg, scaled)
    )
    pair = f"func.return %v1, %v2 : {floats}, {floats}"
    text = statement(f"%v1 = {neg}", f"%v2 = {scaled}", pair, takes=of["takes"], of=floats)
    made = verify_certificate(Certificate("xnnpack", start, end, (entry(text, by),), ROWS), seed=5)
    assert made.ok, made
    assert made.trusted == {"sizes": 1}


@pytest.mark.parametrize("by", ["reals", "reals" + TRIED, "reals" + NARROWED + TRIED])
def test_the_audit_tells_every_assumption_that_was_made(by: str) -> None:
    wide = 'tensor<?xi64, #stepwell.shape<["n"]>>'
    of = {"takes": f"%v0: {wide}", "gives": wide}
    narrow = wide.replace("i64", "i32")
    ops = [
        f"%v1 = aten._to_copy.default(%v0, dtype = i32) : ({wide}) -> {narrow}",
        f"%v2 = aten._to_copy.default(%v1, dtype = i64) : ({narrow}) -> {wide}",
    ]
    same = f"%v3 = aten.clone.default(%v0) : ({wide}) -> {wide}"
    start = program(*ops, f"func.return %v2 : {wide}", **of)
    end = program(same, f"func.return %v3 : {wide}", **of)
    pair = f"func.return %v2, %v3 : {wide}, {wide}"
    text = statement(*ops, same, pair, takes=of["takes"], of=wide)
    made = verify_certificate(Certificate("xnnpack", start, end, (entry(text, by),), ROWS), seed=5)
    assert made.ok, made
    assert made.trusted == {"overflow": 1, "sizes": 1}


MANY: dict[str, tuple[str, int]] = {
    "results": (statement("%v3 = aten.full.default([3, 7], 1.0) : () -> tensor<3x7xf32>", *STATED,
                          PAIR), 21 + 8),
    "several": (statement("%v3, %v4 = aten.max.dim(%v0, 0) : (tensor<4xf32>) -> (tensor<f32>, "
                          "tensor<i64>)", *STATED, PAIR), 2 + 8),
    "a weight": (statement(f'%v3 = stepwell.weight <"s"> "parameter" : {R}', *STATED, PAIR), 8 + 8),
    "a weight that is derived": (
        statement(f'%v3 = stepwell.weight <"{TURNED}"> "constant" : tensor<8x2xf32>', *STATED,
                  PAIR),
        3 * 16 + 8),
    "a branch": (
        statement(
            "%v5 = aten.full.default([], true, dtype = i1) : () -> tensor<i1>",
            f"%v3 = control.cond %v5(%v0) : (tensor<i1>, {R}) -> {R} {{",
            f"^bb0(%a: {R}):", f"%b = {NEG.replace('%v0', '%a')}", f"control.yield %b : {R}",
            "} else {", f"^bb0(%a: {R}):", f"control.yield %a : {R}", "}", *STATED, PAIR),
        1 + 4 * 4 + 8),
}  # fmt: skip


@pytest.mark.parametrize(("text", "count"), MANY.values())
def test_elements_of_a_statement_are_counted(
    text: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "MOST_ELEMENTS", count + 4)
    assert not found(one(NEG), one(SCALED), entry(text)).faults
    monkeypatch.setattr(checking, "MOST_ELEMENTS", count + 3)
    assert f"its values have {count + 4} elements" in fault(one(NEG), one(SCALED), entry(text))
