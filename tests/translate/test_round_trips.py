"""Torch programs go in and come back: graph, signature, values, text."""

import io
import subprocess
from functools import cache
from pathlib import Path

import pytest
import torch
from eager import exported
from torch.export import ExportedProgram

import stepwell
from stepwell.backends.tosa.installed import tool
from stepwell.ir.program import Program
from stepwell.ir.syntax.text import parse_module, structurally_equal, to_text
from stepwell.translate.exporter.to_torch import to_exported_program
from stepwell.translate.importer.from_torch import from_exported_program

from .graphs import examples, export, rows

FUNCTIONAL = [
    "control_flow:cond_model",
    "control_flow:while_loop_model",
    "deit:deit_small_depth2",
    "deit:deit_tiny",
    "dynamic:dynamic_batch",
    "dynamic:dynamic_length",
    "llama:llama_block",
    "quantized:cnn_per_channel",
    "quantized:cnn_per_tensor",
    "quantized:mlp_dynamic",
    "resnet:resnet18",
]


exported_once = cache(export)
"""For programs without state: exporting takes longer than what is tried on them."""


def through_text(program: Program) -> Program:
    text = to_text(program.module, locations=True)
    module = parse_module(text)
    assert structurally_equal(module, program.module, locations=True)
    return Program(module, program.weights.child())


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_a_functional_program_comes_back_node_for_node(name: str) -> None:
    exported, inputs = exported_once(name)
    program = from_exported_program(exported)
    program.verify()
    again = to_exported_program(program)
    assert rows(again) == rows(exported)
    assert examples(again) == examples(exported)
    assert again.graph_signature == exported.graph_signature
    assert again.range_constraints == exported.range_constraints
    with torch.no_grad():
        expected = exported.module()(*inputs)
        assert torch.equal(again.module()(*inputs), expected)
        assert torch.equal(program.run(*inputs)[0], expected)


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_text_and_disk_change_nothing_on_the_way(name: str, tmp_path: Path) -> None:
    exported, inputs = exported_once(name)
    program = from_exported_program(exported)
    for generic in (False, True):
        text = to_text(program.module, locations=True, generic=generic)
        module = parse_module(text)
        assert structurally_equal(module, program.module, locations=True)
        assert to_text(module, locations=True, generic=generic) == text
    upstream = [tool("tosa-opt"), "--allow-unregistered-dialect", "-"]
    said = subprocess.run(upstream, input=text, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    program.save(tmp_path / "model.mlir")
    loaded = stepwell.load(tmp_path / "model.mlir")
    loaded.verify()
    for found, wanted in zip(loaded.run(*inputs), program.run(*inputs), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    again = to_exported_program(Program(module, program.weights.child()))
    outer = len(list(exported.graph.nodes))
    assert rows(again)[:outer] == rows(exported)[:outer]


@pytest.mark.parametrize("name", ["control_flow:cond_model", "resnet:resnet18"])
def test_what_comes_back_saves_loads_and_exports_again(name: str) -> None:
    exported, inputs = exported_once(name)
    again = to_exported_program(from_exported_program(exported))
    file = io.BytesIO()
    torch.export.save(again, file)
    file.seek(0)
    loaded: ExportedProgram = torch.export.load(file)
    twice = torch.export.export(again.module(), inputs)
    with torch.no_grad():
        expected = exported.module()(*inputs)
        assert torch.equal(loaded.module()(*inputs), expected)
        assert torch.equal(twice.module()(*inputs), expected)


def test_a_key_value_cache_is_kept_between_calls_all_the_way_around() -> None:
    exported, (tokens, positions) = export("llama:llama_4layers")
    program = from_exported_program(exported)
    program.verify()
    again = to_exported_program(through_text(program))
    ours, back = program.start(), again.module()
    with torch.no_grad():
        eager = exported.module()
        for place in range(3):
            inputs = tokens + place, positions + place
            expected = eager(*inputs)
            assert torch.equal(ours.run(*inputs)[0], expected)
            assert torch.equal(back(*inputs), expected)
    assert len(again.graph_signature.buffers_to_mutate) == 8


def test_two_methods_share_weights_and_state() -> None:
    decode, (token, _) = export("llama:llama_4layers")
    prefill, (prompt, places) = export("llama:llama_4layers_prefill")
    program = from_exported_program({"prefill": prefill, "decode": decode})
    program.verify()
    assert set(program.methods) == {"prefill", "decode"}
    assert len(program.weights) == len(from_exported_program(decode).weights)
    session = program.start()
    session.run(prompt, places, method="prefill")
    warm = session.run(token, torch.tensor([8]), method="decode")[0]
    cold = program.run(token, torch.tensor([8]), method="decode")[0]
    assert not torch.equal(warm, cold)
    whole = torch.cat((prompt, token), dim=1)
    expected = program.start()
    for place in range(9):
        last = expected.run(whole[:, place : place + 1], torch.tensor([place]), method="decode")[0]
    torch.testing.assert_close(warm, last)


def test_import_copies_no_weight() -> None:
    exported, _ = exported_once("resnet:resnet18")
    program = from_exported_program(exported)
    given = {**exported.constants, **exported.state_dict}
    held = program.weights.tensors()
    assert set(held) == set(given)
    assert all(held[key].data_ptr() == given[key].data_ptr() for key in given)
    assert program.weights.counts.evaluated == 0
    back = to_exported_program(program.clone())
    assert all(back.state_dict[key].data_ptr() == given[key].data_ptr() for key in back.state_dict)


def test_padding_by_an_open_size_comes_back_to_torch() -> None:
    def padded(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x, (0, (-x.shape[1]) % 4)).unflatten(1, (-1, 4)).sum(1)

    open_columns = {1: torch.export.Dim.AUTO(min=2, max=20)}
    made = exported(padded, torch.arange(12.0).reshape(2, 6), dynamic=open_columns)
    again = to_exported_program(from_exported_program(made)).module()
    for length in (6, 7, 8, 19):
        x = torch.randn(2, length)
        assert torch.equal(again(x), padded(x))


def test_looking_for_an_overload_leaves_torchs_own_in_place() -> None:
    from stepwell.dialects.aten.registry import functional_overload

    packet = torch.ops.aten.index_copy
    before = {name: getattr(packet, name) for name in packet.overloads()}
    assert functional_overload(torch.ops.aten.index_copy_.default) is packet.default
    assert functional_overload(torch.ops.aten.pow_.Scalar) is torch.ops.aten.pow.Tensor_Scalar
    assert all(getattr(packet, name) is held for name, held in before.items())
