"""Random quantized nets: what stock computes, bit for bit.

What is promised at every step `tests/random_programs` proves (`checked: xnnpack, int8`).
"""

import logging

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, note, settings
from random_quantized import Drawn, Net, nets
from test_quantized import lowered, stock
from torch.export import ExportedProgram

unshrunk = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate]
)
"""Stock takes seconds for each net."""


def exported(drawn: Drawn) -> tuple[Net, ExportedProgram]:
    """The net and its program."""
    logging.disable(logging.WARNING)
    net = Net(drawn).eval()
    ep = torch.export.export(net, (net.input,))
    note(str(ep.graph))
    return net, ep


def equals_stock(drawn: Drawn) -> None:
    """The runtime gives the same bits for both flows' programs."""
    net, ep = exported(drawn)
    made = lowered(ep)
    assert made.report.delegates == 1 and not made.report.outside
    trials = [net.input, torch.randn_like(net.input)]
    for trial, want in zip(trials, stock(ep, trials), strict=True):
        assert torch.equal(made.run(trial)[0], want)


@given(nets(most=3, for_stock=True))
@settings(unshrunk, max_examples=2)
def test_a_random_net_equals_stock_bit_for_bit(drawn: Drawn) -> None:
    equals_stock(drawn)


@pytest.mark.slow
@given(nets(most=10, for_stock=True))
@settings(unshrunk, max_examples=300)
def test_longer_random_nets_equal_stock_too(drawn: Drawn) -> None:
    equals_stock(drawn)
