"""Rules that are their own text: what is read, what matches, what is refused."""

from typing import Any, cast

import pytest
from rewrite_cases import cases

from stepwell.ir.declared.numerics import Deviation, Proof
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.syntax.text import parse_module
from stepwell.translate.rules import read_rules
from stepwell.translate.rules.compiling import equal
from stepwell.translate.rules.examples import examples_of


def rule(text: str, **namespace: Any) -> Any:
    (found,) = read_rules(text, {"__name__": __name__, **namespace})
    return found


def drops(share: float, training: bool) -> Refusal | None:
    return Refusal(f"it drops {share}") if training else None


DOUBLED = """
rule doubled-to-sum
    Twice x is x and x.
Before:
    %y = aten.mul.Scalar(%x, 2)
After:
    %y = aten.add.Tensor(%x, %x)
"""
CURVES = """
rule curve-of-negated
Before:
    %n = aten.neg.default(%x)
    %y = aten.$even.default(%n)
After:
    %y = aten.$same.default(%x)
for each $even, $same of (abs, abs),
    (cosh, cosh)
"""
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
OTHERS = """
rule sum-to-double
Before:
    %y = aten.add.Tensor(%x, %x)
After:
    %y = aten.mul.Scalar(%x, 2)

rule recognize-gate
Before:
    %s = aten.sigmoid.default(%x)
    %y = aten.mul.Tensor({%x, %s})
After:
    %y = aten.silu.default(%x)
where reads_once(%s) else "the gate is read elsewhere too"
bound 1e-6 relative, 1e-7 absolute: "one rounding for two"

rule small-factor
Before:
    %y = aten.mul.Scalar(%x, $c)
After:
    %y = %x
where is_small($c) else "{c} is not small"
for $c = 0.0

rule any-factor
Before:
    %y = aten.mul.Scalar(%x, $c)
After:
    %y = aten.mul.Scalar(%x, $c)
for $c = 2

rule square
Before:
    %y = aten.permute.default(%x, [1, 0]) : (tensor<$N x $N x f32>) -> …
After:
    %y = aten.transpose.int(%x, 0, 1)
for $N = 3

rule cast-of-nothing
Before:
    %y = aten._to_copy.default(%x, dtype=$d)
After:
    %y = %x

rule late-bound
Before:
    %y = aten.clamp_min.default(%x, $?c)
After:
    %y = aten.clamp.default(%x, $c)
for $c = 2

rule slice-by-defaults
Before:
    %y = aten.slice.Tensor(%x)
After:
    %y = %x

rule slice-of-all
Before:
    %y = aten.slice.Tensor(%x, …)
After:
    %y = %x

rule layer-norm-without-statistics
Before:
    %y, %m, %r = aten.native_layer_norm.default(%x, $n, $w, $b, $e)
After:
    %y = aten.layer_norm.default(%x, $n, $w, $b, $e)
where is_unread(%m, %r)
for $n = [3], $e = 1.0e-5
"""
NAMES = {"__name__": __name__, "drops": drops, "is_small": lambda number: abs(number) < 1}

