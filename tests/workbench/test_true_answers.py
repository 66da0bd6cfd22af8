"""What a command says is so, or it says what it did not look at; two commands agree."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.exir import to_edge_transform_and_lower
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from stepwell.backends.ethos_u.vela import is_installed
from stepwell.cli.main import main

MODELS = """
import torch

class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 32, (10, 4), 2, (5, 1))
        self.head = torch.nn.Linear(32, 12)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))

class Sorts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 16, 3)

    def forward(self, x):
        return torch.sort(self.conv(x).mean((2, 3)))[0]

def words():
    torch.manual_seed(0)
    return Words().eval(), (torch.randn(1, 1, 49, 10),)

def sorts():
    torch.manual_seed(0)
    return Sorts().eval(), (torch.randn(1, 3, 32, 32),)

def data():
    yield from (100 * torch.randn(1, 1, 49, 10) for _ in range(3))
"""
Say = Callable[[str], str]
UNARY = """
func.func @forward(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %y = aten.sigmoid.default(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}
"""


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command line in a folder with models; return what it prints."""
    (tmp_path / "m.py").write_text(MODELS)
    (tmp_path / "unary.mlir").write_text(UNARY)
    monkeypatch.chdir(tmp_path)

    def run(line: str) -> str:
        assert main(line.split()) == 0
        said = capsys.readouterr()
        return said.out + said.err

    return run


def test_a_check_of_a_file_says_that_the_model_was_not_looked_at(say: Say) -> None:
    say("lower m.py:sorts -o m.pte")
    said = say("check m.pte")
    assert "whether that is the model's function was not looked at" in said
    assert "every pass" not in said


def test_shares_of_work_are_those_of_the_whole_model(say: Say) -> None:
    lowered = re.search(r"([\d.]+)% of the work", say("lower m.py:sorts"))
    outside = re.search(r"([\d.]+)% of the work", say("explain m.py:sorts --outside"))
    assert lowered is not None and outside is not None
    assert abs(float(lowered[1]) - float(outside[1])) <= 0.1


def test_an_arena_is_what_its_tensors_and_scratch_take(say: Say) -> None:
    made = say("lower m.py:words -t cortex-m55 --quantize int8 -O io=int8 -o m.pte")
    arena = re.search(r"forward: ([\d,]+) bytes of activations", made)
    said = say("explain m.pte --memory")
    assert arena is not None and f"holds {arena[1]} bytes at once" in said
    assert "gaps" not in said


@pytest.mark.skipif(not is_installed(), reason="Vela compiles for NPUs (stepwell[ethos-u])")
def test_work_that_is_not_known_has_no_share(say: Say) -> None:
    say("lower m.py:words -t ethos-u55-128 --quantize int8 -o m.pte")
    said = say("explain m.pte")
    assert "the work in ethosu.binary is not known" in said
    assert "of the work stays" not in said


def test_int8_is_the_targets_own_and_its_data_is_named(say: Say, tmp_path: Path) -> None:
    alone = say("lower m.py:words -t cortex-m4 --quantize int8 -o a.pte")
    assert "int8-cortex-m is calibrated on the example inputs alone" in alone
    on_data = say("lower m.py:words -t cortex-m4 --quantize int8 --data m.py:data -o b.pte")
    assert "int8-cortex-m is calibrated on 3 inputs of --data" in on_data
    torch.manual_seed(0)
    np.savez("samples.npz", x=np.stack([(100 * torch.randn(1, 1, 49, 10)).numpy()] * 2))
    say("lower m.py:words -t cortex-m4 --quantize int8 --data samples.npz -o c.pte")
    texts = [say(f"show {name}.pte") for name in "abc"]
    scale = [re.search(r"quantize_per_tensor.*?scale = ([\d.e-]+)", text) for text in texts]
    alone, three, two = (float(found[1]) for found in scale if found is not None)
    assert three > 20 * alone and two > 20 * alone


def test_opt_takes_back_what_it_prints(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = say("opt unary.mlir -p lower-unary")
    assert "xnnpack.sigmoid" in lowered
    Path("again.mlir").write_text(lowered)
    assert say("opt again.mlir") == lowered
    stream = io.TextIOWrapper(io.BytesIO(UNARY.encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert say("opt - -p lower-unary") == lowered


def test_a_stock_file_with_a_scalar_is_read_checked_and_run(say: Say) -> None:
    """A number beside a tensor is an int8 scalar of the call, and one element in the delegate."""
    torch.manual_seed(0)
    graph = torch.export.export(_Scaled().eval(), (torch.randn(1, 8),)).module(check_guards=False)
    config = get_symmetric_quantization_config(is_per_channel=True)
    prepared = prepare_pt2e(graph, XNNPACKQuantizer().set_global(config))
    prepared(torch.randn(1, 8))
    exported = torch.export.export(convert_pt2e(prepared), (torch.randn(1, 8),))
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    Path("stock.pte").write_bytes(edge.to_executorch().buffer)
    assert "xnnpack.multiply" in say("show stock.pte")
    assert "✓ artifact" in say("check stock.pte")


class _Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * 4
