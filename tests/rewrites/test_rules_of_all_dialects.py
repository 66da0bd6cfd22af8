"""Rules over ops that no torch schema declares, and over weights, families and computed types."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.ir.declared.numerics import FLUSHED
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims
from stepwell.ir.weights import recipe
from stepwell.translate.rules import read_rules
from stepwell.translate.rules.examples import examples_of

X = "tensor<2x3xf32>"
Q = "!quant.uniform<i8:f32, 0.5:3>"


def rule(text: str, **namespace: Any) -> Any:
    (found,) = read_rules(text, {"__name__": __name__, **namespace})
    return found


def test_fields_of_an_op_are_numbers_and_lists_by_name(apply: Any, refused: Any, method: Any):
    turned = rule(
        "rule transpose-of-transpose\nBefore:\n"
        "    %a = xnnpack.static_transpose(%x, perm=$p)\n"
        "    %y = xnnpack.static_transpose(%a, perm=[1, 0])\n"
        "After:\n    %y = xnnpack.static_transpose(%x, perm=turned($p))\n"
        "where is_square(%x)\nfor $p = [0, 1]\n",
        turned=lambda order: order[::-1],
        is_square=lambda value: True,
    )
    first = f"%a = xnnpack.static_transpose(%x, perm=[0, 1]) : ({X}) -> {X}"
    again = f"%y = xnnpack.static_transpose(%a, perm=[1, 0]) : ({X}) -> tensor<3x2xf32>"
    done = apply(method(f"%x: {X}", first, again, gives="tensor<3x2xf32>"), turned())
    assert "%y = xnnpack.static_transpose(%x, perm=[1, 0])" in done.text
    other = again.replace("[1, 0]", "[0, 1]").replace("3x2", "2x3")
    refused(method(f"%x: {X}", first, other, gives=X), turned())


def test_a_field_that_is_not_written_is_not_there(apply: Any, refused: Any, method: Any):
    plain = rule(
        "rule add-to-subtract\nBefore:\n    %y = xnnpack.add(%x, %x)\n"
        "After:\n    %y = xnnpack.subtract(%x, %x)\n"
    )
    line = f"%y = xnnpack.add(%x, %x, output_min=0.0) : ({X}, {X}) -> {X}"
    refused(method(f"%x: {X}", line, gives=X), plain())


def test_a_whole_type_and_a_computed_element_are_types(apply: Any, method: Any):
    named = rule(
        "rule dequantize-what-is-named-again\nBefore:\n"
        "    %y = quant.dcast(%q) : (tensor<$*S x $Q>) -> $T\n"
        "After:\n    %r = quant.scast(%q) : … -> tensor<$*S x storage($Q)>\n"
        "    %n = quant.scast(%r) : … -> tensor<$*S x $Q>\n"
        "    %y = quant.dcast(%n) : … -> $T\n"
        "where reads_once(%q)\n"
        f'for $S = [4], $Q = "{Q}", $T = "tensor<4xf32>"\n',
    )
    ((_, after),) = examples_of(named)
    assert "%r = quant.scast %q" in after
    assert "to tensor<4xi8>" in after


@recipe("doubled-for-a-test")
def doubled(weight: torch.Tensor, *, times: int) -> torch.Tensor:
    return weight * times


DOUBLED = """
rule weight-of-doubled
Before:
    %w = weight : tensor<$N x f32>
    %m = aten.mul.Scalar(%x, 2)
    %y = aten.mul.Tensor(%m, %w)
After:
    %v = weight doubled-for-a-test(%w, times=2)
    %y = aten.mul.Tensor(%x, %v)
