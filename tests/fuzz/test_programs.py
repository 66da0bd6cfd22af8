"""Random programs keep their meaning: through import, text, each target and each artifact."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, event, given, note, settings

import stepwell
from stepwell.ir.rewriting.failures import StepFailure
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.ir.syntax.text import structurally_equal
from stepwell.validation.compare import differs

sys.path.insert(0, str(Path(__file__).parent))
from programs import Drawn, programs

KERNELS = Bound(1e-4, 2e-5, "float kernels reassociate and approximate")
bounded = settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def imported(drawn: Drawn) -> tuple[stepwell.Program, tuple[torch.Tensor, ...]]:
    with torch.no_grad():
        expected = drawn.module(*drawn.inputs)
    exported = torch.export.export(drawn.module, drawn.inputs)
    note(str(exported.graph))
    return stepwell.from_exported_program(exported), expected


def agree(
    given_: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...], bound: Bound
) -> None:
    assert len(given_) == len(expected)
    for got, wanted in zip(given_, expected, strict=True):
        difference = differs(wanted, got, bound, against="tensor")
        assert difference is None, str(difference)


def meaning_survives_import_and_text(drawn: Drawn) -> None:
    program, expected = imported(drawn)
    program.verify()
    agree(program.run(*drawn.inputs), expected, Bound(1e-6, 1e-7))
    again = stepwell.parse(str(program), program.weights)
    again.verify()
    assert structurally_equal(program.module, again.module)
    assert str(again) == str(program)


def meaning_survives_xnnpack(drawn: Drawn) -> None:
    program, expected = imported(drawn)
    before = str(program)
    lowered = stepwell.lower(program, "xnnpack")
    assert str(program) == before, "lower changed its argument"
    agree(lowered.program.run(*drawn.inputs), expected, KERNELS)
    pte = lowered.to_pte()
    assert pte == stepwell.lower(program, "xnnpack").to_pte(), "two lowerings differ"
    agree(lowered.run(*drawn.inputs), expected, KERNELS)


def meaning_survives_tosa(drawn: Drawn, *, engine: bool) -> None:
    program, expected = imported(drawn)
    try:
        lowered = stepwell.lower(program, "tosa-1.1+fp+int")
    except stepwell.StepwellError as error:
        assert not isinstance(error, StepFailure), error
        assert all(problem.fact for problem in error.problems)
        event("refused")
        return
    event("lowered")
    agree(lowered.program.run(*drawn.inputs), expected, KERNELS)
    if engine:
        agree(lowered.run(*drawn.inputs), expected, KERNELS)


@bounded
@given(programs())
def test_random_programs_survive_import_and_text(drawn: Drawn) -> None:
    meaning_survives_import_and_text(drawn)


@bounded
@given(programs())
def test_random_programs_survive_xnnpack(drawn: Drawn) -> None:
    meaning_survives_xnnpack(drawn)


@bounded
@given(programs())
def test_random_programs_survive_tosa(drawn: Drawn) -> None:
    meaning_survives_tosa(drawn, engine=False)


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck))
@given(programs(most_steps=16))
def test_many_random_programs_survive_import_and_text(drawn: Drawn) -> None:
    meaning_survives_import_and_text(drawn)


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck))
@given(programs(most_steps=16))
def test_many_random_programs_survive_xnnpack(drawn: Drawn) -> None:
    meaning_survives_xnnpack(drawn)


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck))
@given(programs(most_steps=16))
def test_many_random_programs_survive_the_tosa_reference_model(drawn: Drawn) -> None:
    meaning_survives_tosa(drawn, engine=True)
