"""`.vgf` files are programs: what Arm's model converter made of a graph is that graph again.

The files in `vgf/` were written by the converter 0.11 from the `.tosa` beside each.
"""

import random
import shutil
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import export

import stepwell
from stepwell.backends.tosa import vgf
from stepwell.backends.tosa.spirv import NUMBERED, read_module
from stepwell.backends.tosa.vgf_reader import read_vgf
from stepwell.cli.terminal.sources import random_values
from stepwell.ir.diagnostics import ParseFailure, StepwellError, UnsupportedError

from .graphs import bits, conformance

FILES = sorted(Path(__file__).with_name("vgf").glob("*.vgf"))
WIDE = Path(__file__).with_name("vgf") / "wide.vgf"
WITH_CONVERTER = pytest.mark.skipif(
    not (Path(sys.executable).with_name(vgf.CONVERTER).exists() or shutil.which(vgf.CONVERTER)),
    reason="needs Arm's model converter: pip install 'stepwell[vgf]'",
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_computes_what_its_graph_does(file: Path) -> None:
    program = stepwell.load(file)
    program.verify()
    graph = stepwell.read_tosa(file.with_suffix(".tosa"))
    inputs = random_values(graph, "main", 0)
    wanted = graph.run(*inputs, method="main")
    for one, other in zip(program.run(*inputs, method="main"), wanted, strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)


@WITH_CONVERTER
@pytest.mark.parametrize("file", [f for f in FILES if f != WIDE], ids=lambda file: file.stem)
def test_a_file_is_written_again_byte_by_byte(file: Path) -> None:
    assert stepwell.emit(stepwell.read_vgf(file), "vgf", method="main") == file.read_bytes()


def test_integers_of_48_bits_are_read_and_the_target_says_what_it_lacks() -> None:
    """SPIR-V has them in 64 bits."""
    program = stepwell.read_vgf(WIDE)
    assert "tensor<3xi48>" in str(program)
    with pytest.raises(StepwellError, match="needs the extension int16"):
        stepwell.emit(program, "vgf", method="main")


def test_scalars_are_scalars_again_and_lines_of_one_stay_lines() -> None:
    """SPIR-V has both as `[1]`; a constant that both read comes back as two."""
    program = stepwell.read_vgf(WIDE.with_name("scalars.vgf"))
    results = program.run(torch.tensor(3.0), torch.randn(5), method="main")
    assert [tuple(result.shape) for result in results] == [(), (), (1, 1), ()]
    text = str(program)
    assert "dense<5.000000e-01> : tensor<f32>" in text
    assert "dense<5.000000e-01> : tensor<1xf32>" in text


NARROWED = "i64"
"""TOSA's integers of 64 bits are of 32 in the converter's files."""


def is_of_64_bits(program: stepwell.Program) -> bool:
    return any(f"x{NARROWED}>" in line for line in str(program).splitlines())


@pytest.mark.slow
@WITH_CONVERTER
def test_conformance_graphs_come_back_with_their_bits_and_bytes() -> None:
    """Each that the converter takes: every operator, ranks from 0, integers of 4 to 48 bits."""
    taken = 0
    for name, files in conformance("positive").items():
        graph = stepwell.read_tosa(files["test.tosa"])
        if is_of_64_bits(graph):
            continue
        try:
            data = vgf.to_vgf(graph, method="main")
        except UnsupportedError:
            continue
        taken += 1
        program = stepwell.read_vgf(data)
        program.verify()
        assert vgf.to_vgf(program, method="main") == data, name
        if "i48" in str(graph.methods["main"].function_type):
            continue  # torch has no such inputs.
        inputs = random_values(graph, "main", 0)
        wanted = graph.run(*inputs, method="main")
        for one, other in zip(program.run(*inputs, method="main"), wanted, strict=True):
            assert one.dtype == other.dtype and torch.equal(bits(one), bits(other)), name
    assert taken > 200


def test_a_file_cut_anywhere_is_refused() -> None:
    data = FILES[0].with_name("layers.vgf").read_bytes()
    for length in range(4, len(data) - 7):  # The last bytes pad.
        with pytest.raises(StepwellError):
            stepwell.load(data[:length])


def instruction(code: int, *operands: int) -> tuple[int, ...]:
    return ((len(operands) + 1) << 16 | code, *operands)


def doubled(repeated: int) -> list[int]:
    """A module: an int8 of one element, added to a constant that repeats a number of 32 bits."""
    name = struct.unpack("<4I", b"TOSA.001000.1".ljust(16, b"\0"))
    return [
        0x07230203, 0x10600, 0, 30, 0,
        *instruction(11, 1, *name),
        *instruction(21, 2, 32, 0), *instruction(21, 3, 8, 0),
        *instruction(43, 2, 4, 1), *instruction(43, 2, 5, 0), *instruction(43, 2, 6, repeated),
        *instruction(28, 7, 2, 4), *instruction(44, 7, 8, 4), *instruction(4163, 9, 3, 4, 8),
        *instruction(4461, 9, 10, 6),
        *instruction(4183, 11, 12), *instruction(4184, 9, 13, 5),
        *instruction(12, 9, 14, 1, 14, 13, 10),
        *instruction(4185, 14, 5), *instruction(4186),
    ]  # fmt: skip


def test_a_number_too_large_for_its_element_is_refused() -> None:
    region = read_module(doubled(100), ["x"], ["y"]).region
    assert [bytes(tensor.data) for tensor in region.tensors if tensor.data] == [b"\x64"]
    with pytest.raises(ParseFailure, match="no INT8"):
        read_module(doubled(1 << 20), ["x"], ["y"])


def test_a_vgf_file_goes_up_and_to_another_target() -> None:
    program = stepwell.read_vgf(FILES[0].with_name("layers.vgf"))
    (x,) = random_values(program, "main", 0)
    wanted = program.run(x, method="main")
    raised = program.raise_to("aten")
    lowered = stepwell.lower(raised, "xnnpack")
    for one, other in zip(lowered.run(x, method="main"), wanted, strict=True):
        assert torch.allclose(one.float(), other.float(), atol=1e-6)


def test_an_edit_is_in_the_program() -> None:
    program = stepwell.read_vgf(FILES[0].with_name("layers.vgf"))
    edited = stepwell.parse(
        program.text().replace("tosa.argmax", "tosa.reduce_max")
        .replace("-> tensor<1x4x4xi32>", "-> tensor<1x1x4x4xf32>")
        .replace("tensor<1x4x4xi32>", "tensor<1x1x4x4xf32>"),
        weights=program.weights,
    )  # fmt: skip
    (x,) = random_values(program, "main", 0)
    assert edited.run(x, method="main")[1].shape == (1, 1, 4, 4)
    assert stepwell.read_tosa(stepwell.emit(edited, "tosa-1.0+fp")).level == "tosa"


def test_operators_have_the_numbers_of_the_instruction_set() -> None:
    """The first, some between, and the last of `TOSA.001000.1`."""
    numbers = {name: at for at, name in enumerate(NUMBERED)}
    known = {"argmax": 0, "conv2d": 2, "clamp": 10, "mul": 27, "reshape": 56, "rescale": 65}
    assert {name: numbers[name] for name in known} == known and len(NUMBERED) == 66


def spoilt(data: bytes, generator: random.Random) -> bytes:
    """The file cut, or with some words changed."""
    if generator.random() < 0.2:
        return data[: generator.randrange(len(data))]
    held = bytearray(data)
    for _ in range(generator.choice([1, 1, 2, 4])):
        at = 4 * generator.randrange(len(held) // 4)
        word = generator.choice([0, 1, 3, 0x7FFFFFFF, 0xFFFFFFFF, generator.randrange(120)])
        held[at : at + 4] = struct.pack("<I", word)
    return bytes(held)


def test_spoilt_files_are_refused_or_read() -> None:
    generator = random.Random(0)
    refused = 0
    for _ in range(600):
        data = spoilt(generator.choice(FILES).read_bytes(), generator)
        try:
            stepwell.load(data).verify()
        except StepwellError:
            refused += 1
    assert 300 < refused < 600


def replaced(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) == 1
    return data.replace(old, new)


def words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def refusals(data: bytes) -> Sequence[tuple[bytes, type[StepwellError], str]]:
    return [
        (data[:200], ParseFailure, "runs past its end"),
        (data[:8] + b"\x01" + data[9:], UnsupportedError, "format 1"),
        (data.replace(b"TOSA.001000.1", b"TOSA.009000.1"), UnsupportedError, "instruction set"),
        (replaced(data, words(0x07230203), words(0)), ParseFailure, "does not begin as SPIR-V"),
    ]


@pytest.mark.parametrize("number", range(4))
def test_what_cannot_be_read_is_refused_in_a_sentence(number: int) -> None:
    data, error, said = refusals(FILES[0].with_name("layers.vgf").read_bytes())[number]
    with pytest.raises(error, match=said):
        read_vgf(data)


@WITH_CONVERTER
def test_a_small_model_comes_back() -> None:
    """With nothing kept from an earlier version of the converter."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(144, 4)).eval()
    x = torch.randn(1, 3, 8, 8)
    lowered = stepwell.lower(export(model, (x,)), "vgf")
    data = lowered.to_vgf()
    assert data[:4] == b"VGF1"
    program = stepwell.read_vgf(data)
    assert torch.equal(program.run(x, method="main")[0], lowered.program.run(x)[0])
    assert stepwell.emit(program, "vgf", method="main") == data
