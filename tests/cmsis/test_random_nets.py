"""Random quantized nets: one unit for each op, one meaning on every core and through the bytes."""

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer as StockQuantizer
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from stepwell.backends.cortex_m.emit import to_pte
from stepwell.backends.cortex_m.read import read_pte
from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

sys.path.insert(0, str(Path(__file__).parent))
from random_nets import Drawn, nets

bounded = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
CORES = ("cortex-m55", "cortex-m4", "cortex-m0")


def one_meaning(drawn: Drawn, quantizer: Any, lower_for: Any, quantized: Any) -> None:
    logging.disable(logging.WARNING)
    exported = quantized(drawn.net, (drawn.input,), quantizer)
    note(str(exported.graph))
    results = [lower_for(core)(exported) for core in CORES]
    graph = exported.module(check_guards=False)
    explained = {record.node for record in results[0].refusals}
    assert explained or not results[0].floats, "a float op without a reason"
    for x in (drawn.input, torch.randn_like(drawn.input)):
        ours = results[0].each_op_within_a_unit(x)[0]
        for result in results:
            assert torch.equal(result.program.run(x)[0], ours)
            assert torch.equal(read_pte(to_pte(result.program)).run(x)[0], ours)
        theirs = graph(x)
        unit = max(float(theirs.abs().max()) / 127, 1e-6)
        ops = sum(result.ops.values())
        assert float((ours - theirs).abs().mean()) <= unit * max(ops, 4)


@given(nets())
@bounded
def test_a_random_net_has_one_meaning_everywhere(
    lower_for: Any, quantized: Any, drawn: Drawn
) -> None:
    one_meaning(drawn, CortexMQuantizer(), lower_for, quantized)


@pytest.mark.slow
@given(nets(most=12), st.sampled_from(["ours", "rows", "stock"]))
@settings(bounded, max_examples=500)
def test_longer_random_nets_of_every_quantizer_have_one_meaning(
    lower_for: Any, quantized: Any, drawn: Drawn, which: str
) -> None:
    quantizer: Any = CortexMQuantizer(per_channel_linear=which == "rows")
    if which == "stock":
        quantizer = StockQuantizer()
    one_meaning(drawn, quantizer, lower_for, quantized)
