"""A step that makes a mistake leaves its op outside, whole, and the report says so."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from xdsl.ir import Operation

import stepwell
from stepwell.dialects import aten
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.failures import SWITCH, StepFailure
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import Rewrite, Rewriter


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x + 1)
        return torch.relu(y * x) - torch.sigmoid(x)


X = torch.linspace(-3, 3, 12).reshape(3, 4)


@dataclass(frozen=True)
class Fails(Rewrite[Any]):
    """Swaps the operands of a product, inserts an op, erases nothing, and raises at the relu."""

    name: ClassVar[str] = "fails"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ReluDefault, aten.SigmoidDefault)
    how: str = "build"

    def match(self, op: Any, program: Program) -> Any:
        if self.how == "match":
            raise KeyError("nothing here")
        return op

    def build(self, match: Any, rw: Rewriter) -> None:
        if self.how == "breaks":
            x = match.operands[0]
            new = aten.MmDefault.make(x, x, result_types=[match.results[0].type])
            return rw.replace(match, [rw.insert(new).results[0]])
        kept = [match.results[0].type]
        wrong = rw.insert(aten.NegDefault.make(match.operands[0], result_types=kept))
        rw.replace_value(match.results[0], wrong.results[0])
        match.operands[0] = wrong.results[0]
        rw.weights.constant(torch.ones(3))
        if self.how == "refuses":
            raise StepwellError("the sizes summed over differ: 3 - 4")
        raise IndexError("no such axis")


@pytest.fixture
def as_users_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH)


def lowered(how: str, **options: Any) -> stepwell.Lowered:
    exported = torch.export.export(Model(), (X,))
    pipeline = Pipeline("planted", (Fails(how), *stepwell.PIPELINES["xnnpack"].steps))
    return stepwell.lower(exported, "xnnpack", pipeline, **options)


@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize("how", ["match", "build", "refuses", "breaks"])
def test_a_step_that_fails_leaves_its_op_and_the_lowering_goes_on(how: str) -> None:
    found = lowered(how)
    left = [r for r in found.report.refusals if r.rewrite == "fails"]
    assert {r.op for r in left} == {"aten.relu.default", "aten.sigmoid.default"}
    assert len(left) == 3
    for record in left:
        assert record.reason.startswith("an internal error: fails")
        assert record.reason.endswith("; the op is left as it was")
        assert "test_left_alone.py:" in record.reason and "/" not in record.reason.split("(")[-1]
        assert record.where is not None and "test_left_alone.py" in record.where
    assert "an internal error" in str(found.report)
    plain = stepwell.lower(torch.export.export(Model(), (X,)), "xnnpack")
    assert found.to_pte() == plain.to_pte()


@pytest.mark.usefixtures("as_users_have_it")
def test_what_was_left_alone_is_checked_like_the_rest() -> None:
    found = lowered("build", check=True)
    assert found.report.check is not None and found.report.check.ok


def test_the_switch_makes_every_mistake_an_error() -> None:
    with pytest.raises(StepFailure, match="fails in build, IndexError: no such axis"):
        lowered("build")


@pytest.mark.usefixtures("as_users_have_it")
def test_a_step_that_fails_wherever_it_looks_ends_the_lowering_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stepwell.ir.rewriting.failures.MOST_LEFT", 1)
    with pytest.raises(StepFailure, match="fails in match"):
        lowered("match")


@pytest.mark.usefixtures("as_users_have_it")
def test_a_table_that_names_what_cannot_be_chosen_is_its_users_mistake() -> None:
    from stepwell.ir.context import ChoiceError

    program = stepwell.from_exported_program(torch.export.export(Model(), (X,)))
    program.context.options = {"tuned": {"fold small": "never"}}
    with pytest.raises(ChoiceError, match="'never'"):
        program.context.choose("fold", "small", {"here": 1.0, "there": 2.0})
