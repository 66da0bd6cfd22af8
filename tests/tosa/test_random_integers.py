"""Random nets in integers keep what each rewrite promised, and the reference model agrees."""

import logging
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings

import stepwell

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "xnnpack"))
from random_integers import Drawn, Rows, rows
from random_quantized import Drawn as Images
from random_quantized import Net, nets

quick = settings(deadline=None, suppress_health_check=list(HealthCheck))
OF_FLOATS = ("mean", "run-time", "transposed")
"""Steps over images that leave a float: no program of integers alone."""


def keeps_its_promises(net: Rows | Net, bits: int) -> None:
    """Every application within a step of what it replaced, the artifact equal bit for bit."""
    logging.disable(logging.WARNING)
    exported = torch.export.export(net.eval(), (net.input,))
    note(str(exported.graph))
    target = "tosa-1.0+int" + "+int16" * (bits == 16)
    result = stepwell.check(exported, target, inputs=(net.input,))
    assert result.ok, str(result)


def of_integers(drawn: Images) -> Images:
    """The net without the steps that leave floats."""
    steps = [(s, c) for s, c in zip(drawn.steps, drawn.clamps, strict=True) if s not in OF_FLOATS]
    steps = steps or [("square", "")]
    end = drawn.end.removeprefix("run-time ")
    return Images(
        tuple(s for s, _ in steps), tuple(c for _, c in steps), end,
        drawn.per_channel, drawn.bias, drawn.seed,
    )  # fmt: skip


@given(rows(most=2))
@settings(quick, max_examples=1)
def test_random_rows_of_integers(drawn: Drawn) -> None:
    keeps_its_promises(Rows(drawn), drawn.bits)


@pytest.mark.slow
@given(rows(most=12))
@settings(quick, max_examples=1000)
def test_longer_random_rows_of_integers(drawn: Drawn) -> None:
    keeps_its_promises(Rows(drawn), drawn.bits)


@pytest.mark.slow
@given(nets(most=10))
@settings(quick, max_examples=1000)
def test_random_images_of_integers(drawn: Images) -> None:
    keeps_its_promises(Net(of_integers(drawn)), 8)
