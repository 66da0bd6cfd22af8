"""What ExecuTorch's own flows for Arm write is read, written again, and computes the same bits.

Bytes differ, by name: the memory plan, the names of constants and debug handles become ours, and
TOSA's flatbuffers are laid out anew. Written once more they are the same bytes.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.backends.cortex_m.edge_compile_config import cortex_m_edge_compile_config
from executorch.backends.cortex_m.passes.cortex_m_pass_manager import CortexMPassManager
from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer
from executorch.backends.cortex_m.target_config import CortexMTargetConfig
from executorch.exir import to_edge, to_edge_transform_and_lower
from kept_stock import kept
from torch import nn
from torch.export import ExportedProgram, export
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import stepwell
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.tosa import run_reference_model
from stepwell.model_zoo.catalogue.models import find

Inputs = tuple[torch.Tensor, ...]
REST = (
    ("tiny.ds_cnn", "cortex-m4"),
    ("resnet.resnet8", "cortex-m55"),
    ("resnet.resnet8", "cortex-m4"),
    ("microcontrollers.tcn", "cortex-m55"),
    ("microcontrollers.tcn", "cortex-m4"),
)
"""Cortex-M programs that are asked of with time."""


def model(name: str, last: bool = False) -> tuple[nn.Module, Inputs]:
    """A model of the zoo; `last` lays images out with their channels last, as CMSIS-NN has them."""
    torch.manual_seed(0)
    made = find(name).make()
    assert made.module is not None
    module: Any = made.module.eval()
    inputs = tuple(made.inputs)
    if last and any(x.dim() == 4 for x in inputs):
        order = torch.channels_last
        return module.to(memory_format=order), tuple(x.to(memory_format=order) for x in inputs)
    return module, inputs


def cortex_m(name: str, cpu: str) -> tuple[bytes, Inputs]:
    module, inputs = model(name, last=True)
    floats = export(module, inputs)

    def make() -> bytes:
        prepared = prepare_pt2e(floats.module(check_guards=False), CortexMQuantizer())
        prepared(*inputs)
        exported = export(convert_pt2e(prepared), inputs)
        edge = to_edge(exported, compile_config=cortex_m_edge_compile_config())
        target = CortexMTargetConfig.from_target_string(cpu)
        manager = CortexMPassManager(edge.exported_program(), target_config=target)
        edge._edge_programs["forward"] = manager.transform()
        return bytes(edge.to_executorch().buffer)

    return kept(cpu, floats, make), inputs


def tosa(floats: ExportedProgram, inputs: Inputs, specification: str) -> bytes:
    def make() -> bytes:
        exported = floats
        if specification.endswith("INT"):
            quantizer = TOSAQuantizer(TosaCompileSpec(specification))
            quantizer.set_global(get_symmetric_quantization_config())
            prepared = prepare_pt2e(floats.module(check_guards=False), quantizer)
            prepared(*inputs)
            exported = export(convert_pt2e(prepared), inputs)
        partitioner = TOSAPartitioner(TosaCompileSpec(specification))
        edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
        return bytes(edge.to_executorch().buffer)

    return kept(specification, floats, make)


def written_again(data: bytes, target: str) -> bytes:
    """The file that a stock file becomes; it must be a fixed point."""
    again = stepwell.emit(stepwell.read_pte(data), target)
    assert stepwell.emit(stepwell.read_pte(again), target) == again
    return again


def drawn(inputs: Inputs, seed: int) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        x.copy_(torch.randn(x.shape, generator=generator)) for x in map(torch.clone, inputs)
    )


def assert_same_bits(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)


@pytest.mark.parametrize(
    ("name", "cpu"),
    [
        ("tiny.ds_cnn", "cortex-m55"),
        *(pytest.param(n, c, marks=pytest.mark.slow) for n, c in REST),
    ],
)
def test_a_stock_cortex_m_program_computes_the_same_when_it_is_written_again(
    name: str, cpu: str
) -> None:
    data, inputs = cortex_m(f"examples/{name}", cpu)
    again = written_again(data, cpu)
    for seed in range(2):
        given = drawn(inputs, seed)
        assert_same_bits(stepwell.run_pte(again, given), stepwell.run_pte(data, given))


def payloads(data: bytes) -> list[bytes]:
    """The flatbuffers of a file's TOSA delegates."""
    delegates = read_container(bytearray(data)).methods[0].delegates
    assert delegates and {delegate.backend for delegate in delegates} == {"TOSABackend"}
    return [bytes(delegate.payload) for delegate in delegates]


def assert_delegates_compute_the_same(data: bytes, target: str) -> None:
    """On the reference model, which is neither ExecuTorch's nor ours."""
    theirs, ours = payloads(data), payloads(written_again(data, target))
    for one, other in zip(ours, theirs, strict=True):
        method = stepwell.read_tosa(other).method("main")
        for seed in range(2):
            given = arguments(method, seed)
            assert_same_bits(run_reference_model(one, given), run_reference_model(other, given))


def arguments(method: Any, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    found: list[torch.Tensor] = []
    for type_ in method.function_type.inputs:
        shape = list(type_.get_shape())
        if str(type_.element_type) == "i8":
            found.append(torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8))
        else:
            assert str(type_.element_type) == "f32"
            found.append(torch.randn(shape, generator=generator))
    return found


@pytest.mark.parametrize(
    "name",
    [
        "tiny.mlp",
        pytest.param("tiny.ds_cnn", marks=pytest.mark.slow),
        pytest.param("transformer.transformer_encoder_2layers", marks=pytest.mark.slow),
    ],
)
def test_stock_tosa_delegates_compute_the_same_when_they_are_written_again(name: str) -> None:
    module, inputs = model(f"examples/{name}")
    data = tosa(export(module, inputs), inputs, "TOSA-1.0+FP")
    assert_delegates_compute_the_same(data, "tosa-1.0+fp+cpu")


@pytest.mark.parametrize(
    "name", ["tiny.ds_cnn", pytest.param("microcontrollers.tcn", marks=pytest.mark.slow)]
)
def test_stock_tosa_delegates_of_integers_do_too(name: str) -> None:
    module, inputs = model(f"examples/{name}")
    data = tosa(export(module, inputs), inputs, "TOSA-1.0+INT")
    assert_delegates_compute_the_same(data, "tosa-1.0+int+cpu")