for $N = 3, %w = "w#positive"
"""


def test_a_weight_is_matched_and_another_derived_of_it(apply: Any, refused: Any, method: Any):
    weight = '%w = stepwell.weight <"w"> "parameter" : tensor<3xf32>'
    line = f"%m = aten.mul.Scalar(%x, 2) : ({X}) -> {X}"
    last = f"%y = aten.mul.Tensor(%m, %w) : ({X}, tensor<3xf32>) -> {X}"
    done = apply(method(f"%x: {X}", weight, line, last, gives=X), rule(DOUBLED)())
    assert done.ops() == ["aten.mul.Tensor"]
    assert "w#doubled-for-a-test" in done.text
    refused(method(f"%x: {X}, %w: tensor<3xf32>", line, last, gives=X), rule(DOUBLED)())


def at_front(shape: Sequence[Any]) -> list[Any]:
    return [*shape[-1:], *shape[:-1]]


def test_an_op_of_a_family_is_written_again_of_other_operands(
    apply: Any, refused: Any, method: Any
):
    sunk = rule(
        "rule neg-of-movement\nBefore:\n    %n = aten.neg.default(%x) : (tensor<$*S x $E>) -> …\n"
        "    %y = $move of turns(%n, …)\n"
        "After:\n    %m = $move(%x, …) : … -> tensor<*at_front($S) x $E>\n"
        "    %y = aten.neg.default(%m)\n"
        'for $move = "aten.t.default"\n',
        turns=(aten.TDefault, aten.PermuteDefault),
        at_front=at_front,
    )
    assert [anchor.name for anchor in sunk.anchors] == ["aten.t.default", "aten.permute.default"]
    neg, made = f"%n = aten.neg.default(%x) : ({X}) -> {X}", "tensor<3x2xf32>"
    line = f"%y = aten.permute.default(%n, [1, 0]) : ({X}) -> {made}"
    done = apply(method(f"%x: {X}", neg, line, gives=made), sunk())
    assert done.ops() == ["aten.permute.default", "aten.neg.default"]
    line = f"%y = aten.transpose.int(%n, 1, 0) : ({X}) -> {made}"
    refused(method(f"%x: {X}", neg, line, gives=made), sunk())


BACK = """
rule first-two-of-three
Before:
    %a, %b, %c = aten.unbind.int(%x, 0)
After:
    %a = aten.select.int(%x, 0, 0)
    %b = aten.select.int(%x, 0, 1)
where is_unread(%c) else "the third is read"
for $S = [3, 2]
"""


def test_several_results_are_replaced_under_their_names(apply: Any, refused: Any, method: Any):
    three, part = "tensor<3x2xf32>", "tensor<2xf32>"
    line = f"%a, %b, %c = aten.unbind.int(%x, 0) : ({three}) -> ({part}, {part}, {part})"
    both = f"%y = aten.sub.Tensor(%b, %a) : ({part}, {part}) -> {part}"
    done = apply(method(f"%x: {three}", line, both, gives=part), rule(BACK)())
    assert done.ops() == ["aten.select.int", "aten.select.int", "aten.sub.Tensor"]
    third = both.replace("%a", "%c")
    refused(method(f"%x: {three}", line, third, gives=part), rule(BACK)(), "the third is read")
    two = line.replace(", %c", "").replace(f", {part})", ")").replace(three, "tensor<2x2xf32>")
    refused(method("%x: tensor<2x2xf32>", two, both, gives=part), rule(BACK)())


def test_a_list_of_tensors_is_a_hole_or_so_many_values(apply: Any, refused: Any, method: Any):
    swapped = rule(
        "rule cat-to-concat\nBefore:\n    %y = aten.cat.default([%a, %b], 0)\n"
        "After:\n    %y = aten.concat.default([%a, %b])\n"
    )
    made = "tensor<4x3xf32>"
    line = f"%y = aten.cat.default([%a, %b], 0) : ({X}, {X}) -> {made}"
    assert apply(method(f"%a: {X}, %b: {X}", line, gives=made), swapped()).count == 1
    line = f"%y = aten.cat.default([%a], 0) : ({X}) -> tensor<2x3xf32>"
    refused(method(f"%a: {X}", line, gives="tensor<2x3xf32>"), swapped())
    listed = rule(
        "rule any-cat\nBefore:\n    %y = aten.cat.default($xs, 0)\n"
        "After:\n    %y = aten.concat.default($xs)\nwhere are_two($xs)\n",
        are_two=lambda values: len(values) == 2,
    )
    line = f"%y = aten.cat.default([%a, %b], 0) : ({X}, {X}) -> {made}"
    assert apply(method(f"%a: {X}, %b: {X}", line, gives=made), listed()).count == 1


def test_a_list_of_sizes_stands_in_place(apply: Any, method: Any):
    merged = rule(
        "rule reshape-of-reshape\nBefore:\n    %a = tosa.reshape(%x, $f)\n"
        "    %y = tosa.reshape(%a, $s) : (…) -> $T\n"
        "After:\n    %y = tosa.reshape(%x, $s) : … -> $T\n"
        'for $f = [6], $s = [3, 2], $T = "tensor<3x2xf32>"\n'
    )
    done = apply(examples_of(merged)[0][0], merged())
    assert done.ops() == ["tosa.const_shape", "tosa.reshape"]


def halves(value: SSAValue, program: Program) -> int | Refusal | None:
    size = dims(value.type)[0]
    assert program.module
    if not isinstance(size, int):
        return None
    return size // 2 if size % 2 == 0 else Refusal(f"{size} rows have no half")


HALVES = """
rule narrow-to-half
Before:
    %y = aten.narrow.default(%x, 0, 0, $n) : (tensor<$R x $C x f32>) -> …
