"""Damaged files and texts: a StepwellError says what is wrong, or a program is still there.

Bytes are flipped, cut off, repeated and overwritten with absurd sizes. Nothing may crash, hang,
take unbounded memory, write outside its folder or raise anything but a StepwellError.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import torch

import stepwell
from stepwell.ir.rewriting.failures import StepFailure

MOST_SECONDS = 10.0
MOST_MEMORY = 512 << 20


class Small(torch.nn.Module):
    """A convolution, a norm, a linear layer and a kernel left outside."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 3, 3)
        self.fc = torch.nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.conv(x)).mean(1)
        return torch.cumsum(self.fc(y), 1)


class Plain(torch.nn.Module):
    """Only what TOSA holds."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.fc(x)).transpose(0, 1)


@cache
def small() -> stepwell.Program:
    torch.manual_seed(0)
    inputs = (torch.randn(1, 2, 6, 6),)
    return stepwell.from_exported_program(torch.export.export(Small().eval(), inputs))


@cache
def plain() -> stepwell.Program:
    torch.manual_seed(0)
    return stepwell.from_exported_program(torch.export.export(Plain().eval(), (torch.randn(3, 4),)))


@cache
def pte() -> bytes:
    return stepwell.lower(small(), "xnnpack").to_pte()


@cache
def tosa() -> bytes:
    return stepwell.lower(plain(), "tosa-1.0+fp").to_tosa()


def damaged(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Copies of a file with one to four faults each."""
    rng = random.Random(seed)
    sizes = (0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, len(data), len(data) - 1, 0x10000)
    for _ in range(count):
        held = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            fault = rng.randrange(6)
            at = rng.randrange(len(held)) if held else 0
            if not held:
                break
            if fault == 0:
                held[at] ^= 1 << rng.randrange(8)
            elif fault == 1:
                del held[at:]
            elif fault == 2:
                at &= ~3
                held[at : at + 4] = rng.choice(sizes).to_bytes(4, "little")
            elif fault == 3:
                held[at : at + 8] = rng.randbytes(8)
            elif fault == 4:
                end = min(len(held), at + rng.randint(1, 64))
                held[at:at] = held[at:end]
            else:
                del held[at : at + rng.randint(1, 64)]
        yield bytes(held)


@contextmanager
def bounded_time_and_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    yield
    assert time.perf_counter() - started < MOST_SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < MOST_MEMORY


def survives(read: Callable[[bytes], stepwell.Program], data: bytes) -> bool:
    """Whether a damaged file still reads; if it does, it verifies or says why not."""
    try:
        with bounded_time_and_memory():
            program = read(data)
            program.verify()
            str(program)
    except stepwell.StepwellError as error:
        assert not isinstance(error, StepFailure), error
        assert all(problem.fact for problem in error.problems)
        return False
    return True


def run_through(read: Callable[[bytes], stepwell.Program], data: bytes, count: int) -> None:
    assert survives(read, data)
    refused = sum(not survives(read, bad) for bad in damaged(data, count, seed=7))
    assert 0 < refused <= count


def test_a_damaged_pte_is_refused_or_still_a_program() -> None:
    run_through(stepwell.read_pte, pte(), 250)


def test_a_damaged_tosa_flatbuffer_is_refused_or_still_a_program() -> None:
    run_through(stepwell.read_tosa, tosa(), 250)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_many_damaged_artifacts(seed: int) -> None:
    for bad in damaged(pte(), 1000, seed):
        survives(stepwell.read_pte, bad)
    for bad in damaged(tosa(), 1000, seed):
        survives(stepwell.read_tosa, bad)


def test_damaged_weights_beside_a_text_are_refused_or_still_a_program(tmp_path: Path) -> None:
    small().save(tmp_path / "m.mlir")
    weights = tmp_path / "m.safetensors"
    whole = weights.read_bytes()

    def read(data: bytes) -> stepwell.Program:
        weights.write_bytes(data)
        return stepwell.load(tmp_path / "m.mlir")

    run_through(read, whole, 250)
    assert {path.name for path in tmp_path.iterdir()} == {"m.mlir", "m.safetensors"}


def test_a_damaged_text_is_refused_or_still_a_program(tmp_path: Path) -> None:
    text = str(small()).encode()

    def read(data: bytes) -> stepwell.Program:
        return stepwell.parse(data.decode(errors="replace"), small().weights)

    run_through(read, text, 250)


def words(text: str, count: int, seed: int) -> Iterator[str]:
    """Texts with a word removed, doubled, swapped with another or put in its place."""
    rng = random.Random(seed)
    lines = text.split(" ")
    for _ in range(count):
        held = list(lines)
        for _ in range(rng.randint(1, 2)):
            a, b = rng.randrange(len(held)), rng.randrange(len(held))
            match rng.randrange(4):
                case 0:
                    del held[a]
                case 1:
                    held.insert(a, held[b % len(held)])
                case 2:
                    held[a], held[b] = held[b], held[a]
                case _:
                    held[a] = held[b]
        yield " ".join(held)


def test_a_text_with_words_out_of_place_never_runs_to_anything_but_tensors_or_an_error() -> None:
    program = small()
    inputs = (torch.randn(1, 2, 6, 6),)
    for text in words(str(program), 250, seed=11):
        try:
            with bounded_time_and_memory():
                again = stepwell.parse(text, program.weights)
                again.verify()
                outputs = again.run(*inputs)
        except stepwell.StepwellError as error:
            assert not isinstance(error, StepFailure), error
            assert all(problem.fact for problem in error.problems)
            continue
        assert all(isinstance(output, torch.Tensor) for output in outputs)


def test_a_damaged_pt2_is_refused_or_still_a_program(tmp_path: Path) -> None:
    from stepwell.loaders.models import open_model

    path = tmp_path / "m.pt2"
    inputs = (torch.randn(3, 4),)
    torch.export.save(torch.export.export(Plain().eval(), inputs), path)
    whole = path.read_bytes()

    def read(data: bytes) -> stepwell.Program:
        path.write_bytes(data)
        return open_model(str(path)).program

    run_through(read, whole, 60)
    assert {p.name for p in tmp_path.iterdir()} == {"m.pt2"}


def test_weight_names_that_climb_out_of_the_folder_stay_names(tmp_path: Path) -> None:
    key = "../../outside/../evil\\weight\u0000"
    text = """
    func.func @forward(%x: tensor<2xf32>) -> tensor<2xf32> {
      %w = stepwell.weight <"../../evil"> "parameter" : tensor<2xf32>
      %y = aten.add.Tensor(%x, %w) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      func.return %y : tensor<2xf32>
    }"""
    program = stepwell.parse(text)
    program.weights.add("../../evil", torch.ones(2))
    program.weights.add(key, torch.ones(2))
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    program.save(folder / "m.mlir")
    everything = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert everything == {"a/b/m.mlir", "a/b/m.safetensors"}
    assert torch.equal(stepwell.load(folder / "m.mlir").weights.get("../../evil"), torch.ones(2))


def test_a_failed_save_leaves_the_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    small().save(tmp_path / "m.mlir")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def no_space(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", no_space)
    with pytest.raises(stepwell.StepwellError, match="No space"):
        plain().save(tmp_path / "m.mlir")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
