"""Enumeration finds every equality of its terms, judges it by today's flow, and writes rules."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("z3", reason="the extra `prove` is not installed")

from stepwell.cost_model.discovery import running
from stepwell.cost_model.discovery.candidates import flows, program_of
from stepwell.cost_model.discovery.enumeration import Candidate, Enumeration, matches, told
from stepwell.cost_model.discovery.evaluation import Evaluator, fingerprint
from stepwell.cost_model.discovery.grammar import Grammar
from stepwell.cost_model.discovery.proofs import decided, proved_rule
from stepwell.cost_model.discovery.tables import grammars
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import f32
from stepwell.ir.types import tensor

SIZES = ({"A": 512},)


def grammar(*nodes: str, level: str = "xnnpack", most: int = 2, inputs: int = 2) -> Grammar:
    given = ("f32 A",) * inputs
    return Grammar("test", "xnnpack", level, given, nodes, most, (1,), SIZES)


def found(*nodes: str, **options: object) -> tuple[Enumeration, dict[str, str]]:
    made = Enumeration(grammar(*nodes, **options))  # pyright: ignore[reportArgumentType]
    made.run()
    pairs = {told(c.before, made.nodes): told(c.after, made.nodes) for c in made.candidates}
    return made, pairs


def test_all_terms_of_a_small_grammar_are_enumerated() -> None:
    made, _ = found("exp(x)", "sine(x)", "prelu(x, y)", inputs=1)
    assert made.complete == 2
    # One node: exp, sine, prelu(x, x). Two: exp and sine of each of these; prelu of x and each,
    # both ways, and of each and itself.
    assert made.terms == 3 + 2 * 3 + (2 + 1) * 3


def test_equal_terms_are_candidates_and_instances_of_them_are_not() -> None:
    _, pairs = found("abs(x)", "negate(x)", most=3)
    assert pairs["abs(negate(x))"] == "abs(x)"
    assert pairs["negate(negate(x))"] == "x"
    assert pairs["abs(abs(x))"] == "abs(x)"
    assert not any(text.startswith("negate(negate(negate") for text in pairs)


def test_terms_that_differ_only_for_special_numbers_are_no_candidates() -> None:
    _, pairs = found("square(x)", "square_root(x)", "abs(x)", "subtract(x, y)", "add(x, y)")
    assert pairs.get("square_root(square(x))") is None  # 3e38² is infinite, 1e-40² is 0.
    assert pairs.get("add(subtract(x, y), y)") is None  # Rounded.
    assert pairs.get("subtract(x, x)") is None  # NaN of infinity.


def test_a_fingerprint_knows_two_zeros_and_one_nan() -> None:
    type_ = tensor([2], f32)
    one, other = torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0])
    assert fingerprint([one], [type_]) != fingerprint([other], [type_])
    nan = torch.tensor([float("nan"), 1.0])
    negative = torch.copysign(nan, torch.tensor([-1.0, 1.0]))
    assert fingerprint([nan], [type_]) == fingerprint([negative], [type_])


def test_a_term_matches_its_instances_only() -> None:
    assert matches((0, (0, 0)), (0, ((1, (0,)), (1, (0,)))))
    assert not matches((0, (0, 0)), (0, ((1, (0,)), 0)))


def test_a_candidate_that_the_flow_reaches_is_not_new() -> None:
    made, _ = found("relu.default(x)", "neg.default(x)", level="aten", inputs=1)
    large = Evaluator(made.grammar).large
    texts = {told(c.before, made.nodes): c for c in made.candidates}
    (again,) = flows(made.grammar, made.nodes, texts["relu.default(relu.default(x))"], large)
    assert not again.is_new  # The pipeline merges clamps.
    (twice,) = flows(made.grammar, made.nodes, Candidate((0, (0,)), 0, 2.0, 1.0), large)
    assert twice.is_new  # A clamp costs more than none; whether they are equal is not asked here.


def test_numbers_become_placeholders_under_the_weakest_condition_that_is_proved() -> None:
    made, _ = found("clamp(x, output_min=2.0)", "maximum(x, y)", "abs(x)", "minimum(x, y)")
    rules = {}
    for candidate in made.candidates:
        rule = proved_rule("found", made.grammar, made.nodes, candidate)
        rules[told(candidate.before, made.nodes)] = rule.text if rule else ""
    any_number = rules["minimum(clamp(x, output_min=2.0), x)"]
    assert "output_min=$n0" in any_number
    assert "where" not in any_number
    of_sign = rules["abs(clamp(x, output_min=2.0))"]
    assert "where is_normal($n0)" in of_sign


def test_a_wrong_candidate_is_not_proved() -> None:
    made, _ = found("abs(x)", "negate(x)")
    wrong = Candidate((1, (0,)), (0, (0,)), 2.0, 1.0)
    assert not decided(made.grammar, made.nodes, wrong)
    assert proved_rule("wrong", made.grammar, made.nodes, wrong) is None


def test_every_grammar_has_terms() -> None:
    for name, each in grammars().items():
        made = Enumeration(each, budget=40)
        made.run()
        assert made.terms == 40, name
        assert made.complete >= 0


def test_both_terms_of_a_candidate_are_one_program() -> None:
    made, _ = found("abs(x)", "negate(x)")
    candidate = next(c for c in made.candidates if told(c.before, made.nodes) == "abs(negate(x))")
    program = program_of(made.grammar, made.nodes, [candidate.before, candidate.after], {"A": 3})
    assert [op.name for op in program.method().body.block.ops] == [
        "xnnpack.negate", "xnnpack.abs", "xnnpack.abs", "func.return",
    ]  # fmt: skip


def test_a_run_continues_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="the extra `sweep` is not installed")
    names = ["xnnpack/ranges"]
    (first,) = running.discover_each(names, tmp_path, 1, 300, 2)
    assert first.terms == 300
    assert len(first.judged) == 2
    monkeypatch.setattr(running, "local_cluster", None)  # A second run computes nothing.
    (again,) = running.discover_each(names, tmp_path, 1, 300, 2)
    assert again == first
    assert "xnnpack/ranges" in running.table([again])


def test_an_unknown_grammar_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StepwellError, match="no grammar 'xnnpack/none'"):
        list(running.discover_each(["xnnpack/none"], tmp_path, 1))