After:
    %y = sliced(%x, $h)
with $h = halves(%x)
where is_it($n, $h)
loses FLUSHED
for $R = 4, $n = 2
"""


def sliced(rw: Rewriter, value: SSAValue, rows: int) -> SSAValue:
    return rw.insert(aten.SliceTensor.make(value, 0, 0, rows)).results[0]


def test_what_is_computed_once_is_known_behind_and_may_refuse(
    apply: Any, refused: Any, method: Any
):
    found = rule(
        HALVES, halves=halves, sliced=sliced, FLUSHED=FLUSHED, is_it=lambda one, other: one == other
    )
    assert found.deviation is FLUSHED
    assert apply(examples_of(found)[0][0], found()).ops() == ["aten.slice.Tensor"]
    line = "%y = aten.narrow.default(%x, 0, 0, 2) : (tensor<3x2xf32>) -> tensor<2x2xf32>"
    text = method("%x: tensor<3x2xf32>", line, gives="tensor<2x2xf32>")
    refused(text, found(), "3 rows have no half")


PLAIN = "rule a\nBefore:\n    %y = aten.relu.default(%x)\nAfter:\n    {}\n{}"


@pytest.mark.parametrize(
    ("after", "clause", "reason"),
    [
        ("%y = aten.nope.default(%x)", "", "no op 'aten.nope.default'"),
        ("%y = xnnpack.nope(%x)", "", "no op 'xnnpack.nope'"),
        ("%y = nowhere.clamp(%x)", "", "no op 'nowhere.clamp'"),
        ("%y = aten.neg.default(%x, 2)", "", "too many arguments"),
        ("%y = xnnpack.clamp(%x, output_most=2.0)", "", "no argument 'output_most'"),
        ("%y = aten.add.Tensor(%x)", "", "other is missing"),
        ("%y = xnnpack.add(%x)", "", "right is missing"),
        ("%y = aten.mul.Scalar(%x, twice(2))", "", "no function 'twice'"),
        ("%y = aten.mul.Scalar(%x, $c)", "", r"\$c is not defined"),
        ("%y = aten.add.Tensor(%x, %z)", "", "%z is not defined"),
        ("%y = aten.mul.Scalar(%x, reciprocal($c))", "", r"\$c is not defined"),
        ("%y = written(%x)", "", "no function 'written'"),
        ("%w = weight nope(%x)\n    %y = aten.mul.Tensor(%x, %w)", "", "no recipe 'nope'"),
        ("%y = $move(%x, …)", "", r"no \$move before"),
        ("%y = aten.clamp.default(%x, …)", "", "no aten.clamp.default before"),
        ("%y = %x", "where is_odd(%x)", "no predicate 'is_odd'"),
        ("%y = %x", "where reads_once(%z)", "%z is not defined"),
        ("%y = %x", "unless nobody(%x)", "no predicate 'nobody'"),
        ("%y = %x", "with $k = nothing(%x)", "no predicate 'nothing'"),
        ("%y = %x", 'proven nothing(%x) else "x"', "no predicate 'nothing'"),
        ("%y = %x", "loses NOTHING", "no deviation 'NOTHING'"),
        ("%y = quant.scast(%x) : … -> tensor<$*S x i8>", "", r"\$S is not defined"),
        ("%y = quant.scast(%x) : … -> tensor<2 x 3 x i9>", "", "no element type 'i9'"),
    ],
)
def test_a_rule_that_names_what_there_is_not_is_refused_when_it_is_read(
    after: str, clause: str, reason: str
):
    with pytest.raises(StepwellError, match=reason):
        rule(PLAIN.format(after, clause))


def test_a_family_that_there_is_not_is_refused_when_it_is_read():
    with pytest.raises(StepwellError, match="no family 'moves'"):
        rule("rule a\nBefore:\n    %y = $m of moves(%x, …)\nAfter:\n    %y = %x\n")


def test_a_value_of_unknown_sizes_replaces_none_of_its_type(refused: Any, method: Any):
    gone = rule(
        "rule a\nBefore:\n    %y = aten.view.default(%x, …)\nAfter:\n    %y = %x\nfor $size = [2, 3]\n"
    )
    loose = "tensor<?x3xf32>"
    line = f"%y = aten.view.default(%x, [-1, 3]) : ({loose}) -> {loose}"
    refused(method(f"%x: {loose}", line, gives=loose), gone())


MOVED = """
rule negate-where-it-stood
Before:
    %a = $node of NODES(%x, …, output_min=none)
    %y = xnnpack.negate(%a)
