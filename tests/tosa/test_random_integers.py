"""Random nets in integers keep what each rewrite promised, and the reference model agrees."""

import logging
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings

import stepwell

sys.path.insert(0, str(Path(__file__).parent))
from random_integers import Drawn, Rows, rows

quick = settings(deadline=None, suppress_health_check=list(HealthCheck))


def keeps_its_promises(drawn: Drawn) -> None:
    """Every application within a step of what it replaced, the artifact equal bit for bit."""
    logging.disable(logging.WARNING)
    net = Rows(drawn)
    exported = torch.export.export(net.eval(), (net.input,))
    note(str(exported.graph))
    target = "tosa-1.0+int" + "+int16" * (drawn.bits == 16)
    result = stepwell.check(exported, target, inputs=(net.input,))
    assert result.ok, str(result)


@given(rows(most=2))
@settings(quick, max_examples=1)
def test_random_rows_of_integers(drawn: Drawn) -> None:
    keeps_its_promises(drawn)


@pytest.mark.slow
@given(rows(most=12))
@settings(quick, max_examples=1000)
def test_longer_random_rows_of_integers(drawn: Drawn) -> None:
    keeps_its_promises(drawn)
