"""Damaged files, texts, options and command lines: a StepwellError says why, or a program is left.

Bytes are flipped, cut off, repeated and overwritten with absurd sizes. Nothing may crash, hang,
take unbounded memory, write outside its folder or raise anything but a StepwellError. Many copies
of a few files are read in this process, and a few of every kind in forked ones.
"""

import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from forking import Forks

import stepwell
from stepwell.ir.rewriting.failures import StepFailure
from stepwell.loaders.models import open_model

MUTANTS = Path(__file__).with_name("mutants.py")
sys.path.insert(0, str(MUTANTS.parent))
import mutants  # noqa: E402
from damaging import damaged, reworded  # noqa: E402
from mutants import HAS_GGUF, INPUTS, OTHERS, lowered, net, saved  # noqa: E402

MOST_SECONDS = 10.0
MOST_MEMORY = 512 << 20


@contextmanager
def bounded_time_and_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    yield
    assert time.perf_counter() - started < MOST_SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < MOST_MEMORY


def survives(read: Callable[[Any], stepwell.Program], data: Any) -> bool:
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


def pte(_: Path) -> tuple[bytes, Callable[[bytes], stepwell.Program]]:
    return lowered("xnnpack").artifact, stepwell.read_pte


def tosa(_: Path) -> tuple[bytes, Callable[[bytes], stepwell.Program]]:
    return lowered("tosa-1.0+fp").artifact, stepwell.read_tosa


def text(_: Path) -> tuple[bytes, Callable[[bytes], stepwell.Program]]:
    weights = net().weights
    return saved()[0], lambda data: stepwell.parse(data.decode(errors="replace"), weights)


def weights(folder: Path) -> tuple[bytes, Callable[[bytes], stepwell.Program]]:
    (folder / "m.mlir").write_bytes(saved()[0])

    def read(data: bytes) -> stepwell.Program:
        (folder / "m.safetensors").write_bytes(data)
        return stepwell.load(folder / "m.mlir")

    return saved()[1], read


def pt2(folder: Path) -> tuple[bytes, Callable[[bytes], stepwell.Program]]:
    def read(data: bytes) -> stepwell.Program:
        (folder / "m.pt2").write_bytes(data)
        return open_model(str(folder / "m.pt2")).program

    return mutants.pt2(), read


@pytest.mark.parametrize(
    ("kind", "count", "written"),
    [(pte, 250, set()), (tosa, 250, set()), (text, 250, set()), (pt2, 60, {"m.pt2"}),
     (weights, 250, {"m.mlir", "m.safetensors"})],
)  # fmt: skip
def test_a_damaged_file_is_refused_or_still_a_program(
    kind: Any, count: int, written: set[str], tmp_path: Path
) -> None:
    whole, read = kind(tmp_path)
    assert survives(read, whole)
    draw = random.Random(7)
    refused = sum(not survives(read, damaged(whole, draw)) for _ in range(count))
    assert 0 < refused <= count
    assert {path.name for path in tmp_path.iterdir()} == written


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_many_damaged_artifacts(seed: int, tmp_path: Path) -> None:
    for kind in (pte, tosa):
        (whole, read), draw = kind(tmp_path), random.Random(seed)
        for _ in range(1000):
            survives(read, damaged(whole, draw))


def test_a_text_with_words_out_of_place_never_runs_to_anything_but_tensors_or_an_error() -> None:
    program, draw, ran = net(), random.Random(11), 0
    whole = str(program)
    for _ in range(250):
        try:
            with bounded_time_and_memory():
                again = stepwell.parse(reworded(whole, draw), program.weights)
                again.verify()
                outputs = again.run(*INPUTS)
        except stepwell.StepwellError as error:
            assert not isinstance(error, StepFailure), error
            assert all(problem.fact for problem in error.problems)
            continue
        ran += 1
        assert all(isinstance(output, torch.Tensor) for output in outputs)
    assert ran


KINDS = (
    *("text", "text to xnnpack", "text to tosa", "text to cortex-m", "text to tosa integers"),
    *("text of xnnpack", "text of tosa", "text of cortex-m", "pte", "pte of cortex-m", "pte run"),
    *("tosa", "tosa of integers", "weights", *OTHERS, "options", "commands"),
)


def tried(forks: Forks, kind: str, count: int, seed: int) -> list[dict[str, Any]]:
    done = forks.run([MUTANTS, kind, str(count), str(seed)])
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_few_mutants_of_each_kind_are_refused_or_right(forks: Forks) -> None:
    """In forked processes of bounded memory and time: no trace, no abort, no hang."""
    rows = tried(forks, "every", 2, 0)
    assert [row for row in rows if "outcome" in row] == []
    assert tuple(row["kind"] for row in rows) == KINDS
    assert all(sum(n for n in row.values() if isinstance(n, int)) == 2 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("kind", [*KINDS, *["gguf"] * HAS_GGUF])
def test_many_mutants_are_refused_or_right(kind: str, seed: int, forks: Forks) -> None:
    assert [row for row in tried(forks, kind, 1000, seed) if "outcome" in row] == []


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
    net().save(tmp_path / "m.mlir")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def no_space(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", no_space)
    with pytest.raises(stepwell.StepwellError, match="No space"):
        lowered("xnnpack").program.save(tmp_path / "m.mlir")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
