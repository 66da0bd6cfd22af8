"""Enumeration finds every equality of its terms, judges it by today's flow, and writes rules."""

from itertools import combinations, product
from pathlib import Path

import pytest
import torch

pytest.importorskip("z3", reason="the extra `prove` is not installed")

from stepwell.cost_model.discovery import running
from stepwell.cost_model.discovery.candidates import flows, program_of
from stepwell.cost_model.discovery.enumeration import (
    GAIN,
    Candidate,
    Enumeration,
    Tree,
    inputs_of,
    matches,
    render,
)
from stepwell.cost_model.discovery.evaluation import (
    SPECIAL,
    Evaluator,
    NotApplicable,
    fingerprint,
    values_of,
)
from stepwell.cost_model.discovery.grammar import Grammar
from stepwell.cost_model.discovery.proofs import decided, proved_rule
from stepwell.cost_model.discovery.tables import grammars
from stepwell.cost_model.optimum import cost
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
    pairs = {
        render(c.before, made.nodes): render(c.after, made.nodes)
        for c in made.minimal(made.candidates())
    }
    return made, pairs


def test_all_terms_of_a_small_grammar_are_enumerated() -> None:
    made, _ = found("exp(x)", "sine(x)", "prelu(x, y)", inputs=1)
    assert made.complete == 2
    # One node: exp, sine, prelu(x, x). Two: exp and sine of each of these; prelu of x and each,
    # both ways.
    assert made.terms == 3 + 2 * 3 + 2 * 3


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
    assert matches((0, (0, 0)), (0, ((1, (0,)), (1, (0,)))), lambda tree: None)
    assert not matches((0, (0, 0)), (0, ((1, (0,)), 0)), lambda tree: None)
    of_type = {0: "f32", 1: "i32"}.get
    assert not matches((0, (0,)), (0, (1,)), of_type)  # pyright: ignore[reportArgumentType]


def test_a_candidate_that_the_flow_reaches_is_not_new() -> None:
    made, _ = found("relu.default(x)", "neg.default(x)", level="aten", inputs=1)
    large = Evaluator(made.grammar).large
    texts = {render(c.before, made.nodes): c for c in made.minimal(made.candidates())}
    again = flows(made.grammar, made.nodes, texts["relu.default(relu.default(x))"], large)
    assert again == {"xnnpack": 1.0}  # The pipeline merges clamps.
    twice = flows(made.grammar, made.nodes, Candidate((0, (0,)), 0), large)
    assert twice["xnnpack"] > GAIN  # A clamp costs more than none. Their equality is no question.


@pytest.mark.parametrize(
    ("term", "lines"),
    [
        ("minimum(clamp(x, output_min=2.0), x)", ["clamp(%x, output_min=$n0)"]),  # Any number.
        ("abs(clamp(x, output_min=2.0))", ["output_min=$n0", "where is_normal($n0)"]),
    ],
)
def test_numbers_become_placeholders_under_the_weakest_condition_that_is_proved(
    term: str, lines: list[str]
) -> None:
    made, _ = found("clamp(x, output_min=2.0)", "maximum(x, y)", "abs(x)", "minimum(x, y)")
    (candidate,) = (
        c for c in made.minimal(made.candidates()) if render(c.before, made.nodes) == term
    )
    rule = proved_rule("found", made.grammar, made.nodes, candidate)
    assert rule is not None
    assert all(line in rule[0] for line in lines)
    assert ("where" in rule[0]) is (len(lines) > 1)


def test_a_wrong_candidate_is_not_proved() -> None:
    made, _ = found("abs(x)", "negate(x)")
    wrong = Candidate((1, (0,)), (0, (0,)))
    assert not decided(made.grammar, made.nodes, wrong)
    assert proved_rule("wrong", made.grammar, made.nodes, wrong) is None


@pytest.mark.parametrize("name", grammars())
def test_every_node_of_a_grammar_takes_some_terms(name: str) -> None:
    made = Enumeration(grammars()[name], budget=700)
    made.run()
    assert made.terms == 700
    assert len({*made.nodes}) == len(made.nodes)
    kinds = {each.types for each in made.classes}
    for number in {*range(len(made.nodes))} - made.applied:  # It takes larger terms, perhaps.
        node = made.nodes[number]
        assert any(
            all(Evaluator(made.grammar).applied(node, types) for types in zip(*each, strict=True))
            for each in product(kinds, repeat=node.operands)
        ), str(node)


def test_any_two_inputs_have_each_pair_of_special_numbers() -> None:
    for name, each in grammars().items():
        if each.sizes != ({"A": 512},):
            continue
        values = values_of(each, each.sizes[0], 0)
        for one, other in combinations((v for v in values if len(v) == 512), 2):
            pairs = zip(one.tolist(), other.tolist(), strict=True)
            special = (torch.tensor(SPECIAL[v.dtype], dtype=v.dtype).tolist() for v in (one, other))
            wanted = product(*special)
            assert {*map(str, wanted)} <= {*map(str, pairs)}, name


def every_tree(made: Enumeration, most: int) -> list[list[Tree]]:
    """All terms of up to `most` nodes, by their number of nodes: no term is left out."""
    trees: list[list[Tree]] = [list(range(len(made.grammar.inputs)))]
    for size in range(1, most + 1):
        trees.append([])
        for number, node in enumerate(made.nodes):
            for sizes in product(range(size), repeat=node.operands):
                if sum(sizes) == size - 1:
                    parts = product(*(trees[each] for each in sizes))
                    trees[size] += [(number, operands) for operands in parts]
    return trees


