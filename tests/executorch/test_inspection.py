"""A profile of the runtime leads back to the model's nodes through ExecuTorch's own Inspector."""

from pathlib import Path

import torch
from torch import nn

from stepwell.backends.executorch.decompose import DecomposeForKernels
from stepwell.backends.executorch.running.inspection import etrecord
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.backends.executorch.writing.emit import emit
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.ir.rewriting.rewrite import run_rewrites
from stepwell.translate.importer.from_torch import from_exported_program


def test_the_inspector_names_the_nodes_that_each_kernel_call_computes(tmp_path: Path) -> None:
    from executorch.devtools import Inspector
    from executorch.devtools.etrecord import parse_etrecord

    model = nn.Sequential(nn.Linear(4, 4), nn.SiLU(), nn.Linear(4, 2)).eval()
    x = torch.randn(2, 4)
    exported = torch.export.export(model, (x,))
    program = from_exported_program(exported)
    run_rewrites(program, (DecomposeForKernels(),))
    container = emit(program)
    session = PteSession.load(to_bytes(container), profile=True)
    session.run(x)
    session.write_profile(tmp_path / "run.etdp")
    record = etrecord(container, exported)
    assert all("debug_handle" not in node.meta for node in exported.graph.nodes)
    record.save(tmp_path / "record.bin")
    inspector = Inspector(
        etdump_path=str(tmp_path / "run.etdp"),
        etrecord=parse_etrecord(str(tmp_path / "record.bin")),
    )
    calls = {
        (event._instruction_id, event.name): event.op_types
        for block in inspector.event_blocks
        for event in block.events
        if event.name.startswith("native_call")
    }
    # SiLU was taken apart into sigmoid and mul: both came from the one node of the model.
    assert calls == {
        (0, "native_call_linear.out"): ["linear.default"],
        (1, "native_call_sigmoid.out"): ["silu.default"],
        (2, "native_call_mul.out"): ["silu.default"],
        (3, "native_call_linear.out"): ["linear.default"],
    }
