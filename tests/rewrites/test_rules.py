"""Rules that are their own text: what is read, what matches, what is refused."""

from typing import Any

import pytest

from stepwell.ir.diagnostics import StepwellError
from stepwell.translate.rules import read_rules
from stepwell.translate.rules.compiling import equal
from stepwell.translate.rules.examples import example_of

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


def test_a_number_before_is_that_number_of_any_kind(apply: Any, refused: Any, method: Any):
    doubled = rule(DOUBLED)
    assert apply(scaled("2", method), doubled()).ops() == ["aten.add.Tensor"]
    assert apply(scaled("2.0", method), doubled()).ops() == ["aten.add.Tensor"]
    refused(scaled("2.5", method), doubled())


def test_a_name_in_four_spellings_and_its_prose_is_the_documentation():
    doubled = rule(DOUBLED)
    assert doubled.name == "doubled-to-sum"
    assert doubled.__name__ == "DoubledToSum"
    assert doubled.__doc__ == "Twice x is x and x."
    assert doubled.bound.exact


def test_an_argument_that_is_not_written_has_its_default(refused: Any, method: Any):
    same = rule(
        "rule x-to-itself\nBefore:\n    %y = aten.add.Tensor(%x, %x)\n"
        "After:\n    %y = aten.mul.Scalar(%x, 2)\n"
    )
    text = method(f"%x: {X}", f"%y = aten.add.Tensor(%x, %x, alpha=3) : ({X}, {X}) -> {X}", gives=X)
    refused(text, same())


def test_a_value_that_stands_twice_is_one_value(refused: Any, method: Any):
    same = rule(
        "rule x-to-itself\nBefore:\n    %y = aten.add.Tensor(%x, %x)\n"
        "After:\n    %y = aten.mul.Scalar(%x, 2)\n"
    )
    text = method(f"%x: {X}, %z: {X}", f"%y = aten.add.Tensor(%x, %z) : ({X}, {X}) -> {X}", gives=X)
    refused(text, same())


GATE = """
rule recognise-gate
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


def test_a_condition_refuses_with_its_sentence(refused: Any, method: Any):
    text = method(
        f"%x: {X}",
        f"%s = aten.sigmoid.default(%x) : ({X}) -> {X}",
        f"%m = aten.mul.Tensor(%x, %s) : ({X}, {X}) -> {X}",
        f"%y = aten.add.Tensor(%m, %s) : ({X}, {X}) -> {X}",
        gives=X,
    )
    refused(text, rule(GATE)(), "the gate is read elsewhere too")


def test_a_sentence_names_what_a_hole_is(refused: Any, method: Any):
    small = rule(
        "rule small-factor\nBefore:\n    %y = aten.mul.Scalar(%x, $c)\nAfter:\n    %y = %x\n"
        'where is_small($c) else "{c} is not small"\nfor $c = 0.0\n',
        is_small=lambda number: abs(number) < 1,
    )
    refused(scaled("7", method), small(), "7 is not small")


def test_a_number_known_only_at_run_time_fills_no_hole(refused: Any, method: Any):
    small = rule(
        "rule any-factor\nBefore:\n    %y = aten.mul.Scalar(%x, $c)\n"
        "After:\n    %y = aten.mul.Scalar(%x, $c)\nfor $c = 2\n"
    )
    text = method(
        f"%x: {X}",
        f'%n = aten.sym_size.int(%x, 0) : ({X}) -> !stepwell.int<"2">',
        f'%y = aten.mul.Scalar(%x, %n) : ({X}, !stepwell.int<"2">) -> {X}',
        gives=X,
    )
    refused(text, small(), "other is known only at run time")


def test_types_hold_sizes_and_elements_that_must_agree(apply: Any, refused: Any, method: Any):
    square = rule(
        "rule square\nBefore:\n"
        "    %y = aten.permute.default(%x, [1, 0]) : (tensor<$N x $N x f32>) -> …\n"
        "After:\n    %y = aten.transpose.int(%x, 0, 1)\nfor $N = 3\n"
    )
    text = "%y = aten.permute.default(%x, [1, 0]) : ({0}) -> {1}"
    three, wide, tall = "tensor<3x3xf32>", X, "tensor<3x2xf32>"
    done = apply(method(f"%x: {three}", text.format(three, three), gives=three), square())
    assert done.ops() == ["aten.transpose.int"]
    refused(method(f"%x: {wide}", text.format(wide, tall), gives=tall), square())
    whole = "tensor<3x3xi64>"
    refused(method(f"%x: {whole}", text.format(whole, whole), gives=whole), square())


def test_a_value_that_is_there_replaces_only_one_of_its_type(refused: Any, method: Any):
    gone = rule(
        "rule cast-of-nothing\nBefore:\n    %y = aten._to_copy.default(%x, dtype=$d)\nAfter:\n    %y = %x\n"
    )
    half = "tensor<2x3xf16>"
    line = f"%y = aten._to_copy.default(%x, dtype=f16) : ({X}) -> {half}"
    refused(method(f"%x: {X}", line, gives=half), gone())


def test_the_example_is_complete_ir():
    before, after = example_of(rule(DOUBLED))
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
            "none of the lines",
        ),
        (
            'rule a\nBefore:\n    %y = aten.relu.default(%x) : (int) -> …\nAfter:\n    %y = %x\nbound 1 ulp: "x"\n',
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
        ("where reads_once(%z)", "%z stands nowhere"),
    ],
)
def test_a_condition_on_what_there_is_not_is_an_error(line: str, reason: str):
    text = f"rule a\nBefore:\n    %y = aten.relu.default(%x)\nAfter:\n    %y = %x\n{line}\n"
    with pytest.raises(StepwellError, match=reason):
        example_of(rule(text))


def test_arguments_are_equal_as_the_numbers_they_are():
    nan = float("nan")
    assert equal(2, 2.0)
    assert equal(nan, nan)
    assert equal([1, 2], [1, 2.0])
    assert not equal(0.0, -0.0)
    assert not equal(1, True)
    assert not equal([1], [1, 2])
    assert not equal(None, 0)
