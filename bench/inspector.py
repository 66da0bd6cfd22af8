"""ExecuTorch's own Inspector on files of ours: the numeric gap and the profile of 25 models.

    nice python bench/inspector.py [--only attention] [--table docs/workbench.md]

The stock runtime runs the `.pte` with its profiler on and writes an ETDump; the stock Inspector
reads that with the ETRecord of the lowering. The *gap* is right if there is one for each output,
what it calls the model's is eager PyTorch's and what it calls the runtime's is as near to it as
kernels that round in another order are; the *profile* if every event within a delegate, and every
kernel, leads to operators of the model and a line of its source.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/workbench"))

import torch  # noqa: E402
from _report import asked_for_rows, between_markers  # noqa: E402
from small_models import MODELS, made  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import stepwell  # noqa: E402
from stepwell.loaders.models import open_model  # noqa: E402

LARGER = (
    "mobilenet.py:mobilenet_v2",
    "resnet.py:resnet18",
    "deit.py:deit_small_depth2",
    "gpt2.py:gpt2_2layers",
)
NEAR = 1e-3
"""Of a sum over all elements of an output, to the size of that sum."""


@dataclass(frozen=True)
class Row:
    """What the Inspector says of one model.

    Attributes:
        model: its name.
        outputs: tensors that it gives.
        gaps: outputs that have a gap, with eager's numbers and near ones of the runtime.
        largest: gap of an output (L1), as a share of the sum of its absolute values.
        events: operators that the runtime timed.
        lines: of those, the ones that lead to operators and a line of source.
        fails: what ended it.
    """

    model: str
    outputs: int = 0
    gaps: int = 0
    largest: float = 0
    events: int = 0
    lines: int = 0
    fails: str = ""

    @property
    def is_right(self) -> bool:
        """Whether both are as they should be."""
        return not self.fails and 0 < self.outputs == self.gaps and 0 < self.events == self.lines


def opened(name: str) -> tuple[torch.nn.Module, list[Any]]:
    """A model and its flat inputs."""
    if name in MODELS:
        model, inputs, _ = made(name)
        return model, inputs
    one = open_model(f"{ROOT / 'examples/models' / name}")
    assert one.module is not None and one.inputs is not None
    return one.module.eval(), list(one.inputs)


def inspected(lowered: Any, inputs: list[Any], folder: Path) -> Any:
    """The Inspector of one run on the stock runtime."""
    from executorch.devtools import Inspector
    from executorch.runtime import Runtime

    (folder / "m.pte").write_bytes(lowered.to_pte())
    lowered.to_etrecord().save(str(folder / "m.etrecord"))
    told = {"enable_etdump": True, "debug_buffer_size": 1 << 28}
    program: Any = Runtime.get().load_program(str(folder / "m.pte"), **told)
    program.load_method("forward").execute(inputs)
    program.write_etdump_result_to_file(str(folder / "m.etdp"), str(folder / "m.bin"))
    return Inspector(
        etdump_path=str(folder / "m.etdp"),
        etrecord=str(folder / "m.etrecord"),
        debug_buffer_path=str(folder / "m.bin"),
    )


def row(name: str) -> Row:
    """One model."""
    model, inputs = opened(name)
    lowered = stepwell.lower(torch.export.export(model, tuple(inputs)), "xnnpack")
    with torch.no_grad():
        wanted = pytree.tree_leaves(model(*inputs))
    with tempfile.TemporaryDirectory() as folder:
        inspector = inspected(lowered, inputs, Path(folder))
        found = inspector.calculate_numeric_gap("L1")
    sums = sorted(y.double().abs().sum().item() for y in wanted)
    columns = [
        sorted(y.double().abs().sum().item() for y in found[column])
        for column in ("aot_intermediate_output", "runtime_intermediate_output")
    ]
    gaps = zip(found["gap"], columns[0], strict=True)
    largest = max((gap / max(size, 1e-6) for (gap,), size in gaps), default=0)
    near = [
        all(abs(theirs - ours) <= NEAR * max(ours, 1e-3) for theirs in both)
        for ours, *both in zip(sums, *columns, strict=True)
    ]
    timed = [
        event
        for block in inspector.event_blocks
        for event in block.events
        if event.is_delegated_op or event.name.startswith("native_call_")
    ]
    lines = [
        event for event in timed if event.op_types and any((event.stack_traces or {}).values())
    ]
    return Row(name, len(wanted), sum(near), largest, len(timed), len(lines))


def markdown(rows: list[Row]) -> list[str]:
    """The rows as a table."""
    head = ["| model | outputs with a gap | largest | events with a line |", "|---|---|---|---|"]
    return head + [
        f"| {one.model} | {one.gaps} of {one.outputs} | {one.fails or f'{one.largest:.0e}'} "
        f"| {one.lines} of {one.events} |"
        for one in rows
    ]


def main() -> int:
    """Inspect every model, print the rows and write them into a page."""
    given = asked_for_rows(__doc__)
    rows: list[Row] = []
    for name in (one for one in (*MODELS, *LARGER) if given.only in one):
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                rows.append(row(name))
            except Exception as error:
                rows.append(Row(name, fails=f"{type(error).__name__}: {str(error)[:150]}"))
        print(json.dumps(asdict(rows[-1])), flush=True)
    right = sum(one.is_right for one in rows)
    print(f"{right} of {len(rows)}: a gap for each output, a line for each event")
    if given.table:
        between_markers(given.table, "inspector", markdown(rows))
    return int(right < len(rows))


if __name__ == "__main__":
    sys.exit(main())
