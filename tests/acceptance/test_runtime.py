"""From a model to the real runtime through the front door: constants, files, methods, shapes."""

import copy
import importlib
import io
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from eager import Function, lower
from forking import Forks
from isolated_run import unpacked_constants
from torch.export import ExportedProgram, export
from torch.utils import _pytree as pytree

import stepwell
from stepwell.backends.executorch.container import Delegate
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.running.runner import PteSession

MODELS = (
    "deit:deit_small_depth2",
    "resnet:resnet8",
    "tiny:ds_cnn",
    "llama:llama_block",
    "gpt2:gpt2_2layers",
    "transformer:transformer_encoder_2layers",
    "quantized:cnn_per_channel",
    "quantized:mlp_dynamic",
)


@cache
def made(name: str) -> tuple[Any, tuple[Any, ...], ExportedProgram]:
    """The callable, its inputs, and the exported program of a model of examples/models."""
    file, function = name.split(":")
    found = getattr(importlib.import_module(file), function)()
    if isinstance(found, ExportedProgram):
        return found.module(check_guards=False), found.example_inputs[0], found
    module, inputs, *shapes = found
    exported = export(module.eval(), inputs, dynamic_shapes=shapes[0] if shapes else None)
    return module, inputs, exported


def close(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    """Equal within a fraction of the largest number."""
    theirs = pytree.tree_leaves(theirs)
    for one, other in zip(ours, theirs, strict=True):
        scale = float(other.abs().max())
        assert scale > 0
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * scale)


def payloads(data: bytes) -> list[Any]:
    return [
        delegate.payload
        for method in read_container(bytearray(data)).methods
        for delegate in method.delegates
        if isinstance(delegate, Delegate)
    ]


@pytest.mark.parametrize("pipeline", ["xnnpack", "xnnpack-published"])
@pytest.mark.parametrize("name", MODELS)
def test_no_delegate_keeps_a_pointer_to_a_constant_and_a_file_runs_right(
    name: str, pipeline: str, tmp_path: Path
) -> None:
    module, inputs, exported = made(name)
    lowered = stepwell.lower(exported, "xnnpack", stepwell.PIPELINES[pipeline])
    data = lowered.to_pte()
    found = payloads(data)
    assert len(found) == lowered.report.delegates > 0
    assert [unpacked_constants(payload) for payload in found] == [[]] * len(found)
    file = tmp_path / "model.pte"
    file.write_bytes(data)
    # Quantized sums round where they stand; float ones are reordered.
    tolerance = 2e-2 if name.startswith("quantized") else 1e-5
    ours = PteSession.load(file).run(*pytree.tree_leaves(inputs))
    close(ours, copy.deepcopy(module)(*inputs), tolerance)


_OVERWRITING = """
import io, sys
from pathlib import Path
import torch
from stepwell.backends.executorch.running.runner import PteSession
inputs = torch.load(io.BytesIO(sys.stdin.buffer.read()), weights_only=True)
session = PteSession.load(Path(sys.argv[1]))
rubbish = [b"\\xff" * size for size in (64, 768, 4096, 65536, 1 << 20) for _ in range(200)]
torch.save(list(session.run(*inputs)), sys.argv[2])
"""
"""Load from a file, fill what loading freed with 0xff (NaN), run."""


def _saved(inputs: Any) -> bytes:
    held = io.BytesIO()
    torch.save(list(inputs), held)
    return held.getvalue()


def test_a_program_from_a_file_does_not_read_freed_memory(tmp_path: Path, forks: Forks) -> None:
    _, inputs, exported = made("deit:deit_small_depth2")
    lowered = stepwell.lower(exported, "xnnpack", stepwell.PIPELINES["xnnpack-published"])
    file = tmp_path / "model.pte"
    file.write_bytes(lowered.to_pte())
    done = forks.run(["-c", _OVERWRITING, file, tmp_path / "x.pt"], input=_saved(inputs))
    assert done.returncode == 0, done.stderr
    ours = torch.load(tmp_path / "x.pt", weights_only=True)
    close(ours, lowered.run(*inputs), 1e-6)


def test_weights_stand_in_a_separate_file_on_request() -> None:
    _, inputs, exported = made("transformer:transformer_encoder_2layers")
    lowered = stepwell.lower(exported, "xnnpack")
    whole = lowered.to_pte()
    program, weights = lowered.to_pte_and_ptd()
    assert len(program) < len(whole) / 4 < len(weights)
    ours = PteSession.load(program, external=weights).run(*inputs)
    assert torch.equal(ours[0], lowered.run(*inputs)[0])
    back = stepwell.read_pte(program, external=weights)
    close(back.run(*inputs), ours)


def test_prefill_and_decode_share_one_cache() -> None:
    from llama import llama_4layers, llama_4layers_prefill

    module, one = llama_4layers()
    _, prompt = llama_4layers_prefill()
    eager = copy.deepcopy(module)
    methods = {
        "prefill": export(module, prompt),
        "decode": export(module, one),
    }
    lowered = stepwell.lower(methods, "xnnpack")
    session = PteSession.load(lowered.to_pte())
    interpreted = lowered.program.start()
    with torch.no_grad():
        expected = eager(*prompt)
        close(session.run(*prompt, method="prefill"), expected)
        close(interpreted.run(*prompt, method="prefill"), expected)
        for position in range(8, 12):
            given = (torch.tensor([[position * 7]]), torch.tensor([position]))
            expected = eager(*given)
            close(session.run(*given, method="decode"), expected)
            close(interpreted.run(*given, method="decode"), expected)


@pytest.mark.parametrize(
    ("name", "axis", "sizes"),
    [("dynamic:dynamic_batch", 0, (2, 4, 17, 64)), ("dynamic:dynamic_length", 1, (2, 10, 33, 128))],
)
def test_one_program_runs_every_size_within_its_bounds(
    name: str, axis: int, sizes: tuple[int, ...]
) -> None:
    module, (example,), exported = made(name)
    lowered = stepwell.lower(exported, "xnnpack")
    session = PteSession.load(lowered.to_pte())
    for size in sizes:
        shape = list(example.shape)
        shape[axis] = size
        x = torch.randn(shape)
        close(session.run(x), module(x))
        close(lowered.program.run(x), module(x))
    shape = list(example.shape)
    shape[axis] = max(sizes) + 1
    with pytest.raises(stepwell.StepwellError, match="at most"):
        session.run(torch.randn(shape))


def test_channels_last_is_kept_and_an_input_in_rows_is_laid_out_so() -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
    module = module.to(memory_format=torch.channels_last)
    x = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    lowered = stepwell.lower(export(module, (x,)), "xnnpack")
    (ours,) = lowered.run(x)
    close((ours,), module(x))
    assert ours.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(lowered.run(x.contiguous())[0], ours)
    with pytest.raises(stepwell.StepwellError, match="dim order"):
        stepwell.run_pte(lowered.to_pte(), (x.contiguous(),))


@pytest.mark.parametrize("computed", [False, True])
def test_a_layer_whose_weight_is_known_only_at_run_time_keeps_its_bias(computed: bool) -> None:
    # XNNPACK's fully connected node crashes on a constant bias beside a computed filter.
    bias = torch.nn.Parameter(torch.randn(10))
    layer = Function(
        lambda x, w: torch.nn.functional.linear(x, torch.sin(w) if computed else w, bias)
    )
    inputs = (torch.randn(2, 16), torch.randn(10, 16))
    lowered = lower(layer, *inputs)
    assert lowered.report.delegates == 1
    close(lowered.run(*inputs), layer(*inputs))
