"""Who names planted faults: our sentence, torchao's numeric debugger, ExecuTorch's Inspector.

    python bench/accuracy_peers.py [--only swapped] [--table docs/accuracy.md]

The faults are those of `tests/accuracy/test_planted_faults.py`, in an int8 net of three linear
layers. Ours must name the layer and the cause. torchao's debugger puts a signal-to-noise ratio
beside each node of the float and the quantised graph, and the Inspector a gap beside what the
runtime gives: they name no cause, and so a fault counts where the first node below `POOR` decibels,
or whose gap is the largest, lies in the layer that has it.
"""

from __future__ import annotations

import contextlib
import copy
import io
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/accuracy"))

import test_planted_faults as planted  # noqa: E402  # pyright: ignore[reportMissingImports]
import torch  # noqa: E402
from _report import asked_for_rows, between_markers  # noqa: E402
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (  # noqa: E402
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from inspector import inspected  # noqa: E402
from torchao.quantization import pt2e  # noqa: E402
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e  # noqa: E402

import stepwell  # noqa: E402

POOR = 20.0
"""Decibels: int8 that is sound has 30 and more in this net."""


def quantised(model: torch.nn.Module, size: float = 1.0) -> Any:
    """As the tests quantise it, with torchao's handles at its nodes."""
    inputs = [x for x, _ in planted.batches(2, size)]
    exported = torch.export.export(model, inputs[0])
    pt2e.generate_numeric_debug_handle(exported)
    graph: Any = exported.module()
    reference = pt2e.prepare_for_propagation_comparison(graph)
    config = get_symmetric_quantization_config(is_per_channel=True)
    prepared = prepare_pt2e(graph, XNNPACKQuantizer().set_global(config))
    for one in inputs:
        prepared(*one)
    made: Any = convert_pt2e(prepared)
    made.meta["reference"] = reference
    return made


def ours(model: Any, graph: Any, site: str, cause: str) -> tuple[bool, str]:
    """The sentence."""
    found = stepwell.accuracy(model, "xnnpack", planted.batches(3), quantised=graph, levels=0)
    said = found.sentence
    return cause in said and (f"`{site}`" in said or not site), "layer and cause"


def debugger(model: Any, graph: Any, site: str, cause: str) -> tuple[bool, str]:
    """The first node whose ratio is poor."""
    reference = copy.deepcopy(graph.meta["reference"])
    actual = pt2e.prepare_for_propagation_comparison(graph)
    for inputs, _ in planted.batches(3):
        reference(*inputs)
        actual(*inputs)
    logs: list[Any] = [pt2e.extract_results_from_loggers(one) for one in (reference, actual)]
    for node in pt2e.compare_results(*logs).values():
        ratio: Any = node.results[0].sqnr
        if not float(ratio) >= POOR:
            where = node.ref_module_stack.rpartition(".")[2] or "output"
            return where == site, f"{where}: {float(ratio):.0f} dB"
    return False, "no node is poor"


def gap(model: Any, graph: Any, site: str, cause: str) -> tuple[bool, str]:
    """The outputs that the Inspector has gaps of: the runtime's, from the quantised program's."""
    (x,) = planted.batches(1)[0][0]
    lowered = stepwell.lower(torch.export.export(graph, (x,)), "xnnpack")
    with tempfile.TemporaryDirectory() as folder:
        found = inspected(lowered, [x], Path(folder)).calculate_numeric_gap("SNR")
    return False, f"output: {float(min(row[0] for row in found['gap'])):.0f} dB"


Tool = Callable[[Any, Any, str, str], tuple[bool, str]]
TOOLS: dict[str, Tool] = {
    "stepwell accuracy": ours, "torchao's debugger": debugger, "Inspector's gap": gap
}  # fmt: skip


def main() -> int:
    """Plant every fault, ask every tool."""
    asked = asked_for_rows(__doc__)
    planted.quantised = quantised
    sound = quantised(planted.net())
    head = ["fault", "in", *TOOLS]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    named, spent = dict.fromkeys(TOOLS, 0), dict.fromkeys(TOOLS, 0.0)
    for fault, (site, cause) in planted.FAULTS.items():
        if asked.only not in fault.__name__:
            continue
        model, graph = planted.net(), copy.deepcopy(sound)
        changed = fault(graph)
        if changed is not None:
            model, graph = changed
        graph.recompile()
        cells: list[str] = []
        for name, tool in TOOLS.items():
            started = time.process_time()
            with contextlib.redirect_stderr(io.StringIO()):
                try:
                    is_named, said = tool(model, graph, site, cause)
                except Exception as error:
                    is_named, said = False, f"{type(error).__name__}"
            spent[name] += time.process_time() - started
            named[name] += is_named
            cells.append(("✓ " if is_named else "") + said)
        lines.append(f"| {fault.__name__.replace('_', ' ')} | {site} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    count = len(lines) - 2
    totals = [f"{named[one]} of {count}, {spent[one]:.1f} s" for one in TOOLS]
    lines.append(f"| named, CPU seconds | | {' | '.join(totals)} |")
    print(lines[-1])
    if asked.table:
        between_markers(asked.table, "accuracy peers", lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
