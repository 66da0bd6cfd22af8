"""What engines do with special values, as measured, and who uses it."""

import math
import sys
from pathlib import Path

import pytest
import torch

import stepwell
from stepwell.ir.declared.engine_behavior import engine_behavior, engines

sys.path.insert(0, str(Path(__file__).parent))
from engine_classes import losses_by_engine
from planted_engine_losses import PLANTED, exported


def lowered(function: object, *inputs: torch.Tensor) -> stepwell.Program:
    """A function's program of XNNPACK's nodes."""

    class Model(torch.nn.Module):
        def forward(self, *given: torch.Tensor) -> torch.Tensor:
            return function(*given)  # type: ignore[operator]

    return stepwell.lower(torch.export.export(Model(), inputs), "xnnpack").program


def test_a_node_follows_the_engine_that_is_asked_for() -> None:
    program = lowered(torch.exp, torch.zeros(8))
    x = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.0, 88.5, 89.0, -200.0])
    assert torch.equal(program.run(x)[0].nan_to_num(7), x.exp().nan_to_num(7))
    for engine in engines():
        (got,) = program.run(x, engine=engine)
        changes = engine_behavior("xnnpack.exp", "f32", engine).changes
        at_nan = [change.result for change in changes if math.isnan(change.operands[0][0])]
        assert [str(got[0].item())] == ([str(float(r)) for r in at_nan] or ["nan"])
        assert torch.equal(got[[2, 3, 4, 6]], x.exp()[[2, 3, 4, 6]])


def test_denormal_numbers_are_flushed_as_measured() -> None:
    program = lowered(torch.sqrt, torch.zeros(2))
    for engine in engines():
        assert program.run(torch.tensor([1e-40, 4.0]), engine=engine)[0].tolist() == [0.0, 2.0]


def test_an_engine_that_was_not_measured_is_refused() -> None:
    program = lowered(torch.exp, torch.zeros(2))
    with pytest.raises(stepwell.StepwellError, match="xnnpack/avx512"):
        program.run(torch.zeros(2), engine="xnnpack/altivec")


def test_a_program_without_nodes_of_the_engine_is_refused() -> None:
    program = stepwell.from_exported_program(exported("planted-cosh-by-exp"))
    with pytest.raises(stepwell.StepwellError, match="lower it first"):
        program.run(torch.zeros(4, 14), engine="xnnpack/avx512")


def test_a_node_without_an_entry_may_make_anything_of_a_nan() -> None:
    found = engine_behavior("xnnpack.of_tomorrow", "f32", engines()[0])
    assert not found.is_known
    assert not found.keeps([(0.0, 1.0, True)])
    assert not found.keeps([(0.0, 1.0, False)])


def test_what_an_operand_cannot_be_is_not_lost() -> None:
    found = [engine_behavior("xnnpack.exp", "f32", engine) for engine in engines()]
    assert all(behavior.keeps([(-10.0, 10.0, False)]) for behavior in found)
    assert not all(behavior.keeps([(-10.0, 10.0, True)]) for behavior in found)


@pytest.mark.parametrize("name", PLANTED)
def test_a_rewrite_that_loses_a_class_on_an_engine_is_named(name: str) -> None:
    program, rule = exported(name), PLANTED[name]()
    assert losses_by_engine(stepwell.from_exported_program(program), [rule])
    report = stepwell.lower(program, "xnnpack", lambda own: own.before("normalise", rule)).report
    reasons = [refusal.reason for refusal in report.refusals if refusal.rewrite == name]
    assert len(reasons) == 1 and " on xnnpack/" in reasons[0]


def test_a_loss_of_a_rewrite_is_listed_where_it_is_allowed() -> None:
    name = "planted-cosh-by-exp"
    lowering = stepwell.lower(
        exported(name),
        "xnnpack",
        lambda own: own.before("normalise", PLANTED[name]()),
        numerics="finite",
    )
    assert [taken.rewrite for taken in lowering.report.deviations] == [name]
    assert "xnnpack.exp on xnnpack/" in lowering.report.deviations[0].loses
