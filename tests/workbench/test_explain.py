"""`explain` says where each op of a model went, and why some stayed."""

import json
from dataclasses import dataclass

import pytest
import torch
from eager import exported, lower
from rewrite_runs import program_of

import stepwell
from stepwell.dialects import aten
from stepwell.inspection.reports.explaining import Explanation, explain
from stepwell.ir.rewriting.rewrite import History, Pass


class Model(torch.nn.Module):
    """An op of each fate: delegate, folded, removed, kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(8, 8)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.drop(self.fc(x)))
        return torch.atan(y) + y


@pytest.fixture
def explanation() -> Explanation:
    return explain(exported(Model(), torch.randn(3, 8)), "xnnpack")


@dataclass(frozen=True)
class CountAbs(Pass):
    """Count the absolute values of a program."""

    name = "count-abs"

    def apply(self, program: stepwell.Program, history: History) -> int:
        """Change nothing."""
        ops = program.module.walk()
        program.report("abs", sum(isinstance(op, aten.AbsDefault) for op in ops))
        return 0


def test_every_op_of_the_model_has_one_fate(explanation: Explanation) -> None:
    nodes = [fate.node for fate in explanation.fates]
    assert sorted(nodes) == sorted(set(nodes))
    assert {"linear", "relu", "atan", "add"} <= set(nodes)


def test_the_costliest_op_stands_first(explanation: Explanation) -> None:
    assert explanation.fates[0].op == "aten.linear.default"
    costs = [fate.cost for fate in explanation.fates]
    assert costs == sorted(costs, reverse=True)
    assert explanation.fates[0].cost == 3 * 8 * 8


def test_a_delegated_op_names_its_delegate_and_what_it_became(explanation: Explanation) -> None:
    fate = explanation.fate("linear")
    assert fate.where.startswith("delegate")
    assert fate.became == ("xnnpack.fully_connected",)
    assert "lower-linear" in fate.by


def test_an_activation_fused_into_its_producer_names_it(explanation: Explanation) -> None:
    fate = explanation.fate("relu")
    assert fate.where == "folded" and fate.into == "linear"


def test_an_op_left_to_a_kernel_says_why(explanation: Explanation) -> None:
    fate = explanation.fate("atan")
    assert fate.where == "kernel" and fate.why
    assert fate in explanation.outside


def test_source_lines_are_those_of_the_model(explanation: Explanation) -> None:
    line = explanation.fate("atan").line
    assert line is not None and line.startswith("test_explain.py:")


def test_json_and_notebook_forms_hold_every_row(explanation: Explanation) -> None:
    rows = json.loads(explanation.to_json())["ops"]
    assert len(rows) == len(explanation.fates)
    html = explanation._repr_html_()
    assert all(fate.node in html for fate in explanation.fates)
    report = lower(Model(), torch.randn(3, 8)).report
    assert "<script" not in report._repr_html_()


class Varied(torch.nn.Module):
    """A weight that is computed, a double, and an operator that XNNPACK does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(8, 8).double()
        self.table = torch.nn.Embedding(10, 8)

    def forward(
        self, x: torch.Tensor, i: torch.Tensor, image: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        image = torch.nn.functional.conv_transpose2d(image, weight)
        return self.fc(x), self.table(i), image


def test_what_to_change_in_the_model_stands_first_and_the_costliest_change_before_others() -> None:
    inputs = (
        torch.randn(2, 8, dtype=torch.float64),
        torch.tensor([1]),
        torch.randn(1, 3, 9, 9),
        torch.randn(3, 4, 3, 3),
    )
    source = exported(Varied(), *inputs)
    report = stepwell.lower(source, "xnnpack").report
    constant, cast, nothing = report.advice
    assert constant.change.startswith("make it a constant of the model")
    assert constant.ops == {"aten.convolution.default": 1}
    assert constant.lines[0].startswith("test_explain.py:")
    assert cast.change.startswith("give it one dtype") and cast.share < constant.share
    assert nothing.change == "" and nothing.ops == {"aten.embedding.default": 1}
    assert sum(advice.share for advice in report.advice) == pytest.approx(1.0)
    for text in (str(report), str(explain(source, "xnnpack"))):
        at = [
            text.index(f)
            for f in ("model changes, the most effective first", constant.change, cast.change)
        ]
        assert at == sorted(at) and at[-1] < max(
            text.find("refused:"), text.find("op of the model")
        )


def test_a_float_model_for_a_microcontroller_is_told_to_be_quantized() -> None:
    (first, *_) = lower(Model(), torch.randn(3, 8), target="cortex-m55").report.advice
    assert first.change.startswith("quantize it first: --quantize int8")


def test_nothing_is_advised_where_nothing_is_left() -> None:
    report = lower(torch.nn.Linear(8, 8), torch.randn(3, 8)).report
    assert report.advice == [] and "to change" not in str(report)


@pytest.mark.parametrize("target", ["tosa-1.0+fp", "vgf"])
def test_operators_of_the_target_itself_are_not_left_to_kernels(target: str) -> None:
    report = lower(torch.nn.Linear(8, 8), torch.randn(3, 8), target=target).report
    assert (report.outside.total(), report.left, report.work) == (0, (), 0)


def test_statistics_of_rewrites_and_passes_are_reported() -> None:
    program = program_of("%a = aten.neg.default(%x: f32[2, 3]); %b = aten.abs.default(%a)")
    report = stepwell.lower(
        program, "xnnpack", lambda own: own.before("normalize", CountAbs)
    ).report
    assert report.statistics["count-abs"] == {"abs": 1}
    assert report.statistics["partition-xnnpack"]["nodes in delegates"] == 2
    assert "count-abs: abs × 1" in str(report)
