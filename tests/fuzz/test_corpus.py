"""What random testing found, and what once went wrong: each program is run again on every target.

A program is kept as its text (`corpus/*.mlir`, without weights), named after what was wrong with
it. To add one: `str(stepwell.from_exported_program(...))`.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.rewriting.failures import StepFailure
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.ir.signature import get_signature
from stepwell.ir.types import dims, element
from stepwell.validation.compare import differs

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.mlir"))
KERNELS = Bound(1e-4, 2e-5, "float kernels reassociate and approximate")


def samples(program: stepwell.Program) -> list[list[torch.Tensor]]:
    """Random inputs at the largest, the smallest and a middle size of each symbol."""
    func = program.method("forward")
    ranges = get_signature(func).ranges
    draws: list[list[torch.Tensor]] = []
    for pick in (lambda low, high: high, lambda low, high: low, lambda low, high: 3):
        inputs: list[torch.Tensor] = []
        for argument in func.body.block.args:
            shape = [
                d if isinstance(d, int) else pick(*(ranges.get(str(d)) or (1, 8)))
                for d in dims(argument.type)
            ]
            inputs.append(torch.randn(shape).to(torch_dtype(element(argument.type))))
        draws.append(inputs)
    return draws if ranges else draws[:1]


def agree(given: Any, wanted: Any) -> None:
    for got, want in zip(given, wanted, strict=True):
        assert (difference := differs(want, got, KERNELS, against="tensor")) is None, difference


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_a_program_of_the_corpus_keeps_its_meaning(path: Path) -> None:
    program = stepwell.parse(path.read_text())
    program.verify()
    lowered = stepwell.lower(program, "xnnpack")
    artifact = PteSession.load(lowered.to_pte())
    for inputs in samples(program):
        wanted = program.run(*inputs)
        agree(lowered.program.run(*inputs), wanted)
        agree(artifact.run(*inputs), wanted)
    try:
        tosa = stepwell.lower(program, "tosa-1.0+fp")
    except stepwell.StepwellError as error:
        assert not isinstance(error, StepFailure), error
        assert all(problem.fact for problem in error.problems)
        return
    for inputs in samples(program):
        agree(tosa.program.run(*inputs), program.run(*inputs))


def test_the_corpus_is_not_empty() -> None:
    assert len(CORPUS) >= 5
