"""Who names planted faults: our sentence, torchao's debugger, ExecuTorch's Inspector, AIMET.

    python bench/accuracy_peers.py [--only swapped] [--table docs/accuracy.md]

The faults are those of `tests/accuracy/test_planted_faults.py`, in an int8 net of three linear
layers. Ours must name the layer and the cause. torchao's debugger reports a signal-to-noise ratio
for each node of the float and the quantized graph, and the Inspector a gap for each result of the
runtime. They name no cause, so a fault counts as found if the first node below `POOR` decibels, or
the one with the largest gap, is in the faulty layer. AIMET's QuantAnalyzer (if aimet-torch is
installed) reports a mean square error for each layer of its own simulation of the net. The faults
are planted there again, and count in the same manner. Its quantizers use one scale and zero point
for quantizing and dequantizing, so that two of the faults cannot occur.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import math
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


def quantized(model: torch.nn.Module, size: float = 1.0) -> Any:
    """As the tests quantize it, with torchao's handles at its nodes."""
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
    found = stepwell.accuracy(model, "xnnpack", planted.batches(3), quantized=graph, levels=0)
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
    """The outputs that the Inspector has gaps of: the runtime's, from the quantized program's."""
    (x,) = planted.batches(1)[0][0]
    lowered = stepwell.lower(torch.export.export(graph, (x,)), "xnnpack")
    with tempfile.TemporaryDirectory() as folder:
        found = inspected(lowered, [x], Path(folder)).calculate_numeric_gap("SNR")
    return False, f"output: {float(min(row[0] for row in found['gap'])):.0f} dB"


def widen(sim: Any, layer: str, by: float) -> None:
    """Another range of a layer's result in AIMET's simulation."""
    (one,) = getattr(sim, layer).output_quantizers
    one.min.data.mul_(by)
    one.max.data.mul_(by)


def along_inputs(sim: Any) -> None:
    """The ranges of rows for columns."""
    from aimet_torch.quantization.affine import QuantizeDequantize

    old = sim.mid.param_quantizers["weight"]
    new = QuantizeDequantize((1, len(old.min)), bitwidth=8, symmetric=True)
    new.set_range(old.get_min().detach().T, old.get_max().detach().T)
    sim.mid.param_quantizers["weight"] = new


def spoil(sim: Any) -> None:
    sim.up.param_quantizers["weight"].max.data[4] = float("nan")


def swap(sim: Any) -> None:
    sim.mid.weight.data[[2, 11]] = sim.mid.weight.data[[11, 2]]


def replace_weight(sim: Any) -> None:
    random = torch.Generator().manual_seed(0)
    sim.mid.weight.data = torch.randn(sim.mid.weight.shape, generator=random) / 5


SIMULATED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "outlier": ("mid", lambda sim: None),
    "wrong_axis": ("mid", along_inputs),
    "clipped_logits": ("down", lambda sim: widen(sim, "down", 1 / 4)),
    "lost_bias": ("up", lambda sim: sim.up.bias.data.zero_()),
    "swapped": ("mid", swap),
    "stale": ("mid", replace_weight),
    "no_number": ("up", spoil),
    "too_wide": ("up", lambda sim: widen(sim, "up", 24)),
    "bad_calibration": ("", lambda sim: None),
}
"""The faults as AIMET's simulation can have them, and the layer that has them there."""


def analyzer(fault: str, model: Any, graph: Any, site: str, cause: str) -> tuple[bool, str]:
    """The first layer whose ratio is poor, in AIMET's own simulation."""
    from aimet_torch.common.utils import CallbackFunc
    from aimet_torch.quant_analyzer import QuantAnalyzer
    from aimet_torch.quantsim import QuantizationSimModel

    if fault not in SIMULATED:
        return False, "cannot be planted"
    data = [x for (x,), _ in planted.batches(3)]
    calibrating = [x for (x,), _ in planted.batches(2, 0.08 if fault == "bad_calibration" else 1)]

    def run(one: Any, _: Any) -> float:
        with torch.no_grad():
            for x in calibrating:
                one(x)
        return 0.0

    sim = QuantizationSimModel(model, data[0], default_output_bw=8, default_param_bw=8)
    sim.compute_encodings(run, None)
    where, plant = SIMULATED[fault]
    plant(sim.model)
    shown = QuantAnalyzer(model, data[0], CallbackFunc(run), CallbackFunc(run))
    shown.enable_per_layer_mse_loss(data, len(data))
    with tempfile.TemporaryDirectory() as folder:
        errors = shown.export_per_layer_mse_loss(sim, folder)
    seen: dict[str, float] = {}
    for name, layer in model.named_children():
        layer.register_forward_hook(
            lambda _, __, y, name=name: seen.update({name: float(y.square().mean())})
        )
    model(torch.cat(data))
    for name, error in errors.items():  # It divides a batch's mean by its samples once more.
        ratio = 10 * math.log10(seen[name] / (error * len(data[0]))) if error else math.inf
        if not ratio >= POOR:
            return name == where, f"{name}: {ratio:.0f} dB"
    return False, "no layer is poor"


Tool = Callable[[Any, Any, str, str], tuple[bool, str]]
TOOLS: dict[str, Tool] = {
    "stepwell accuracy": ours, "torchao's debugger": debugger, "Inspector's gap": gap
}  # fmt: skip
AIMET = "AIMET's analyzer"


def main() -> int:
    """Plant every fault, ask every tool."""
    asked = asked_for_rows(__doc__)
    planted.quantized = quantized
    sound = quantized(planted.net())
    tools = dict[str, Any](TOOLS)
    if importlib.util.find_spec("aimet_torch"):
        tools[AIMET] = analyzer
    head = ["fault", "in", *tools]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    named, spent = dict.fromkeys(tools, 0), dict.fromkeys(tools, 0.0)
    for fault, (site, cause) in planted.FAULTS.items():
        if asked.only not in fault.__name__:
            continue
        model, graph = planted.net(), copy.deepcopy(sound)
        changed = fault(graph)
        if changed is not None:
            model, graph = changed
        graph.recompile()
        cells: list[str] = []
        for name, tool in tools.items():
            about = (fault.__name__,) if name == AIMET else ()
            started = time.process_time()
            with contextlib.redirect_stderr(io.StringIO()):
                try:
                    is_named, said = tool(*about, model, graph, site, cause)
                except Exception as error:
                    is_named, said = False, f"{type(error).__name__}"
            spent[name] += time.process_time() - started
            named[name] += is_named
            cells.append(("✓ " if is_named else "") + said)
        lines.append(f"| {fault.__name__.replace('_', ' ')} | {site} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    count = len(lines) - 2
    totals = [f"{named[one]} of {count}, {spent[one]:.1f} s" for one in tools]
    lines.append(f"| named, CPU seconds | | {' | '.join(totals)} |")
    print(lines[-1])
    if asked.table:
        between_markers(asked.table, "accuracy peers", lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
