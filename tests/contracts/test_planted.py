"""Rewrites wrong in one respect alone are named, with the sample that shows it (`planted.py`)."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.targets.table import find_target
from stepwell.validation.check import check
from stepwell.validation.engine import compare_with_engine
from stepwell.validation.recording import record
from stepwell.validation.samples import make_samples

sys.path.insert(0, str(Path(__file__).parent))
from planted import TABLE, Planted, program

SHOWN = [pytest.param(row, id=row.name) for row in TABLE]


def test_thirty_are_planted_and_most_are_hidden_from_the_first_call() -> None:
    assert len(TABLE) >= 30
    assert sum(row.hidden for row in TABLE) >= 25


@pytest.mark.parametrize("row", SHOWN)
def test_check_names_it_and_the_sample(row: Planted) -> None:
    planted = Pipeline("planted", (row.rewrite,))
    result = check(program(row.model), "xnnpack", planted, artifact=False)
    assert {finding.step for finding in result.findings if finding.step != "verify"} == {row.name}
    samples = {finding.sample for finding in result.findings}
    assert any(row.seen in sample for sample in samples), samples
    assert not row.hidden or not {"example", "random"} & samples


@pytest.mark.parametrize("row", SHOWN)
def test_lower_with_a_check_refuses_it(row: Planted) -> None:
    own = stepwell.PIPELINES["xnnpack"]
    planted = replace(own, steps=(row.rewrite, *own.steps))
    with pytest.raises(stepwell.StepwellError, match=f"check: {row.name}: "):
        stepwell.lower(program(row.model), "xnnpack", planted, check=True)


@pytest.mark.parametrize("model", sorted({row.model for row in TABLE} - {"Whole", "Empty"}))
def test_the_models_themselves_lower_without_a_finding(model: str) -> None:
    result = check(program(model), "xnnpack")
    assert result.ok, str(result)


@pytest.mark.parametrize("model", ["Cache", "Flag", "Turns"])
def test_what_was_tried_stands_in_the_table(model: str) -> None:
    text = str(check(program(model), "xnnpack", artifact=False))
    assert "tried @forward on" in text and "after 6 calls" in text


def test_seven_sizes_of_a_range_are_tried_and_none_outside() -> None:
    (labels,) = check(program("Open"), "xnnpack", artifact=False).tried.values()
    sizes = {int(label.rpartition("=")[2]) for label in labels if "sizes" in label}
    assert len(sizes) >= 5 and sizes <= set(range(2, 40))
    assert {2, 39} <= sizes and any(n % 2 for n in sizes)


def test_an_engine_that_forgets_between_calls_is_found() -> None:
    target = find_target("xnnpack")
    assert target.session is not None
    lowered = stepwell.lower(program("Recurrence"), "xnnpack")
    source = program("Recurrence")
    samples = {"forward": make_samples(source.method(), None)}
    func = lowered.program.method()
    runs = {
        name: [record(func, lowered.program.weights, s) for s in each]
        for name, each in samples.items()
    }
    for session, finds in ((target.session, 0), (forgets, 1)):
        other = replace(target, session=session)
        (verdict,), found, _ = compare_with_engine(other, lowered.artifact, lowered.program, runs)
        assert len(found) == finds, found
        assert "successive calls" in verdict.note
        assert not found or "call 2 of 6" in found[0].sample


def forgets(artifact: bytes) -> Any:
    """A session that loads the artifact anew for each call."""
    return lambda method, inputs: PteSession.load(artifact).run(*inputs, method=method)
