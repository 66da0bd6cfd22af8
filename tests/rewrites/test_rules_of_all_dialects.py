"""Rules over ops that no torch schema declares, and over weights, families and computed types."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from rewrite_cases import cases
from xdsl.ir import SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.ir.declared.numerics import FLUSHED
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims
from stepwell.ir.weights import recipe
from stepwell.translate.rules import read_rules
from stepwell.translate.rules.examples import examples_of


@recipe("doubled-for-a-test")
def doubled(weight: torch.Tensor, *, times: int) -> torch.Tensor:
    return weight * times


def at_front(shape: Sequence[Any]) -> list[Any]:
    return [*shape[-1:], *shape[:-1]]


def halves(value: SSAValue, program: Program) -> int | Refusal | None:
    size = dims(value.type)[0]
    assert program.module
    if not isinstance(size, int):
        return None
    return size // 2 if size % 2 == 0 else Refusal(f"{size} rows have no half")


def sliced(rw: Rewriter, value: SSAValue, rows: int) -> SSAValue:
    return rw.insert(aten.SliceTensor.make(value, 0, 0, rows)).results[0]


NAMES: dict[str, Any] = {
    "__name__": __name__,
    "FLUSHED": FLUSHED,
    "NODES": (xnnpack.Add, xnnpack.Subtract),
    "LEAST": -1000.0,
    "turns": (aten.TDefault, aten.PermuteDefault),
    "turned": lambda order: order[::-1],
    "is_square": lambda value: True,
    "are_two": lambda values: len(values) == 2,
    "is_it": lambda one, other: one == other,
    "at_front": at_front,
    "halves": halves,
    "sliced": sliced,
}


def rule(text: str) -> Any:
    (found,) = read_rules(text, NAMES)
    return found


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
RULES = read_rules(
    """
rule transpose-of-transpose
Before:
    %a = xnnpack.static_transpose(%x, perm=$p)
    %y = xnnpack.static_transpose(%a, perm=[1, 0])
After:
    %y = xnnpack.static_transpose(%x, perm=turned($p))
where is_square(%x)
for $p = [0, 1]

rule add-to-subtract
Before:
    %y = xnnpack.add(%x, %x)
After:
    %y = xnnpack.subtract(%x, %x)

rule weight-of-doubled
Before:
    %w = weight : tensor<$N x f32>
    %m = aten.mul.Scalar(%x, 2)
    %y = aten.mul.Tensor(%m, %w)
After:
    %v = weight doubled-for-a-test(%w, times=2)
    %y = aten.mul.Tensor(%x, %v)
for $N = 3, %w = "w#positive"

rule neg-of-movement
Before:
    %n = aten.neg.default(%x) : (tensor<$*S x $E>) -> …
    %y = $move of turns(%n, …)
After:
    %m = $move(%x, …) : … -> tensor<*at_front($S) x $E>
    %y = aten.neg.default(%m)
for $move = "aten.t.default"

rule first-two-of-three
Before:
    %a, %b, %c = aten.unbind.int(%x, 0)
After:
    %a = aten.select.int(%x, 0, 0)
    %b = aten.select.int(%x, 0, 1)
where is_unread(%c) else "the third is read"
for $S = [3, 2]

rule cat-to-concat
Before:
    %y = aten.cat.default([%a, %b], 0)
After:
    %y = aten.concat.default([%a, %b])

rule any-cat
Before:
    %y = aten.cat.default($xs, 0)
After:
    %y = aten.concat.default($xs)
where are_two($xs)

rule reshape-of-reshape
Before:
    %a = tosa.reshape(%x, $f)
    %y = tosa.reshape(%a, $s) : (…) -> $T
After:
    %y = tosa.reshape(%x, $s) : … -> $T
for $f = [6], $s = [3, 2], $T = "tensor<3x2xf32>"

rule narrow-to-half
Before:
    %y = aten.narrow.default(%x, 0, 0, $n) : (tensor<$R x $C x f32>) -> …
After:
    %y = sliced(%x, $h)
with $h = halves(%x)
where is_it($n, $h)
loses FLUSHED
for $R = 4, $n = 2

rule view-of-its-type
Before:
    %y = aten.view.default(%x, …)
After:
    %y = %x
for $size = [2, 3]
"""
    + MOVED,
    NAMES,
)
RULE = {found.name: found for found in RULES}


test_rules_of_all_dialects = cases(list(RULES))("""
transpose-of-transpose: fields of an op are numbers and lists by name -> writes %y = xnnpack.static_transpose(%x, perm=[1, 0])
    %a = xnnpack.static_transpose(%x: f32[2, 3], perm=[0, 1])
    %y = xnnpack.static_transpose(%a, perm=[1, 0])
transpose-of-transpose: another field -> unchanged
    %a = xnnpack.static_transpose(%x: f32[2, 3], perm=[0, 1])
    %y = xnnpack.static_transpose(%a, perm=[0, 1])
add-to-subtract: a field that is not written is not there -> unchanged
    %y = xnnpack.add(%x: f32[2, 3], %x, output_min=0.0)
weight-of-doubled: a weight is matched and another derived of it -> aten.mul.Tensor; writes w#doubled-for-a-test
    %m = aten.mul.Scalar(%x: f32[2, 3], 2); %y = aten.mul.Tensor(%m, %w: weight f32[3])
weight-of-doubled: an input is no weight -> unchanged
    %m = aten.mul.Scalar(%x: f32[2, 3], 2); %y = aten.mul.Tensor(%m, %w: f32[3])
