"""ExportedProgram → TOSA flatbuffer: ExecuTorch's Arm backend and this one in one process.

    python bench/tosa.py [--ours] [--only NAME]

CPU seconds from an exported program to the bytes of a flatbuffer, after one warm-up run of each
flow on a small model; then what the bytes hold: operators that are not constants, and size.  The
rows `linears and attention in MX` have no stock counterpart for attention: the stock column is its
flow with MX linear layers alone, where the installed torchao offers them.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from _report import cpu_seconds, prepare, show, write
from torch.export import ExportedProgram, export

import stepwell
from stepwell.backends.tosa.flatbuffer_reader import read_graph
from stepwell.dialects.tosa.generated import ConstShapeOp
from stepwell.dialects.tosa.structural import ConstOp
from stepwell.translate.mxfp import to_mxfp

CONSTANTS = (ConstOp.CODE, ConstShapeOp.CODE)


@dataclass(frozen=True)
class Row:
    """A model, the target, and what stands between export and lowering."""

    name: str
    exported: Callable[[], ExportedProgram]
    target: str
    stock: str | None
    prepare: Callable[[ExportedProgram], Any] = lambda exported: exported


def rows() -> list[Row]:
    from deit import deit_tiny
    from mobilenet import mobilenet_v2
    from quantised import quantise
    from resnet import resnet18

    def exported(make: Callable[[], tuple[Any, Any]]) -> Callable[[], ExportedProgram]:
        def run() -> ExportedProgram:
            model, inputs = make()
            return export(model.eval(), inputs)

        return run

    def int8() -> ExportedProgram:
        model, inputs = mobilenet_v2()
        return quantise(model.eval(), inputs, per_channel=True)

    def mx(program: ExportedProgram) -> Any:
        return to_mxfp(program, "fp8e4m3", attention=True)

    return [
        Row("DeiT-Tiny fp32", exported(deit_tiny), "tosa-1.1+fp", "TOSA-1.0+FP"),
        Row(
            "DeiT-Tiny linears and attention in MX",
            exported(deit_tiny),
            "tosa-1.1+fp+mxfp",
            None,
            mx,
        ),
        Row("ResNet18 fp32", exported(resnet18), "tosa-1.1+fp", "TOSA-1.0+FP"),
        Row("MobileNetV2 fp32", exported(mobilenet_v2), "tosa-1.1+fp", "TOSA-1.0+FP"),
        Row("MobileNetV2 int8", int8, "tosa-1.0+int", "TOSA-1.0+INT"),
    ]


def stock_tosa(exported: ExportedProgram, specification: str) -> list[bytes]:
    """The flatbuffers of the stock flow's delegates."""
    from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
    from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.exir.lowered_backend_module import get_lowered_submodules

    partitioner = TOSAPartitioner(TosaCompileSpec(specification))
    edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    graph = edge.exported_program().graph_module
    return [module.processed_bytes for _, module, _ in get_lowered_submodules(graph)]


def operators(flatbuffers: list[bytes]) -> int:
    """Operators that are not constants."""
    return sum(
        op.code not in CONSTANTS
        for data in flatbuffers
        for region in read_graph(data).regions
        for op in region.operators
    )


def measure(row: Row, with_stock: bool) -> dict[str, Any]:
    exported = row.exported()

    def ours() -> bytes:
        return stepwell.lower(row.prepare(exported), row.target).to_tosa()

    seconds, data = cpu_seconds(ours, repeat=3)
    found: dict[str, Any] = {
        "seconds": seconds,
        "operators": operators([data]),
        "megabytes": len(data) / 1e6,
    }
    if with_stock and row.stock is not None:
        held = copy.deepcopy(exported)
        specification = row.stock
        stock_seconds, flatbuffers = cpu_seconds(lambda: stock_tosa(held, specification))
        found["stock seconds"] = stock_seconds
        found["stock operators"] = operators(flatbuffers)
        found["stock delegates"] = len(flatbuffers)
        found["times faster"] = stock_seconds / seconds
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", action="store_true", help="leave the stock flow out")
    parser.add_argument("--only", help="rows whose name holds this")
    arguments = parser.parse_args()
    prepare()
    from tiny import mlp

    model, inputs = mlp()
    warm = export(model.eval(), inputs)
    stepwell.lower(warm, "tosa-1.1+fp").to_tosa()
    if not arguments.ours:
        stock_tosa(copy.deepcopy(warm), "TOSA-1.0+FP")
    results = {
        row.name: measure(row, not arguments.ours)
        for row in rows()
        if arguments.only is None or arguments.only in row.name
    }
    columns = ["seconds", "operators", "megabytes"]
    if not arguments.ours:
        columns += ["stock seconds", "stock operators", "stock delegates", "times faster"]
    table = [[name, *(found.get(column) for column in columns)] for name, found in results.items()]
    note = "CPU seconds of this process, one thread; operators without constants"
    show("Exported program to TOSA flatbuffer", ["model", *columns], table, note)
    write("tosa", {"rows": results, "torch": torch.__version__})


if __name__ == "__main__":
    main()
