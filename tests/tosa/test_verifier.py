"""The verifier refuses what the specification forbids and nothing that it allows."""

import pytest

from stepwell.backends.tosa.read import read_tosa
from stepwell.ir.diagnostics import StepwellError

from .graphs import conformance


@pytest.mark.parametrize("name", sorted(conformance("negative")))
def test_a_graph_made_wrong_is_refused_with_a_reason(name: str) -> None:
    with pytest.raises(StepwellError) as caught:
        read_tosa(conformance("negative")[name]["test.tosa"]).verify()
    assert caught.value.problems[0].fact
