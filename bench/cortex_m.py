"""Cortex-M: the stock flow and this one on the same PT2E programs.

    python bench/cortex_m.py [model ...] [--cpu cortex-m55]

For each model: seconds from the PT2E ExportedProgram to `.pte` bytes, bytes, constants that nothing
names, planned activation memory, and ops outside the `cortex_m` library. The programs are quantised
by ExecuTorch's own quantizer on channels-last inputs, as its flow needs; a last line gives this
project's quantizer on the model as it is.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "models"))

MODELS = {
    "ds_cnn": ("tiny", "ds_cnn"),
    "mlp_autoencoder": ("tiny", "mlp_autoencoder"),
    "resnet8": ("resnet", "resnet8"),
    "transformer_encoder": ("transformer", "transformer_encoder_2layers"),
    "mobilenet_v2_035": ("mobilenet", "mobilenet_v2_035"),
}


def quantised(model: Any, inputs: Any, quantizer: Any) -> Any:
    from torch.export import export
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    graph = export(model, inputs).module(check_guards=False)
    prepared = prepare_pt2e(graph, quantizer)
    for seed in range(2):
        torch.manual_seed(seed)
        prepared(*(torch.randn_like(value) for value in inputs))
    return export(convert_pt2e(prepared), inputs)


def stock(exported: Any, cpu: str) -> tuple[bytes, dict[str, float]]:
    from executorch.backends.cortex_m.edge_compile_config import cortex_m_edge_compile_config
    from executorch.backends.cortex_m.passes.cortex_m_pass_manager import CortexMPassManager
    from executorch.backends.cortex_m.target_config import CortexMTargetConfig
    from executorch.exir import ExecutorchBackendConfig, to_edge

    started = time.perf_counter()
    edge = to_edge(exported, compile_config=cortex_m_edge_compile_config())
    edged = time.perf_counter()
    manager = CortexMPassManager(
        edge.exported_program(), target_config=CortexMTargetConfig.from_target_string(cpu)
    )
    edge._edge_programs["forward"] = manager.transform()
    passed = time.perf_counter()
    data = edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False)).buffer
    done = time.perf_counter()
    return data, {
        "to_edge": edged - started,
        "passes": passed - edged,
        "to_executorch": done - passed,
    }


def ours(exported: Any, cpu: str) -> tuple[bytes, dict[str, float]]:
    import stepwell

    started = time.perf_counter()
    program = stepwell.from_exported_program(exported)
    imported = time.perf_counter()
    lowered = stepwell.lower(program, cpu)
    finished = time.perf_counter()
    data = lowered.to_pte()
    done = time.perf_counter()
    return data, {
        "import": imported - started,
        "lower": finished - imported,
        "emit": done - finished,
    }


def examine(data: bytes) -> dict[str, Any]:
    from stepwell.backends.executorch.container import Constant, KernelCall, TensorValue
    from stepwell.backends.executorch.read import read_container

    container = read_container(data)
    method = container.methods[0]
    used: set[int] = set()
    touched = {i for step in method.instructions for i in getattr(step, "args", ())}
    for index, value in enumerate(method.values):
        is_constant = isinstance(value, TensorValue) and isinstance(value.storage, Constant)
        if is_constant and (index in touched or index in method.outputs):
            used.add(value.storage.index)
    dead = sum(len(c) for i, c in enumerate(container.constants) if i and i not in used)
    calls = Counter(step.kernel for step in method.instructions if isinstance(step, KernelCall))
    views = ("executorch_prim::et_view.default",)
    outside = {k: n for k, n in calls.items() if not k.startswith("cortex_m::") and k not in views}
    return {
        "bytes": len(data),
        "dead": dead,
        "arena": sum(method.arena_sizes[1:]),
        "calls": sum(calls.values()),
        "outside": outside,
    }


def report(label: str, data: bytes, seconds: dict[str, float]) -> None:
    facts = examine(data)
    parts = "  ".join(f"{name} {value:.2f}" for name, value in seconds.items())
    outside = ", ".join(f"{name}×{count}" for name, count in facts["outside"].items()) or "none"
    print(
        f"  {label:18} {sum(seconds.values()):7.3f} s  ({parts})\n"
        f"  {'':18} {facts['bytes']:9} B, dead {facts['dead']} B, arena {facts['arena']} B, "
        f"{facts['calls']} calls, outside: {outside}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--cpu", default="cortex-m55")
    parser.add_argument(
        "--repeat", type=int, default=2, help="runs of each flow; the best is shown"
    )
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer as Stock

    from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

    for name in options.models:
        module, function = MODELS[name]
        model, inputs = getattr(importlib.import_module(module), function)()
        model = model.eval()
        print(name)
        last = tuple(x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs)
        is_image = any(x.dim() == 4 for x in inputs)
        kept = model.to(memory_format=torch.channels_last) if is_image else model
        exported = quantised(kept, last, Stock())
        runs = [ours(exported, options.cpu) for _ in range(options.repeat)]
        report("stepwell", *min(runs, key=lambda run: sum(run[1].values())))
        try:
            report("stock flow", *stock(exported, options.cpu))
        except Exception as error:  # The stock flow raises bare exceptions; the bench says so.
            print(f"  {'stock flow':18} crashes: {str(error).splitlines()[0]}")
        exported = quantised(
            model.to(memory_format=torch.contiguous_format), inputs, CortexMQuantizer()
        )
        report("stepwell quantizer", *ours(exported, options.cpu))


if __name__ == "__main__":
    main()
