"""Cost per op of import, verification, rewriting and the way to bytes, as programs grow.

    python bench/scaling.py [1000 10000 50000]

A chain of elementwise ops on one tensor (scale, shift, tanh).
`stepwell.lower` — import, verification, the whole xnnpack pipeline, verification — is to take at
most 0.5 ms an op, whatever the length.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from _report import cpu_seconds, prepare, show, write
from torch.export import ExportedProgram

import stepwell


def elementwise(count: int) -> ExportedProgram:
    """A chain of `count` ops: scale, shift, tanh and again.

    Exporting 50 000 ops takes minutes: the chain is written into an exported graph.
    """
    ops = torch.ops.aten
    exported = torch.export.export(torch.nn.Tanh(), (torch.randn(1, 8),))
    graph = exported.graph
    source, tanh, output = graph.nodes
    x = source
    with graph.inserting_before(output):
        for index in range(count):
            target, rest = (
                (ops.mul.Scalar, (0.999,)),
                (ops.add.Scalar, (0.001 * (index % 7 + 1),)),
                (ops.tanh.default, ()),
            )[index % 3]
            x = graph.call_function(target, (x, *rest))
            x.meta["val"] = source.meta["val"]
    output.args = ((x,),)
    graph.erase_node(tanh)
    exported.graph_signature.output_specs[0].arg.name = x.name
    return exported


def measure(count: int) -> dict[str, float]:
    """CPU seconds of each stage for a chain of `count` ops."""
    exported = elementwise(count)
    imported, program = cpu_seconds(lambda: stepwell.from_exported_program(exported))
    verified, _ = cpu_seconds(lambda: program.verify() or True)
    lowered_in, lowered = cpu_seconds(lambda: stepwell.lower(exported, "xnnpack"))
    emitted, _ = cpu_seconds(lowered.to_pte)
    return {
        "import": imported,
        "first verify": verified,
        "steps": sum(step.seconds for step in lowered.report.steps),
        "emit": emitted,
        "lower": lowered_in,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("counts", nargs="*", type=int, default=[1000, 10_000, 50_000])
    options = parser.parse_args()
    prepare()
    measure(30)
    results: dict[str, Any] = {}
    rows: list[list[Any]] = []
    for count in options.counts:
        per_op = {stage: value / count * 1e3 for stage, value in measure(count).items()}
        results[str(count)] = per_op
        rows.append([f"{count} ops", *per_op.values()])
    columns = ("chain", "import", "first verify", "steps (wall)", "emit", "lower, in all")
    show("CPU ms per op, down to the xnnpack level", columns, rows, "asked for: at most 0.5 ms")
    write("scaling", results)


if __name__ == "__main__":
    main()
