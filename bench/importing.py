"""Import alone: microseconds per FX node, for programs as exported and after decomposition.

    python bench/importing.py

The line to compare with is torch-mlir's importer: 0.05 s for MobileNetV2 after its decompositions
(1041 nodes: 48 µs a node), measured with its copy of every weight taken out.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from _report import cpu_seconds, prepare, show, write

import stepwell

MODELS = ("mobilenet:mobilenet_v2", "resnet:resnet18", "deit:deit_tiny", "llama:llama_4layers")
PEER_MICROSECONDS = 0.05 / 1041 * 1e6
"""torch-mlir, MobileNetV2 after its own decompositions, without the copy of each weight."""


def main() -> None:
    prepare()
    results: dict[str, Any] = {}
    rows: list[list[Any]] = []
    for name in MODELS:
        file, function = name.split(":")
        module, inputs, *_ = getattr(importlib.import_module(file), function)()
        exported = torch.export.export(module.eval(), inputs)
        for label, program in (
            ("as exported", exported),
            ("decomposed", exported.run_decompositions()),
        ):
            nodes = len(program.graph.nodes)
            seconds, _ = cpu_seconds(lambda p=program: stepwell.from_exported_program(p), 5)
            mine = seconds / nodes * 1e6
            results[f"{name} {label}"] = {"nodes": nodes, "µs": mine}
            rows.append([f"{function}, {label}", nodes, f"{seconds * 1e3:.1f}", f"{mine:.1f}"])
    columns = ("program", "FX nodes", "CPU ms", "µs per node")
    note = f"torch-mlir without its copy of each weight: {PEER_MICROSECONDS:.0f} µs per node"
    show("import of an ExportedProgram", columns, rows, note)
    write("importing", results)


if __name__ == "__main__":
    main()