After:
    %a = $node(%x, …, output_min=$least)
    %y = xnnpack.negate(%a)
where reads_once(%a)
option $least = LEAST: "the least number"
for $node = "xnnpack.add", %right = "tensor<2x3xf32>"
"""


def test_a_value_defined_again_stands_where_it_stood_with_other_fields(apply: Any, method: Any):
    from stepwell.dialects import xnnpack

    known = {"NODES": (xnnpack.Add, xnnpack.Subtract), "LEAST": -1000.0}
    added = f"%a = xnnpack.subtract(%x, %x) : ({X}, {X}) -> {X}"
    between = f"%b = xnnpack.abs(%x) : ({X}) -> {X}"
    end = f"%c = xnnpack.negate(%a) : ({X}) -> {X}"
    last = f"%y = xnnpack.add(%b, %c) : ({X}, {X}) -> {X}"
    text = method(f"%x: {X}", added, between, end, last, gives=X)
    done = apply(text, rule(MOVED, **known)())
    assert done.ops()[0] == "xnnpack.subtract" and "output_min=-1000.0" in done.text
    assert "output_min=-2000.0" in apply(text, rule(MOVED, **known)(-2000.0)).text


@pytest.mark.parametrize(
    ("held", "changed", "reason"),
    [
        ("where reads_once(%a)\n", "", "defined again, and `reads_once"),
        ("output_min=$least", "output_mean=$least", "has no argument 'output_mean'"),
        ("LEAST: ", "MOST: ", "there is no default 'MOST'"),
        ("xnnpack.negate(%a)\nAfter", "xnnpack.negate(%x)\nAfter", "depend on %a"),
    ],
)
def test_what_a_value_defined_again_needs_is_asked_when_it_is_read(
    held: str, changed: str, reason: str
):
    from stepwell.dialects import xnnpack

    known = {"NODES": (xnnpack.Add, xnnpack.Subtract), "LEAST": 0.5}
    with pytest.raises(StepwellError, match=reason):
        rule(MOVED.replace(held, changed, 1), **known)


@pytest.mark.parametrize(
    ("line", "example", "result"),
    [
        (
            "tosa.transpose(%x, perms=[1, 0, 2])",
            """%x = 'tensor<1x?x4xf32, #stepwell.shape<[1, "n", 4]>>'""",
            "tensor<?x1x4xf32",
        ),
        ("tosa.reshape(%x, %s)", f'%x = "{X}", %s = "!tosa.shape<2>"', "tensor<?x?xf32"),
        ("tosa.reshape(%x, %s)", f'%x = "{X}", %s = "!tosa.shape<1>"', "tensor<?xf32"),
    ],
)
def test_sizes_are_those_of_the_result_where_the_operand_has_others(
    line: str, example: str, result: str
):
    again = rule(f"rule again\nBefore:\n    %y = {line}\nAfter:\n    %y = {line}\nfor {example}\n")
    (before, _), *_ = examples_of(again)
    assert f"-> {result}" in before
