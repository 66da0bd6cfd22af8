"""Rules that are their own text: what is read, what matches, what is refused."""

from typing import Any, cast

import pytest

from stepwell.ir.declared.numerics import Deviation, Proof
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.syntax.text import parse_module
from stepwell.translate.rules import read_rules
from stepwell.translate.rules.compiling import equal
from stepwell.translate.rules.examples import examples_of

X = "tensor<2x3xf32>"


def rule(text: str, **namespace: Any) -> Any:
    (found,) = read_rules(text, {"__name__": __name__, **namespace})
    return found


DOUBLED = """
rule doubled-to-sum
    Twice x is x and x.
Before:
    %y = aten.mul.Scalar(%x, 2)
After:
    %y = aten.add.Tensor(%x, %x)
"""


def scaled(by: str, method: Any) -> str:
    return method(f"%x: {X}", f"%y = aten.mul.Scalar(%x, {by}) : ({X}) -> {X}", gives=X)


def test_a_number_before_is_that_number_of_any_kind(apply: Any, refused: Any):
    doubled = rule(DOUBLED)
    assert apply("%y = aten.mul.Scalar(%x: f32[2, 3], 2)", doubled()).ops() == ["aten.add.Tensor"]
    assert apply("%y = aten.mul.Scalar(%x: f32[2, 3], 2.0)", doubled()).ops() == ["aten.add.Tensor"]
    refused("%y = aten.mul.Scalar(%x: f32[2, 3], 2.5)", doubled())


def test_a_name_in_four_spellings_and_its_prose_is_the_documentation():
    doubled = rule(DOUBLED)
    assert doubled.name == "doubled-to-sum"
    assert doubled.__name__ == "DoubledToSum"
    assert doubled.__doc__ == "Twice x is x and x."
    assert doubled.bound.exact


def test_an_argument_that_is_not_written_has_its_default(refused: Any):
    same = rule(
        "rule x-to-itself\nBefore:\n    %y = aten.add.Tensor(%x, %x)\n"
        "After:\n    %y = aten.mul.Scalar(%x, 2)\n"
    )
    refused("%y = aten.add.Tensor(%x: f32[2, 3], %x, alpha=3)", same())


def test_a_value_that_stands_twice_is_one_value(refused: Any):
    same = rule(
        "rule x-to-itself\nBefore:\n    %y = aten.add.Tensor(%x, %x)\n"
        "After:\n    %y = aten.mul.Scalar(%x, 2)\n"
    )
    refused("%y = aten.add.Tensor(%x: f32[2, 3], %z: f32[2, 3])", same())


GATE = """
rule recognize-gate
Before:
    %s = aten.sigmoid.default(%x)
    %y = aten.mul.Tensor({%x, %s})
After:
    %y = aten.silu.default(%x)
where reads_once(%s) else "the gate is read elsewhere too"
bound 1e-6 relative, 1e-7 absolute: "one rounding for two"
"""


@pytest.mark.parametrize("order", ["%x, %s", "%s, %x"])
def test_operands_in_braces_match_in_either_order(order: str, apply: Any, method: Any):
    text = method(
        f"%x: {X}",
        f"%s = aten.sigmoid.default(%x) : ({X}) -> {X}",
        f"%y = aten.mul.Tensor({order}) : ({X}, {X}) -> {X}",
        gives=X,
    )
    assert apply(text, rule(GATE)()).ops() == ["aten.silu.default"]


def test_a_condition_refuses_with_its_sentence(refused: Any):
    refused(
        """
        %s = aten.sigmoid.default(%x: f32[2, 3])
        %m = aten.mul.Tensor(%x, %s)
        %y = aten.add.Tensor(%m, %s)
        """,
        rule(GATE)(),
        "the gate is read elsewhere too",
    )


def test_a_sentence_names_what_a_hole_is(refused: Any, method: Any):
    small = rule(
        "rule small-factor\nBefore:\n    %y = aten.mul.Scalar(%x, $c)\nAfter:\n    %y = %x\n"
        'where is_small($c) else "{c} is not small"\nfor $c = 0.0\n',
        is_small=lambda number: abs(number) < 1,
    )
    refused(scaled("7", method), small(), "7 is not small")


