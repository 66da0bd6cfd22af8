"""Legalization: whole operations are lowered before others are decomposed, and parts after them."""

from collections import Counter

import stepwell
from stepwell.ir.rewriting.history import History
from stepwell.ir.rewriting.legalization import Legalize, ThenCanonicalize, ThenDecompose, ThenLower
from stepwell.pipelines.pass_pipeline.pipeline_text import parse_steps, spell_step
from stepwell.translate.decompositions.conversion import ConversionTarget
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.tosa import reductions
from stepwell.translate.rules import read_rules

RULES = read_rules(
    """
rule lower-sigmoid
    A node of the target stands for it: `hardsigmoid`.
Before:
    %y = aten.sigmoid.default(%x)
After:
    %y = aten.hardsigmoid.default(%x)

rule lower-whole-silu
    A node of the target stands for it: `hardswish`.
Before:
    %y = aten.silu.default(%x)
After:
    %y = aten.hardswish.default(%x)

rule decompose-silu
    A product with a sigmoid.
Before:
    %y = aten.silu.default(%x) : (tensor<$*S x $E>) -> …
After:
    %n = aten.neg.default(%x) : … -> tensor<$*S x $E>
    %m = aten.neg.default(%n) : … -> tensor<$*S x $E>
    %s = aten.sigmoid.default(%m) : … -> tensor<$*S x $E>
    %y = aten.mul.Tensor(%x, %s)

rule cancel-negations
    Twice is not at all.
Before:
    %n = aten.neg.default(%x)
    %y = aten.neg.default(%n)
After:
    %y = %x
""",
    {**globals(), "__name__": __name__},
)
SIGMOID, WHOLE, DECOMPOSE, CANCEL = (rule() for rule in RULES)
TEXT = """
func.func @forward(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = aten.silu.default(%x) : (tensor<2xf32>) -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}
"""


def ops(step: Legalize) -> tuple[list[str], Counter[str]]:
    program, history = stepwell.parse(TEXT), History()
    assert step.apply(program, history) == len(history.events)
    method = program.methods["forward"]
    return [op.name for op in method.walk()][1:-1], Counter(e.rewrite for e in history.events)


def test_the_parts_of_a_decomposed_operation_are_canonicalized_and_lowered() -> None:
    step = Legalize("legalize", (SIGMOID, ThenDecompose(), DECOMPOSE, ThenCanonicalize(), CANCEL))
    found, applied = ops(step)
    assert found == ["aten.hardsigmoid.default", "aten.mul.Tensor"]
    assert applied == {"decompose-silu": 1, "cancel-negations": 1, "lower-sigmoid": 1}


def test_a_whole_operation_with_a_lowering_is_not_decomposed() -> None:
    step = Legalize("legalize", (SIGMOID, ThenLower("whole"), WHOLE, ThenDecompose(), DECOMPOSE))
    found, applied = ops(step)
    assert found == ["aten.hardswish.default"] and applied == {"lower-whole-silu": 1}


def test_a_legalization_reads_back_from_its_text() -> None:
    text = 'legalize(glu-to-sigmoid,then-decompose,silu-to-sigmoid,then-lower{label="rest"},relu-to-clamp)'
    (step,) = parse_steps(text)
    assert isinstance(step, Legalize) and spell_step(step) == text
    names = [[rewrite.name for rewrite in phase] for phase in step.phases[ThenLower]]
    assert names == [["glu-to-sigmoid"], ["relu-to-clamp"]]


def test_a_target_needs_decompositions_of_what_it_lacks_and_those_that_name_it():
    def names(target: ConversionTarget, phase: str = "decompose") -> set[str]:
        return {rewrite.name for rewrite in target.phase(phase)}

    lacks_all = ConversionTarget("toy", ())
    assert {"expand-power", "cumsum-to-additions"} <= names(lacks_all)
    scans = ConversionTarget("toy", (step(reductions.cumsum),))
    assert names(lacks_all) - names(scans) == {"cumsum-to-additions"}
    assert "volumes-to-images" in names(ConversionTarget("xnnpack", ())) - names(lacks_all)
    (expand,) = ConversionTarget("tosa", ()).phase("attention")
    assert spell_step(expand) == "expand-attention{lays_out_triangles=true}"
