"""The verifier refuses what the specification forbids and nothing that it allows."""

import pytest

from stepwell.backends.tosa.read import read_tosa
from stepwell.dialects.tosa.targets import EXTENSIONS, PROFILES, TosaTarget
from stepwell.ir.diagnostics import StepwellError

from .graphs import conformance

EVERYTHING = TosaTarget("1.1", frozenset(PROFILES), frozenset(EXTENSIONS))
"""At level 8K."""
OF_A_LEVEL = "_ERRORIF_WrongRank_"
"""Graphs that the generator calls wrong and level none allows: tensors of seven axes."""


@pytest.mark.parametrize("name", sorted(conformance("negative")))
def test_a_graph_made_wrong_is_refused_with_a_reason(name: str) -> None:
    data = conformance("negative")[name]["test.tosa"]
    try:
        program = read_tosa(data)
        program.verify()
    except StepwellError as caught:
        assert caught.problems[0].fact
        return
    assert OF_A_LEVEL in name
    assert "rank 7 is above 6" in next(EVERYTHING.problems(program.module)).fact
