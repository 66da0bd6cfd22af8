"""Whole programs survive text and disk: the same IR, accepted upstream, the same numbers."""

import importlib
import subprocess
from pathlib import Path

import pytest
import torch
from torch.export import ExportedProgram

import stepwell
from stepwell.backends.tosa.installed import tool
from stepwell.ir.syntax.text import parse_module, structurally_equal, to_text

MODELS = [
    "control_flow:cond_model",
    "control_flow:while_loop_model",
    "deit:deit_small_depth2",
    "dynamic:dynamic_batch",
    "dynamic:dynamic_length",
    "llama:llama_block",
    "quantized:cnn_per_channel",
    "quantized:mlp_dynamic",
    "resnet:resnet8",
]
MLIR_OPT = tool("tosa-opt")


def exported(name: str) -> ExportedProgram:
    file, function = name.split(":")
    made = getattr(importlib.import_module(file), function)()
    if isinstance(made, ExportedProgram):
        return made
    module, inputs, *shapes = made
    return torch.export.export(module, inputs, dynamic_shapes=shapes[0] if shapes else None)


@pytest.mark.parametrize("name", MODELS)
def test_a_program_comes_back_from_text_and_disk(name: str, tmp_path: Path) -> None:
    graph = exported(name)
    program = stepwell.from_exported_program(graph)
    for generic in (False, True):
        text = to_text(program.module, locations=True, generic=generic)
        back = parse_module(text)
        assert structurally_equal(program.module, back, locations=True)
        assert to_text(back, locations=True, generic=generic) == text
    upstream = subprocess.run(
        [MLIR_OPT, "--allow-unregistered-dialect", "-"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert upstream.returncode == 0, upstream.stderr
    program.save(tmp_path / "model.mlir")
    loaded = stepwell.load(tmp_path / "model.mlir")
    loaded.verify()
    args, kwargs = graph.example_inputs
    for left, right in zip(program.run(*args, **kwargs), loaded.run(*args, **kwargs), strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True)
