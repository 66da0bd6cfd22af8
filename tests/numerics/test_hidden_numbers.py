"""A result does not see the numbers that its model hides: in whatever form it is lowered."""

import ast
import inspect
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import stepwell
from stepwell.ir.declared.numerics import Deviation, Proof
from stepwell.translate.range_analysis.assumptions import trusts_finite, trusts_no_nan

sys.path.insert(0, str(Path(__file__).parent))
from hidden import PRODUCERS, ROWS, STATIC_ROWS, Case, Form, cases, is_listed, wrong

ROOT = Path(__file__).parents[2]


class LastRow(nn.Module):
    """The last row that a layer gave, of as many as there are."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.l(x)[:, -1:] * 1


def exported() -> torch.export.ExportedProgram:
    dynamic = {"x": {1: torch.export.Dim("n", min=4, max=12)}}
    return torch.export.export(LastRow().eval(), (torch.randn(2, 8, 6),), dynamic_shapes=dynamic)


@pytest.mark.parametrize("hidden", [torch.nan, torch.inf, -torch.inf])
def test_the_last_row_does_not_see_the_first(hidden: float) -> None:
    program, x = exported(), torch.randn(2, 8, 6)
    x[:, 0, 2] = hidden
    lowered = stepwell.lower(program, "xnnpack")
    torch.testing.assert_close(lowered.run(x)[0], program.module()(x))


@pytest.mark.parametrize("name", ["x", 0], ids=str)
def test_a_range_of_the_input_proves_that_nothing_is_hidden(name: str | int) -> None:
    program = exported()
    lowered = stepwell.lower(program, "xnnpack", ranges={name: (0, 0.1)}, check=True)
    assert (lowered.report.delegates, lowered.report.outside.total()) == (1, 0)
    assert lowered.report.deviations == () and f"{name}: 0 to 0.1" in str(lowered.report)
    x = torch.rand(2, 9, 6) * 0.1
    x[0, 0, 0] = 0.1  # In single precision it is more than in double.
    torch.testing.assert_close(lowered.run(x)[0], program.module()(x))
    for value in (torch.nan, 0.2, -torch.inf):
        x[0, 0, 0] = value
        with pytest.raises(
            stepwell.StepwellError, match=r"outside the declared range 0\.0 to 0\.1"
        ):
            lowered.run(x)


@pytest.mark.parametrize(
    "ranges",
    [{"z": (0, 1)}, {1: (0, 1)}, {"x": (1, 0)}, {"x": (torch.nan, 1)}, {"x": (0, torch.inf)}],
    ids=str,
)
def test_a_range_that_says_nothing_is_refused(ranges: dict[str | int, tuple[float, float]]) -> None:
    with pytest.raises(stepwell.StepwellError, match=r"such inputs are x|two finite numbers"):
        stepwell.lower(exported(), "xnnpack", ranges=ranges)


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
def test_no_form_behind_a_layer_sees_what_it_hides(is_dynamic: bool) -> None:
    for case in cases(is_dynamic, ["linear"]):
        assert wrong(case, stepwell.lower(case.exported(), "xnnpack")) == []


def test_a_form_of_finite_numbers_that_sees_more_is_listed() -> None:
    forms = {"last row": ROWS["last row"], "index_add of": STATIC_ROWS["index_add of"]}
    for name, form in forms.items():
        case = Case({name: form}, "linear", is_image=False, is_dynamic=name == "last row")
        lowered = stepwell.lower(case.exported(), "xnnpack", numerics="finite")
        assert wrong(case, lowered) != [] and is_listed(lowered)


def every_case() -> list[Case]:
    return [case for dynamic in (False, True) for case in cases(dynamic, PRODUCERS)]


@pytest.mark.slow
@pytest.mark.parametrize("numerics", ["torch", "strict"])
def test_no_form_behind_any_producer_sees_what_it_hides(numerics: str) -> None:
    found = [
        (case, seen)
        for case in every_case()
        for seen in wrong(case, stepwell.lower(case.exported(), "xnnpack", numerics=numerics))
    ]
    assert found == []


@pytest.mark.slow
def test_every_form_of_finite_numbers_that_sees_more_is_listed() -> None:
    unlisted: list[tuple[Case, str]] = []
    for case in every_case():
        for name, form in case.forms.items():
            alone = replace(case, forms={name: form})
            lowered = stepwell.lower(alone.exported(), "xnnpack", numerics="finite")
            if wrong(alone, lowered) and not is_listed(lowered):
                unlisted.append((case, name))
    assert unlisted == []


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.avg_pool2d(x, 3, 2, 1) * 1,
        lambda x: F.adaptive_max_pool2d(x, (4, 4)),
        lambda x: F.adaptive_avg_pool2d(x, (4, 4)),
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    ],
)
def test_a_range_of_the_input_proves_what_a_pool_keeps(pool: Form) -> None:
    case = Case({"pool": pool}, "input", is_image=True, is_dynamic=False)
    lowered = stepwell.lower(case.exported(), "xnnpack", ranges={0: (-8, 8)})
    assert lowered.report.deviations == () and lowered.report.delegates == 1
    x = case.input(None)
    torch.testing.assert_close(lowered.run(x), case.model(None)(x))


READINGS = {"interval", "most", "values_of", "carries_nans"}
"""Analyses that are sound, and whose results are no proofs."""


def called(function: ast.AST) -> set[str]:
    return {
        node.func.id
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def test_only_what_holds_for_every_input_is_a_proof() -> None:
    """An analysis that assumes something can refuse, and no deviation is dropped by it."""
    makers: set[str] = set()
    untyped: set[str] = set()
    trusting: dict[str, set[str]] = {}
    for path in sorted(ROOT.glob("translate/**/*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            names = called(node)
            if "Proof" in names:
                makers.add(f"{path.stem}.{node.name}")
            elif names & READINGS and "Deviation" in ast.unparse(node.returns or ast.Constant("")):
                untyped.add(f"{path.stem}.{node.name}")
            if any(name.startswith("trusts_") for name in names):
                trusting.setdefault(f"{path.stem}.{node.name}", names)
    assert makers == {
        "analysis.is_bounded",
        "analysis.is_finite",
        "analysis.is_never_nan",
        "analysis.is_within",
        "analysis.sums_are_finite",
        "analysis.keeps_denormals",
        "attention_pattern.scores_are_finite",
        "choose_by_rank.is_whole_in_rows",
        "clamps.clamp_keeps_nan",
        "clamps.keeps_nans",
        "engine_losses.losses_of_nodes",
        "logarithms.is_beside_its_nan",
        "nans.keeps_nans",
        "powers.has_right_inverse_root",
    }
    assert untyped == set()
    lost = Deviation("a NaN")
    assert lost.unless(Proof("a fact")) is None
    assert [lost.unless(no) for no in (None, False, True)] == [lost] * 3
    assert trusting.keys() == {
        "add_mask_to_scores.add_mask_to_scores",
        "limit_by_mask.limit_by_mask",
        "open_rows.unopened_rows",
        "scans.logcumsumexp_to_steps",
        "selections.choose_by_mask",
        "selections.choose_by_step",
    }
    assert "numerics_of" in trusting["open_rows.unopened_rows"]
    returned = [inspect.signature(f).return_annotation for f in (trusts_finite, trusts_no_nan)]
    assert returned == ["Refusal | None"] * 2