neg-of-movement: an op of a family is written again of other operands -> aten.permute.default, aten.neg.default
    %n = aten.neg.default(%x: f32[2, 3]); %y = aten.permute.default(%n, [1, 0])
neg-of-movement: an op of another family -> unchanged
    %n = aten.neg.default(%x: f32[2, 3]); %y = aten.transpose.int(%n, 1, 0)
first-two-of-three: several results are replaced under their names -> aten.select.int, aten.select.int, aten.sub.Tensor
    %a, %b, %c = aten.unbind.int(%x: f32[3, 2], 0); %y = aten.sub.Tensor(%b, %a)
first-two-of-three: a result that is read -> refused: the third is read
    %a, %b, %c = aten.unbind.int(%x: f32[3, 2], 0); %y = aten.sub.Tensor(%b, %c)
first-two-of-three: another number of results -> unchanged
    %a, %b = aten.unbind.int(%x: f32[2, 2], 0); %y = aten.sub.Tensor(%b, %a)
cat-to-concat: a list of tensors is so many values -> applied once
    %y = aten.cat.default([%a: f32[2, 3], %b: f32[2, 3]], 0)
cat-to-concat: a list of fewer values -> unchanged
    %y = aten.cat.default([%a: f32[2, 3]], 0)
any-cat: a list of tensors is a hole -> applied once
    %y = aten.cat.default([%a: f32[2, 3], %b: f32[2, 3]], 0)
reshape-of-reshape: a list of sizes stands in place -> tosa.const_shape, tosa.reshape
    %a = tosa.reshape(%x: f32[2, 3], [6]); %y = tosa.reshape(%a, [3, 2])
narrow-to-half: what is computed once is known behind -> aten.slice.Tensor
    %y = aten.narrow.default(%x: f32[4, 3], 0, 0, 2)
narrow-to-half: what is computed may refuse -> refused: 3 rows have no half
    %y = aten.narrow.default(%x: f32[3, 2], 0, 0, 2)
view-of-its-type: a value of unknown sizes replaces none of its type -> unchanged
    %y = aten.view.default(%x: f32[?, 3], [-1, 3]) -> f32[?, 3]
""")


def test_declared_facts_of_rules_are_those_of_their_texts():
    assert RULE["narrow-to-half"].deviation is FLUSHED
    anchors = [anchor.name for anchor in RULE["neg-of-movement"].anchors]
    assert anchors == ["aten.t.default", "aten.permute.default"]


def test_a_whole_type_and_a_computed_element_are_types():
    named = rule("""
rule dequantize-what-is-named-again
Before:
    %y = quant.dcast(%q) : (tensor<$*S x $Q>) -> $T
After:
    %r = quant.scast(%q) : … -> tensor<$*S x storage($Q)>
    %n = quant.scast(%r) : … -> tensor<$*S x $Q>
    %y = quant.dcast(%n) : … -> $T
where reads_once(%q)
for $S = [4], $Q = "!quant.uniform<i8:f32, 0.5:3>", $T = "tensor<4xf32>"
""")
    ((_, after),) = examples_of(named)
    assert "%r = quant.scast %q" in after
    assert "to tensor<4xi8>" in after


PLAIN = "rule a\nBefore:\n    %y = aten.relu.default(%x)\nAfter:\n    {}\n{}"


@pytest.mark.parametrize(
    ("after", "clause", "reason"),
    [
        ("%y = aten.nope.default(%x)", "", "the op 'aten.nope.default' does not exist"),
        ("%y = xnnpack.nope(%x)", "", "the op 'xnnpack.nope' does not exist"),
        ("%y = nowhere.clamp(%x)", "", "the op 'nowhere.clamp' does not exist"),
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


def test_a_value_defined_again_stands_where_it_stood_with_other_fields(apply: Any):
    text = """
        %a = xnnpack.subtract(%x: f32[2, 3], %x); %b = xnnpack.abs(%x)
        %c = xnnpack.negate(%a); %y = xnnpack.add(%b, %c)
    """
    done = apply(text, RULE["negate-where-it-stood"]())
    assert done.ops()[0] == "xnnpack.subtract" and "output_min=-1000.0" in done.text
    assert "output_min=-2000.0" in apply(text, RULE["negate-where-it-stood"](-2000.0)).text


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
    with pytest.raises(StepwellError, match=reason):
        rule(MOVED.replace(held, changed, 1))


@pytest.mark.parametrize(
    ("line", "example", "result"),
    [
        (
            "tosa.transpose(%x, perms=[1, 0, 2])",
            """%x = 'tensor<1x?x4xf32, #stepwell.shape<[1, "n", 4]>>'""",
            "tensor<?x1x4xf32",
        ),
        ("tosa.reshape(%x, %s)", '%x = "tensor<2x3xf32>", %s = "!tosa.shape<2>"', "tensor<?x?xf32"),
        ("tosa.reshape(%x, %s)", '%x = "tensor<2x3xf32>", %s = "!tosa.shape<1>"', "tensor<?xf32"),
    ],
)
def test_sizes_are_those_of_the_result_where_the_operand_has_others(
    line: str, example: str, result: str
):
    again = rule(f"rule again\nBefore:\n    %y = {line}\nAfter:\n    %y = {line}\nfor {example}\n")
    (before, _), *_ = examples_of(again)
    assert f"-> {result}" in before