def test_a_number_known_only_at_run_time_fills_no_hole(refused: Any):
    small = rule(
        "rule any-factor\nBefore:\n    %y = aten.mul.Scalar(%x, $c)\n"
        "After:\n    %y = aten.mul.Scalar(%x, $c)\nfor $c = 2\n"
    )
    refused(
        """
        %n = aten.sym_size.int(%x: f32[2, 3], 0)
        %y = aten.mul.Scalar(%x, %n)
        """,
        small(),
        "other is known only at run time",
    )


def test_types_hold_sizes_and_elements_that_must_agree(apply: Any, refused: Any):
    square = rule(
        "rule square\nBefore:\n"
        "    %y = aten.permute.default(%x, [1, 0]) : (tensor<$N x $N x f32>) -> …\n"
        "After:\n    %y = aten.transpose.int(%x, 0, 1)\nfor $N = 3\n"
    )
    done = apply("%y = aten.permute.default(%x: f32[3, 3], [1, 0])", square())
    assert done.ops() == ["aten.transpose.int"]
    refused("%y = aten.permute.default(%x: f32[2, 3], [1, 0])", square())
    refused("%y = aten.permute.default(%x: i64[3, 3], [1, 0])", square())


def test_a_value_that_is_there_replaces_only_one_of_its_type(refused: Any):
    gone = rule(
        "rule cast-of-nothing\nBefore:\n    %y = aten._to_copy.default(%x, dtype=$d)\nAfter:\n    %y = %x\n"
    )
    refused("%y = aten._to_copy.default(%x: f32[2, 3], dtype=f16)", gone())


def test_for_each_makes_one_rule_of_several(apply: Any):
    turned = rule(
        "rule curve-of-negated\nBefore:\n    %n = aten.neg.default(%x)\n"
        "    %y = aten.$even.default(%n)\nAfter:\n    %y = aten.$same.default(%x)\n"
        "for each $even, $same of (abs, abs),\n    (cosh, cosh)\n"
    )
    assert [anchor.name for anchor in turned.anchors] == ["aten.abs.default", "aten.cosh.default"]
    for before, after in examples_of(turned):
        done = apply(before, turned())
        assert len(done.ops()) == 1
        assert done.ops()[0] in after


def test_a_late_hole_takes_a_number_known_only_at_run_time(apply: Any):
    late = rule(
        "rule any-factor\nBefore:\n    %y = aten.clamp_min.default(%x, $?c)\n"
        "After:\n    %y = aten.clamp.default(%x, $c)\nfor $c = 2\n"
    )
    assert apply(
        """
        %n = aten.sym_size.int(%x: f32[2, 3], 0)
        %y = aten.clamp_min.default(%x, %n)
        """,
        late(),
    ).ops() == ["aten.sym_size.int", "aten.clamp.default"]


@pytest.mark.parametrize("rest", ["", ", …"])
def test_arguments_behind_dots_may_be_anything(rest: str, apply: Any, refused: Any, method: Any):
    whole = rule(
        f"rule slice-of-all\nBefore:\n    %y = aten.slice.Tensor(%x{rest})\nAfter:\n    %y = %x\n"
    )
    line = f"%a = aten.slice.Tensor(%x, 1, 0, 3) : ({X}) -> {X}"
    text = method(f"%x: {X}", line, f"%y = aten.neg.default(%a) : ({X}) -> {X}", gives=X)
    if rest:
        assert apply(text, whole()).ops() == ["aten.neg.default"]
    else:
        refused(text, whole())


FIRST = """
rule first-result
Before:
    %y, %m = aten.native_dropout.default(%x, $p, $t)
After:
    %y = %x
where is_unread(%m) else "the mask is read"
unless drops($p, $t)
for $p = 0.5, $t = false
"""


def drops(share: float, training: bool) -> Refusal | None:
    return Refusal(f"it drops {share}") if training else None


def test_the_other_results_of_an_op_are_read_by_nobody(apply: Any, refused: Any):
    first = rule(FIRST, drops=drops)
    refused(
        """
        %a, %y = aten.native_dropout.default(%x: f32[2, 3], 0.5, false)
        return %y
        """,
        first(),
        "the mask is read",
    )
    assert apply(
        """
        %a, %m = aten.native_dropout.default(%x: f32[2, 3], 0.5, false)
        %y = aten.neg.default(%a)
        """,
        first(),
    ).ops() == ["aten.neg.default"]


def test_a_rule_that_forgets_another_result_is_an_error():
    forgetful = FIRST.replace('where is_unread(%m) else "the mask is read"\n', "")
    with pytest.raises(StepwellError, match="no other result is read"):
        examples_of(rule(forgetful, drops=drops))


