"""Transformers as ExecuTorch's TOSA quantizer takes them apart become graphs of integers."""

import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import torch
from forking import Forks
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn import functional

import stepwell

from .arm_quantized import parameters, quantized, quantized_by_ours, stored
from .graphs import assert_tosa_opt_accepts

pytestmark = pytest.mark.usefixtures("ranges_as_seen")


class Block(nn.Module):
    """A class token, positions, and one pre-norm block: images of rows `[1, 4, 8]` to `[1, 8]`."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.positions = nn.Parameter(torch.randn(1, 5, 8))
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).reshape(1, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        y = torch.softmax(q @ k.transpose(-1, -2) * 0.5, -1) @ v
        return self.out(y.transpose(1, 2).reshape(1, 5, 8))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token, x], 1) + self.positions
        x = x + self.attend(self.norm(x))
        return functional.gelu(x)[:, 0]


@cache
def block() -> tuple[ExportedProgram, tuple[Tensor, ...], stepwell.Lowered]:
    torch.manual_seed(0)
    inputs = (torch.randn(1, 4, 8),)
    exported = quantized(Block(), inputs, 8)
    return exported, inputs, stepwell.lower(exported, "tosa-1.0+int")


def operators(lowered: stepwell.Lowered) -> Counter[str]:
    ops = lowered.program.method().body.block.ops
    return Counter(op.name.removeprefix("tosa.") for op in ops if "const" not in op.name)


def steps_apart(exported: ExportedProgram, lowered: stepwell.Lowered, x: Tensor) -> float:
    """How far the integers are from torch's; the reference model gives those of the interpreter."""
    (taken,), (given,) = parameters(lowered, "input"), parameters(lowered, "output")
    integers = stored(x, *taken, 8)
    (found,) = lowered.run(integers)
    assert torch.equal(found, lowered.program.run(integers)[0])
    expected = torch.round(exported.module()(x) / given[0]) + given[1]
    return float((found - expected).abs().max())


def test_a_block_is_integers_alone_and_equal_on_the_reference_model() -> None:
    exported, inputs, lowered = block()
    assert steps_apart(exported, lowered, inputs[0]) <= 2
    assert steps_apart(exported, lowered, torch.randn(1, 4, 8)) <= 2


def test_a_block_with_whole_softmaxes_is_integers() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 4, 8)
    exported = quantized_by_ours(Block(), x)
    lowered = stepwell.lower(exported, "tosa-1.0+int")
    assert steps_apart(exported, lowered, x) <= 2
    assert operators(lowered)["intdiv"] == 1


def test_tosa_opt_validates_an_integer_block(tmp_path: Path) -> None:
    options = "specification_version=1.0 profiles=pro_int"
    assert_tosa_opt_accepts(block()[2].to_tosa(), options, tmp_path)


def test_functions_of_one_value_and_their_chains_are_tables() -> None:
    """The norm's mean and its variance to reciprocal root, attention's exponential and reciprocal
    sum and scale, gelu."""
    counts = operators(block()[2])
    assert counts["table"] == 7
    assert (counts["mul"], counts["reduce_sum"], counts["reduce_max"]) == (3, 3, 1)


def test_each_rewrite_moves_each_result_by_one_step_at_most() -> None:
    exported, inputs, _ = block()
    result = stepwell.check(exported, "tosa-1.0+int", inputs=inputs)
    assert result.ok, str(result)


def test_vela_compiles_an_integer_block(tmp_path: Path, forks: Forks) -> None:
    (tmp_path / "model.tosa").write_bytes(block()[2].to_tosa())
    vela = Path(sys.executable).with_name("vela")
    options = ["--accelerator-config", "ethos-u85-256", "--output-format", "raw"]
    done = forks.run([vela, "model.tosa", *options, "--output-dir", "out"], cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CPU operators = 0 " in done.stdout
