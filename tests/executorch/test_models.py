"""Whole models run on the runtime's kernels alone, and again after being read back."""

import pytest
import torch
from example_models import exported
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from stepwell.backends.executorch.decompose import DecomposeForKernels
from stepwell.backends.executorch.reading.lift import read_pte
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.backends.executorch.writing.emit import emit
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import run_rewrites
from stepwell.translate.importer.from_torch import from_exported_program

_MODELS = [
    "control_flow:cond_model",
    "control_flow:while_loop_model",
    "dynamic:dynamic_batch",
    "dynamic:dynamic_length",
    "gpt2:gpt2_2layers",
    "quantized:cnn_per_channel",
    "quantized:mlp_dynamic",
    "tiny:ds_cnn",
    "deit:deit_small_depth2",
    "transformer:transformer_encoder_2layers",
]


def _to_kernels(exported: ExportedProgram) -> Program:
    program = from_exported_program(exported)
    run_rewrites(program, (DecomposeForKernels(),))
    return program


@pytest.mark.parametrize("name", _MODELS)
def test_a_model_on_kernels_alone_gives_what_pytorch_gives(name: str) -> None:
    program = exported(name)
    args, _ = program.example_inputs
    inputs = pytree.tree_leaves(args)
    data = to_bytes(emit(_to_kernels(program)))
    outputs = PteSession.load(data).run(*inputs)
    expected = pytree.tree_leaves(program.module()(*args))
    for ours, theirs in zip(outputs, expected, strict=True):
        scale = float(theirs.abs().max())
        assert scale > 0.01
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5 * scale)
    if name.startswith("control_flow"):
        return  # Jumps are not read back.
    read = read_pte(data)
    again = PteSession.load(to_bytes(emit(read))).run(*inputs)
    for first, second in zip(outputs, again, strict=True):
        assert torch.equal(first, second)
    for ours, theirs in zip(read.run(*inputs), expected, strict=True):
        scale = float(theirs.abs().max())
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5 * scale)
    if not name.startswith("dynamic"):  # Symbols of a .pte are unrelated to each other.
        read.verify()
