"""`Inspector.calculate_numeric_gap` compares what a `.pte` of ours gives with the model itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import stepwell

from .small_models import MODELS, ROWS, made


def gap(lowered: Any, inputs: list[Any], folder: Path) -> Any:
    """The table of the stock Inspector, of a `.pte` that the stock runtime ran."""
    from executorch.devtools import Inspector
    from executorch.runtime import Runtime

    (folder / "m.pte").write_bytes(lowered.to_pte())
    record = lowered.to_etrecord()
    record.save(str(folder / "m.etrecord"))
    told = {"enable_etdump": True, "debug_buffer_size": 1 << 24}
    program: Any = Runtime.get().load_program(str(folder / "m.pte"), **told)
    program.load_method("forward").execute(inputs)
    program.write_etdump_result_to_file(str(folder / "m.etdp"), str(folder / "m.bin"))
    inspector = Inspector(
        etdump_path=str(folder / "m.etdp"),
        etrecord=str(folder / "m.etrecord"),
        debug_buffer_path=str(folder / "m.bin"),
    )
    return inspector, inspector.calculate_numeric_gap("L1")


@pytest.mark.parametrize("name", MODELS)
def test_the_gap_of_each_output_is_found_and_small(name: str, tmp_path: Path) -> None:
    model, inputs, outputs = made(name)
    exported = torch.export.export(model, tuple(inputs))
    _, found = gap(stepwell.lower(exported, "xnnpack"), inputs, tmp_path)
    assert len(found) == outputs
    # A sum over all elements, of float kernels that round in another order.
    assert all(value < 1e-3 for (value,) in found["gap"])
    flat = torch.utils._pytree.tree_leaves(model(*inputs))
    wanted = sorted(y.double().abs().sum().item() for y in flat)
    for column in ("aot_intermediate_output", "runtime_intermediate_output"):
        sums = sorted(y.double().abs().sum().item() for y in found[column])
        assert sums == pytest.approx(wanted, rel=1e-3, abs=1e-4)


def test_a_gap_that_is_there_is_seen(tmp_path: Path) -> None:
    """The program's bias is another than the model's by 1, in each of 2 × 5 × 4 elements."""
    torch.manual_seed(0)
    model, inputs = nn.Linear(8, 4).eval(), [torch.rand(ROWS)]
    lowered = stepwell.lower(torch.export.export(model, tuple(inputs)), "xnnpack")
    lowered.to_pte()
    pte = stepwell.lower(torch.export.export(_raised(model), tuple(inputs)), "xnnpack").to_pte()

    class Other:
        to_etrecord = staticmethod(lowered.to_etrecord)
        to_pte = staticmethod(lambda: pte)

    _, found = gap(Other, inputs, tmp_path)
    ((value,),) = found["gap"]
    assert value == pytest.approx(40, rel=1e-4)


def _raised(model: nn.Linear) -> nn.Module:
    other = nn.Linear(8, 4).eval()
    with torch.no_grad():
        other.weight.copy_(model.weight)
        other.bias.copy_(model.bias + 1)
    return other


def test_events_within_a_delegate_still_lead_to_the_model(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
    inputs = [torch.rand(ROWS)]
    lowered = stepwell.lower(torch.export.export(model, tuple(inputs)), "xnnpack")
    inspector, _ = gap(lowered, inputs, tmp_path)
    events = [event for block in inspector.event_blocks for event in block.events]
    within = [event.op_types for event in events if event.is_delegated_op]
    assert [types for types in within if "linear.default" in types]
    assert all(any(event.stack_traces) for event in events if event.is_delegated_op)