def test_a_guard_says_itself_why_it_refuses(refused: Any):
    refused(
        """
        %y, %m = aten.native_dropout.default(%x: f32[2, 3], 0.0, true)
        return %y
        """,
        rule(FIRST, drops=drops)(),
        "it drops 0.0",
    )


@pytest.mark.parametrize("weight", ["none", "%w"])
def test_a_hole_for_a_tensor_holds_it_or_its_absence(weight: str, apply: Any, method: Any):
    renamed = rule(
        "rule layer-norm-without-statistics\nBefore:\n"
        "    %y, %m, %r = aten.native_layer_norm.default(%x, $n, $w, $b, $e)\n"
        "After:\n    %y = aten.layer_norm.default(%x, $n, $w, $b, $e)\n"
        "where is_unread(%m, %r)\nfor $n = [3], $e = 1.0e-5\n"
    )
    given = f"{X}, tensor<3xf32>" if weight == "%w" else X
    small = "tensor<2x1xf32>"
    line = f"%y, %m, %r = aten.native_layer_norm.default(%x, [3], {weight}, none, 1.0e-5)"
    text = method(
        f"%x: {X}, %w: tensor<3xf32>", f"{line} : ({given}) -> ({X}, {small}, {small})", gives=X
    )
    done = apply(text, renamed())
    assert done.ops() == ["aten.layer_norm.default"]
    assert f"%x, [3], {weight}" in done.text


def test_unproven_condition_is_a_deviation():
    sure = rule(
        DOUBLED + 'proven is_positive_there(%x) else "a zero may lose its sign"\n',
        is_positive_there=lambda value, program: None if program else Proof("it is positive"),
    )()
    op = cast(
        Any, parse_module(examples_of(type(sure))[0][0]).body.block.first_op
    ).body.block.first_op
    found = sure.match(op, cast(Any, None))
    assert sure.deviates(found, cast(Any, None)) is None
    assert sure.deviates(found, cast(Any, "another")) == Deviation("a zero may lose its sign")


def test_a_rule_says_that_it_is_not_of_empty_tensors():
    assert rule(DOUBLED).takes_empty
    assert not rule(DOUBLED + "not of empty tensors\n").takes_empty


def test_the_example_is_complete_ir():
    ((before, after),) = examples_of(rule(DOUBLED))
    assert "aten.mul.Scalar(%x, 2) : (tensor<2x3xf32>) -> tensor<2x3xf32>" in before
    assert "aten.add.Tensor(%x, %x)" in after


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rule a\nBefore:\n    %y = aten.relu.default(%x)\n", "nothing after"),
        ("rule a\nBefore:\n    aten.relu.default(%x)\nAfter:\n    %y = %x\n", "no `%y = op"),
        (
            "rule a\nBefore:\n    %y = aten.relu.default(%x)\nAfter:\n    %z = %x\n",
            "different values",
        ),
        (
            "rule a\nBefore:\n    %y = aten.nope.default(%x)\nAfter:\n    %y = %x\n",
            "no op 'aten.nope",
        ),
        (
            "rule a\nBefore:\n    %y = aten.relu.default(%x)\nAfter:\n    %y = %x\nso what\n",
            "no valid line of a rule",
        ),
        (
            'rule a\nBefore:\n    %y = aten.relu.default(%x)\nAfter:\n    %y = %x\nbound 1 ulp: "x"\n',
            "relative or absolute",
        ),
    ],
)
def test_a_text_that_is_no_rule_is_refused_by_its_line(text: str, reason: str):
    with pytest.raises(StepwellError, match=reason):
        rule(text)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("where is_nothing(%x)", "no predicate 'is_nothing'"),
        ("where reads_once(%z)", "%z is not defined"),
    ],
)
def test_a_condition_on_what_there_is_not_is_an_error(line: str, reason: str):
    text = f"rule a\nBefore:\n    %y = aten.relu.default(%x)\nAfter:\n    %y = %x\n{line}\n"
    with pytest.raises(StepwellError, match=reason):
        examples_of(rule(text))


def test_arguments_are_equal_as_the_numbers_they_are():
    nan = float("nan")
    assert equal(2, 2.0)
    assert equal(nan, nan)
    assert equal([1, 2], [1, 2.0])
    assert not equal(0.0, -0.0)
    assert not equal(1, True)
    assert not equal([1], [1, 2])
    assert not equal(None, 0)
