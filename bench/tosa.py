"""ExportedProgram → TOSA flatbuffer: ExecuTorch's Arm backend and this one in one process.

    python bench/tosa.py [--ours] [--only NAME]

CPU seconds from an exported program to the bytes of a flatbuffer, after one warm-up run of each
flow on a small model; then what the bytes hold: operators that are not constants, and size.  The
row `every product in MX` has no stock counterpart for attention and patches: the stock column is
its flow with MX linear layers alone.  The int8 rows also run on the reference model; `differing` is
the number of elements that differ from our interpreter's.
"""

from __future__ import annotations

import argparse
import copy
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from _report import cpu_seconds, prepare, read, show, write
from torch.export import ExportedProgram, export

import stepwell
from stepwell.backends.tosa.flatbuffer import read_graph
from stepwell.dialects.tosa.generated import ConstShapeOp
from stepwell.dialects.tosa.structural import ConstOp
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.types import element
from stepwell.translate.mxfp import to_mxfp

CONSTANTS = (ConstOp.CODE, ConstShapeOp.CODE)


@dataclass(frozen=True)
class Row:
    """A model, the target, and the steps between export and lowering."""

    name: str
    exported: Callable[[], ExportedProgram]
    target: str
    stock: str | None
    prepare: Callable[[ExportedProgram], Any] = lambda exported: exported
    quantized: bool = False
    stock_exported: Callable[[], ExportedProgram] | None = None
    """What the stock flow starts from, where it changes the model before the export."""


FLOATS = """deit:deit_tiny resnet:resnet18 mobilenet:mobilenet_v2 tiny:mlp tiny:ds_cnn
    resnet:resnet8 transformer:transformer_encoder_2layers llama:llama_block gpt2:gpt2_2layers
    mobilenet:mobilenet_v3_small efficientnet:efficientnet_b0 resnet:resnet50 convnext:convnext_atto
    mixer:mixer_s32 mobilevit:mobilevit_xxs swin:swin_tiny"""
INTEGERS = """mobilenet:mobilenet_v2 deit:deit_tiny tiny:mlp tiny:ds_cnn resnet:resnet8
    mobilenet:mobilenet_v3_small transformer:transformer_encoder_2layers"""
"""Models of examples/models."""


def made(place: str) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """A model of examples/models, and inputs."""
    file, _, name = place.partition(":")
    model, inputs = getattr(importlib.import_module(file), name)()
    return model.eval(), inputs


def rows() -> list[Row]:
    deit, encoder = "deit:deit_tiny", "transformer:transformer_encoder_2layers"

    def stock_mx() -> ExportedProgram:
        from executorch.backends.arm.ao_ext import MXFPOpConfig, to_mxfp

        model, inputs = made(deit)
        linears = lambda module, name: isinstance(module, torch.nn.Linear)  # noqa: E731
        to_mxfp(model, MXFPOpConfig(weight_dtype=torch.float8_e4m3fn), linears)
        return export(model, inputs)

    def mx(program: ExportedProgram) -> Any:
        return to_mxfp(program, "fp8e4m3", attention=True, convolutions=True, form="operators")

    def called(place: str) -> str:
        return place.partition(":")[2]

    floats = [
        Row(f"{called(p)} fp32", lambda p=p: export(*made(p)), "tosa-1.1+fp", "TOSA-1.0+FP")
        for p in FLOATS.split()
    ]
    integers = [
        Row(
            f"{called(p)} int8",
            lambda p=p: arm_int8(*made(p)),
            "tosa-1.0+int",
            "TOSA-1.0+INT",
            quantized=True,
        )
        for p in INTEGERS.split()
    ]
    wide = Row(
        f"{called(encoder)} 16x8",
        lambda: arm_int8(*made(encoder), wide=True),
        "tosa-1.0+int+int16",
        "TOSA-1.0+INT+int16",
        quantized=True,
    )
    in_mx = Row(
        f"{called(deit)} every product in MX",
        lambda: export(*made(deit)),
        "tosa-1.1+fp+mxfp+mxfp_conv",
        "TOSA-1.1+FP+mxfp",
        mx,
        stock_exported=stock_mx,
    )
    return [*floats, *integers, wide, in_mx]


def arm_int8(
    model: torch.nn.Module, inputs: tuple[Any, ...], wide: bool = False
) -> ExportedProgram:
    """The model in int8 as the stock flow's own quantizer annotates it: it takes no other.

    With `wide` activations have 16 bits.
    """
    from executorch.backends.arm.quantizer.arm_quantizer import (
        TOSAQuantizer,
        get_symmetric_a16w8_quantization_config,
        get_symmetric_quantization_config,
    )
    from executorch.backends.arm.tosa.specification import TosaSpecification
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    config = (
        get_symmetric_a16w8_quantization_config() if wide else get_symmetric_quantization_config()
    )
    specification = TosaSpecification.create_from_string("TOSA-1.0+INT" + "+int16" * wide)
    quantizer = TOSAQuantizer(specification)
    quantizer.set_global(config)
    prepared = prepare_pt2e(export(model.eval(), inputs).module(check_guards=False), quantizer)
    prepared(*inputs)
    return export(convert_pt2e(prepared), inputs)


def differing_integers(exported: ExportedProgram, target: str) -> int:
    """Elements of the int8 result on which the reference model and the interpreter differ."""
    lowered = stepwell.lower(exported, target)
    (taken,) = lowered.program.method().function_type.inputs.data
    shape: Any = taken
    dtype = torch_dtype(element(taken))
    limits = torch.iinfo(dtype)
    x = torch.randint(limits.min, limits.max + 1, list(shape.get_shape()), dtype=dtype)
    return int((lowered.run(x)[0] != lowered.program.run(x)[0]).sum())


def stock_tosa(exported: ExportedProgram, specification: str) -> list[bytes]:
    """The flatbuffers of the stock flow's delegates."""
    from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
    from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    from executorch.exir.lowered_backend_module import get_lowered_submodules

    partitioner = TOSAPartitioner(TosaCompileSpec(specification))
    # The edge verifier takes the MX operators' payload and scale for mismatched dtypes.
    config = EdgeCompileConfig(_check_ir_validity="mxfp" not in specification)
    edge = to_edge_transform_and_lower(exported, partitioner=[partitioner], compile_config=config)
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
    if row.quantized:
        found["differing"] = differing_integers(exported, row.target)
    if with_stock and row.stock is not None:
        held = row.stock_exported() if row.stock_exported else copy.deepcopy(exported)
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
    warm = export(*made("tiny:mlp"))
    stepwell.lower(warm, "tosa-1.1+fp").to_tosa()
    if not arguments.ours:
        stock_tosa(copy.deepcopy(warm), "TOSA-1.0+FP")
    kept: dict[str, Any] = dict(read("tosa") or {})
    results: dict[str, dict[str, Any]] = {}
    for row in rows():
        if arguments.only is None or arguments.only in row.name:
            results[row.name] = measure(row, not arguments.ours)
            write("tosa", kept | results)
    columns = ["seconds", "operators", "megabytes", "differing"]
    if not arguments.ours:
        columns += ["stock seconds", "stock operators", "stock delegates", "times faster"]
    table = [[name, *(found.get(column) for column in columns)] for name, found in results.items()]
    note = "CPU seconds of this process, one thread; operators without constants"
    show("Exported program to TOSA flatbuffer", ["model", *columns], table, note)


if __name__ == "__main__":
    main()