def values_by_programs(made: Enumeration, trees: list[Tree]) -> dict[Tree, bytes]:
    """The fingerprint of each term, computed as a program; terms without a type are left out."""
    held: dict[Tree, bytes] = {}
    sizes = made.grammar.sizes
    inputs = [values_of(made.grammar, each, at) for at, each in enumerate(sizes)]
    for tree in trees:
        values, types = [], []
        try:
            for of, numbers in zip(sizes, inputs, strict=True):
                one = program_of(made.grammar, made.nodes, [tree], of)
                values += one.run(*(numbers[at] for at in sorted(inputs_of(tree))))
                types += [one.method().body.block.last_op.operands[0].type]  # pyright: ignore
        except NotApplicable:
            continue
        held[tree] = fingerprint(values, types)
    return held


SMALL = {
    "signs": ("xnnpack", ("abs(x)", "negate(x)", "add(x, y)"), ("f32 A", "f32 A"), SIZES, 3),
    "selections": (
        "tosa-1.0+int", ("logical_not(x)", "select(x, y, z)", "greater(x, y)"),
        ("i1 A", "i32 A", "i32 A"), SIZES, 2,
    ),
    "movements": (
        "xnnpack",
        ("static_transpose(x,perm=ORDER)", "concatenate2(x,y,axis=AXIS)",
         "static_slice(x,offsets=PART,sizes=PART)"),
        ("f32 A B",), ({"A": 2, "B": 3}, {"A": 3, "B": 3}), 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_enumeration_finds_the_values_and_equalities_of_all_terms(name: str) -> None:
    target, nodes, inputs, sizes, most = SMALL[name]
    level = target.partition("-")[0]
    made = Enumeration(Grammar("test", target, level, inputs, nodes, most, (2,), sizes))
    made.run()
    cheapest = {made.tree(number) for number in range(len(made.classes))}
    trees = [tree for each in every_tree(made, most) for tree in each]
    values = values_by_programs(made, [*{*trees, *cheapest}])
    assert len(values) > 80
    assert {values[tree] for tree in cheapest} == {*values.values()}
    assert len(cheapest) == len({*values.values()})

    # Each term of cheapest terms that is not one itself is more expensive by a pair that was found.
    large = Evaluator(made.grammar).large
    costs = {t: cost(program_of(made.grammar, made.nodes, [t], large), target) for t in values}
    least = {digest: min(costs[t] for t in values if values[t] == digest)
             for digest in values.values()}  # fmt: skip
    assert all(costs[tree] <= least[values[tree]] * GAIN for tree in cheapest)
    by_value = {values[tree]: tree for tree in cheapest}
    patterns = [candidate.before for candidate in made.minimal(made.candidates())]
    reduced = 0
    for tree in values:
        if isinstance(tree, int) or not {*tree[1]} <= cheapest:
            continue
        cheap = by_value[values[tree]]
        if costs[tree] > costs[cheap] * GAIN and inputs_of(cheap) <= inputs_of(tree):
            turned = (tree[0], tree[1][::-1])
            orders = [tree, turned] if values.get(turned) == values[tree] else [tree]
            assert any(matches(p, t, made.kind_of) for p in patterns for t in orders), tree
            reduced += 1
    assert reduced > 4


def test_a_list_of_operands_has_as_many_as_its_template() -> None:
    three = Grammar("test", "tosa-1.0+int", "tosa", (), ("concat(x,y,z,axis=AXIS)",), 1, (2,), ())
    assert [(node.operands, node.arguments) for node in three.expanded()] == [
        (3, (("axis", "0"),)),
        (3, (("axis", "1"),)),
    ]


def test_a_part_without_elements_is_no_term() -> None:
    (first, last, *_) = moves("static_slice(x,offsets=PART,sizes=PART)").expanded()
    assert first.fields((3, 2)) == {"offsets": [0, 0], "sizes": [2, 2]}
    assert last.fields((3, 2)) == {"offsets": [1, 0], "sizes": [2, 2]}
    assert first.fields((1, 2)) is None  # XNNPACK takes a size of 0 for the whole axis.
    assert first.fields((3, 2, 2)) is None


def moves(*nodes: str) -> Grammar:
    sizes = ({"A": 2, "B": 3}, {"A": 4, "B": 3})
    return Grammar("test", "xnnpack", "xnnpack", ("f32 A B",), nodes, 1, (2,), sizes)


def test_terms_that_are_equal_at_one_of_the_sizes_are_not_proved() -> None:
    grammar = moves("static_slice(x,offsets=CUT,sizes=CUT)")
    nodes = {str(node): at for at, node in enumerate(grammar.expanded())}
    first = nodes["xnnpack.static_slice(%, offsets=[0, 0], sizes=[s0 - 1, s1])"]
    half = nodes["xnnpack.static_slice(%, offsets=[0, 0], sizes=[s0 // 2, s1])"]
    pair = Candidate((first, (0,)), (half, (0,)))  # A row of two, but not two of four.
    assert decided(grammar, grammar.expanded(), pair) == ""


def test_terms_of_different_ranks_are_not_proved() -> None:
    grammar = moves("static_reshape(x,new_shape=SHAPE)")
    nodes = {str(node): at for at, node in enumerate(grammar.expanded())}
    unit = nodes["xnnpack.static_reshape(%, new_shape=[s0, s1, 1])"]
    assert decided(grammar, grammar.expanded(), Candidate((unit, (0,)), 0)) == ""


def test_both_terms_of_a_candidate_are_one_program() -> None:
    made, _ = found("abs(x)", "negate(x)")
    candidate = next(
        c
        for c in made.minimal(made.candidates())
        if render(c.before, made.nodes) == "abs(negate(x))"
    )
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
        list(running.discover_each(["xnnpack/none"], tmp_path, 1, 10, 1))
