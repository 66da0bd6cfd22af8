"""Whole models run on the runtime's kernels alone, and again after being read back."""

import importlib

import pytest
import torch
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


def _exported(name: str) -> ExportedProgram:
    file, function = name.split(":")
    made = getattr(importlib.import_module(file), function)()
    if isinstance(made, ExportedProgram):
        return made
    module, inputs, *shapes = made
    return torch.export.export(module.eval(), inputs, dynamic_shapes=shapes[0] if shapes else None)


def _to_kernels(exported: ExportedProgram) -> Program:
    program = from_exported_program(exported)
    run_rewrites(program, (DecomposeForKernels(),))
    return program


@pytest.mark.parametrize("name", _MODELS)
def test_a_model_on_kernels_alone_gives_what_pytorch_gives(name: str) -> None:
    exported = _exported(name)
    args, _ = exported.example_inputs
    inputs = pytree.tree_leaves(args)
    data = to_bytes(emit(_to_kernels(exported)))
    outputs = PteSession.load(data).run(*inputs)
    expected = pytree.tree_leaves(exported.module()(*args))
    for ours, theirs in zip(outputs, expected, strict=True):
        scale = float(theirs.abs().max())
        assert scale > 0.01
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5 * scale)
    if name.startswith("control_flow"):
        return  # Jumps are not read back.
    program = read_pte(data)
    again = PteSession.load(to_bytes(emit(program))).run(*inputs)
    for first, second in zip(outputs, again, strict=True):
        assert torch.equal(first, second)
    for ours, theirs in zip(program.run(*inputs), expected, strict=True):
        scale = float(theirs.abs().max())
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5 * scale)
    if not name.startswith("dynamic"):  # Symbols of a .pte are unrelated to each other.
        program.verify()


def test_a_cache_lives_on_between_calls() -> None:
    """Four layers of attention with a key-value cache, token by token, in eager and on kernels."""
    from llama import llama_4layers

    module, inputs = llama_4layers()
    exported = torch.export.export(module.eval(), inputs)
    container = emit(_to_kernels(exported))
    assert any(
        getattr(i, "kernel", "") == "aten::index_put_" for i in container.methods[0].instructions
    )
    session, eager = PteSession.load(to_bytes(container)), exported.module()
    for step in range(4):
        given = tuple(
            torch.full_like(x, step) if x.shape == (1,) else (x + 3 * step) % 50
            for x in pytree.tree_leaves(inputs)
        )
        (ours,), theirs = session.run(*given), eager(*given)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)