test_rules = cases(list(read_rules(DOUBLED + FIRST + OTHERS, NAMES)))("""
doubled-to-sum: a number is that number -> aten.add.Tensor
    %y = aten.mul.Scalar(%x: f32[2, 3], 2)
doubled-to-sum: a number is that number of any kind -> aten.add.Tensor
    %y = aten.mul.Scalar(%x: f32[2, 3], 2.0)
doubled-to-sum: another number -> unchanged
    %y = aten.mul.Scalar(%x: f32[2, 3], 2.5)
sum-to-double: an argument that is not written has its default -> unchanged
    %y = aten.add.Tensor(%x: f32[2, 3], %x, alpha=3)
sum-to-double: a value that stands twice is one value -> unchanged
    %y = aten.add.Tensor(%x: f32[2, 3], %z: f32[2, 3])
recognize-gate: operands in braces -> aten.silu.default
    %s = aten.sigmoid.default(%x: f32[2, 3]); %y = aten.mul.Tensor(%x, %s)
recognize-gate: operands in braces match in either order -> aten.silu.default
    %s = aten.sigmoid.default(%x: f32[2, 3]); %y = aten.mul.Tensor(%s, %x)
recognize-gate: a condition refuses with its sentence -> refused: the gate is read elsewhere too
    %s = aten.sigmoid.default(%x: f32[2, 3]); %m = aten.mul.Tensor(%x, %s)
    %y = aten.add.Tensor(%m, %s)
small-factor: a sentence names what a hole is -> refused: 7 is not small
    %y = aten.mul.Scalar(%x: f32[2, 3], 7)
any-factor: a number known only at run time fills no hole -> refused: other is known only at run time
    %n = aten.sym_size.int(%x: f32[2, 3], 0); %y = aten.mul.Scalar(%x, %n)
square: types hold sizes and elements -> aten.transpose.int
    %y = aten.permute.default(%x: f32[3, 3], [1, 0])
square: sizes must agree -> unchanged
    %y = aten.permute.default(%x: f32[2, 3], [1, 0])
square: elements must agree -> unchanged
    %y = aten.permute.default(%x: i64[3, 3], [1, 0])
cast-of-nothing: a value that is there replaces only one of its type -> unchanged
    %y = aten._to_copy.default(%x: f32[2, 3], dtype=f16)
late-bound: a late hole takes a number known only at run time -> aten.sym_size.int, aten.clamp.default
    %n = aten.sym_size.int(%x: f32[2, 3], 0); %y = aten.clamp_min.default(%x, %n)
slice-by-defaults: arguments that are not written have their defaults -> unchanged
    %a = aten.slice.Tensor(%x: f32[2, 3], 1, 0, 3); %y = aten.neg.default(%a)
slice-of-all: arguments behind dots may be anything -> aten.neg.default
    %a = aten.slice.Tensor(%x: f32[2, 3], 1, 0, 3); %y = aten.neg.default(%a)
first-result: another result that is read -> refused: the mask is read
    %a, %y = aten.native_dropout.default(%x: f32[2, 3], 0.5, false); return %y
first-result: another result that nobody reads -> aten.neg.default
    %a, %m = aten.native_dropout.default(%x: f32[2, 3], 0.5, false); %y = aten.neg.default(%a)
first-result: a guard says itself why it refuses -> refused: it drops 0.0
    %y, %m = aten.native_dropout.default(%x: f32[2, 3], 0.0, true); return %y
layer-norm-without-statistics: a hole for a tensor holds it -> aten.layer_norm.default; writes %x, [3], %w
    %y, %m, %r = aten.native_layer_norm.default(%x: f32[2, 3], [3], %w: f32[3], none, 1.0e-5)
    return %y
layer-norm-without-statistics: a hole for a tensor holds its absence -> aten.layer_norm.default; writes %x, [3], none
    %y, %m, %r = aten.native_layer_norm.default(%x: f32[2, 3], [3], none, none, 1.0e-5); return %y
""")


def test_for_each_makes_one_rule_of_several(apply: Any):
    turned = rule(CURVES)
    assert [anchor.name for anchor in turned.anchors] == ["aten.abs.default", "aten.cosh.default"]
    for before, after in examples_of(turned):
        (left,) = apply(before, turned()).ops()
        assert left in after


def test_a_name_in_four_spellings_and_its_prose_is_the_documentation():
    doubled = rule(DOUBLED)
    assert doubled.name == "doubled-to-sum"
    assert doubled.__name__ == "DoubledToSum"
    assert doubled.__doc__ == "Twice x is x and x."
    assert doubled.bound.exact


def test_a_rule_that_forgets_another_result_is_an_error():
    forgetful = FIRST.replace('where is_unread(%m) else "the mask is read"\n', "")
    with pytest.raises(StepwellError, match="a result is neither replaced nor unread"):
        examples_of(rule(forgetful, drops=drops))


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
    ("before", "after", "clause", "reason"),
    [
        ("%y = aten.relu.default(%x)", "", "", "nothing after"),
        ("aten.relu.default(%x)", "%y = %x", "", "no `%y = op"),
        ("%y = aten.relu.default(%x)", "%z = %x", "", "different values"),
        ("%y = aten.nope.default(%x)", "%y = %x", "", "the op 'aten.nope"),
        ("%y = aten.relu.default(%x)", "%y = %x", "so what", "no valid line of a rule"),
        ("%y = aten.relu.default(%x)", "%y = %x", 'bound 1 ulp: "x"', "relative or absolute"),
    ],
)
def test_a_text_that_is_no_rule_is_refused_by_its_line(
    before: str, after: str, clause: str, reason: str
):
    end = f"After:\n    {after}\n{clause}\n" if after else ""
    with pytest.raises(StepwellError, match=reason):
        rule(f"rule a\nBefore:\n    {before}\n{end}")


def test_arguments_are_equal_as_the_numbers_they_are():
    nan = float("nan")
    assert equal(2, 2.0)
    assert equal(nan, nan)
    assert equal([1, 2], [1, 2.0])
    assert not equal(0.0, -0.0)
    assert not equal(1, True)
    assert not equal([1], [1, 2])
    assert not equal(None, 0)
