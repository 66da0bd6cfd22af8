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
from tools import contradictions
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from stepwell import unload_plugin
from stepwell.backends.ethos_u.vela import is_installed
from stepwell.cli.main import main
from stepwell.ir.diagnostics import Problem, StepwellError
from stepwell.validation.result import CheckResult

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

class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ups = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(3))
        self.head = torch.nn.Linear(32, 10)

    def forward(self, x):
        for up in self.ups:
            x = x + torch.nn.functional.gelu(up(x))
        return self.head(x)

def deep():
    torch.manual_seed(0)
    return Deep().eval(), (torch.randn(8, 32),)

def rows():
    torch.manual_seed(1)
    return [((torch.randn(8, 32),), None) for _ in range(4)]

def norms():
    torch.manual_seed(0)
    layers = [m for _ in range(4) for m in (torch.nn.Conv2d(4, 4, 1), torch.nn.BatchNorm2d(4))]
    return torch.nn.Sequential(*layers).eval(), (torch.randn(1, 4, 3, 3),)

def words():
    torch.manual_seed(0)
    return Words().eval(), (torch.randn(1, 1, 49, 10),)

def sorts():
    torch.manual_seed(0)
    return Sorts().eval(), (torch.randn(1, 3, 32, 32),)

def data():
    yield from (100 * torch.randn(1, 1, 49, 10) for _ in range(3))
"""
TWICE = """
from dataclasses import dataclass
from typing import ClassVar

from stepwell import Rewrite
from stepwell.dialects import aten
from xdsl.dialects.builtin import TensorType
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure

@irdl_op_definition
class Twice(IRDLOperation):
    name = "mine.twice"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$x attr-dict `:` type($x) `->` type($result)"

@dataclass(frozen=True)
class FormTwice(Rewrite):
    name = "form-twice"
    anchors = (aten.SigmoidDefault,)

    def match(self, op, program):
        return op

    def build(self, op, rw):
        made = Twice.create(operands=[op.operands[0]], result_types=[op.results[0].type])
        rw.replace(op, rw.insert(made).results)
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
def test_work_that_is_not_known_has_no_share_nor_a_verdict(
    say: Say, capsys: pytest.CaptureFixture[str]
) -> None:
    say("lower m.py:words -t ethos-u55-128 --quantize int8 -o m.pte")
    said = say("explain m.pte")
    assert "the work in ethosu.binary is not known" in said
    assert "of the work stays" not in said
    assert "level ethosu: 3 ops, 1 delegate" in say("show m.pte --summary")
    for line in ("validate m.pte m.py:words --quantize int8", "check m.pte", "run m.pte"):
        assert main(line.split()) == 1
        told = capsys.readouterr()
        assert "Wrong" not in told.out and "ethosu" in told.err.replace("-", ""), line


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


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(contradictions.NETS)


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("name", [*contradictions.QUICK, "net/cortex-m55"])
def test_commands_say_the_same_of_one_thing(name: str) -> None:
    assert contradictions.compared(name, quick=True).findings == []


def test_what_contradicts_is_found() -> None:
    group = contradictions.Group("of two")
    group.facts = {"arena": {1024: ["lower"], 1000: ["explain"]}, "share": {2.0: ["a"], 2.1: ["b"]}}
    group.compare()
    assert group.findings == ["arena is 1024: lower; 1000: explain"]
    text = "1 delegates\nhelp: stepwell check --colour red\n"
    run = contradictions.Run("lower m.py:net -o none.pte", 0, text, "", {})
    assert [what.partition(":")[0] for what in contradictions.wrong_statements(run)] == [
        "a plural of one",
        "advises 'stepwell check --colour', which does not exist",
        "advises '--colour', which does not exist",
        "status 0, but none.pte does not",
    ]


@pytest.mark.usefixtures("nets")
def test_a_fused_node_is_known_by_all_it_came_from(say: Say) -> None:
    explained = say("explain nets.py:net")
    assert re.search(r"conv2d  .*delegate 0  xnnpack.static_transpose, xnnpack.conv", explained)
    assert re.search(r"batch_norm  .*folded +into conv2d  ", explained)
    say("lower nets.py:net -o net.pte --etrecord net.etrecord")
    profile = say("run net.pte --profile --etrecord net.etrecord")
    assert "aten.conv2d.default conv2d + batch_norm + relu  " in profile
    say("lower nets.py:rows -o rows.pte --etrecord rows.etrecord")
    assert "linear + relu" in say("run rows.pte --profile --etrecord rows.etrecord")


def test_opt_reads_back_ops_of_a_loaded_file(say: Say, capsys: pytest.CaptureFixture[str]) -> None:
    Path("twice.py").write_text(TWICE)
    made = say("opt unary.mlir --load twice.py -p form-twice")
    assert "mine.twice" in made
    Path("made.mlir").write_text(made)
    assert say("opt made.mlir --load twice.py") == made
    unload_plugin(str(Path("twice.py").absolute()))
    assert main(["opt", "made.mlir"]) == 1
    refused = capsys.readouterr().err
    assert "mine.twice is not registered" in refused and "--load FILE" in refused


@pytest.mark.usefixtures("nets")
def test_a_file_of_any_sizes_is_opened_at_its_largest(say: Say) -> None:
    say("lower nets.py:anyrows -o any.pte")
    for line in ("show any.pte --summary", "explain any.pte", "check any.pte"):
        assert "read at the largest sizes that it declares" in say(line), line
    assert "float32 64 x 8 at most" in say("explain any.pte --deploy")
    assert "arena" in say("explain any.pte --memory")


def test_a_mixture_is_lowered_as_it_is_printed_and_saved(say: Say) -> None:
    line = "accuracy m.py:deep --data m.py:rows --quantize 4w --cures mixing --budget 6:bits"
    said = say(f"{line} --save cured.mlir")
    (mixture,) = re.findall(r"its mixture: --quantize (\S+)", said)
    assert mixture.startswith("4w,") and "=8" in mixture
    say("lower cured.mlir -o saved.pte")
    say(f"lower m.py:deep --quantize {mixture} -o printed.pte")
    assert Path("saved.pte").read_bytes() == Path("printed.pte").read_bytes()
    (lost,) = re.findall(r"([+-][\d.]+ ± [\d.]+)(?: in all)", said) or [""]
    assert lost in re.findall(r"quantized .*?([+-][\d.]+ ± [\d.]+)", said)[0]
    assert "site-packages" not in said and "(2)" not in said


def test_a_mixture_that_is_none_is_refused(say: Say, capsys: pytest.CaptureFixture[str]) -> None:
    for said, told in (("4w,hed=8", "did you mean 'head'"), ("4w,head=7", "4 or 8")):
        assert main(["lower", "m.py:deep", "--quantize", said]) == 1
        assert told in capsys.readouterr().err


def test_one_reason_is_said_once(say: Say, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lower", "m.py:norms", "-t", "tosa-1.0+int"]) == 1
    refused = capsys.readouterr().err
    assert len(refused.splitlines()) == 3
    assert "which tosa-1.0+int does not have (× 4)" in refused and "and 2 more places" in refused
    checked = say("check m.py:norms --no-artifact").splitlines()
    assert sum("fold-batch-norm: " in line for line in checked) == 1
    result = CheckResult("ethos-u55-128", (), (), ("a on x: no", "a on y: no", "whole"), 0.0)
    assert result.left_out == ["a on 2 samples: no", "whole"]


def test_errors_keep_what_is_different() -> None:
    one = [Problem(f"aten.{op}.default: no floats", f"m.py:{n}", "quantize")
           for n, op in enumerate(("mm", "mm", "relu"), 1)]  # fmt: skip
    others = [Problem("aten.cos.default: no table"), Problem("two files")]
    assert str(StepwellError([*one, *others])).splitlines() == [
        "aten.mm.default and 1 other: no floats (× 3)",
        "  at m.py:1; m.py:2; and 1 more place",
        "  help: quantize",
        "aten.cos.default: no table",
        "two files",
    ]


def test_int8_of_a_validation_is_that_of_the_files_target(say: Say) -> None:
    say("lower m.py:words -t cortex-m4 --quantize int8 -o m4.pte")
    assert "No difference" in say("validate m4.pte m.py:words --quantize int8")


def test_integers_that_no_file_explains_are_not_called_wrong(
    say: Say, capsys: pytest.CaptureFixture[str]
) -> None:
    say("lower m.py:words -t cortex-m4 --quantize int8 -O io=int8 -o io.pte")
    assert main(["validate", "io.pte", "m.py:words", "--quantize", "int8"]) == 1
    said = capsys.readouterr()
    assert "Wrong" not in said.out and "no file states what these integers are" in said.err


def test_data_of_one_form_calibrates_and_measures(say: Say) -> None:
    """`lower --data` and `accuracy --data` take inputs, pairs with labels, and samples."""
    Path("d.py").write_text(
        "import torch\n"
        "def make(): return torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),)\n"
        "def inputs(): return [torch.ones(2, 4) * n for n in range(1, 4)]\n"
        "def pairs(): return [((x,), torch.zeros(2, dtype=torch.long)) for x in inputs()]\n"
        "def unlabeled(): return [(x, None) for x in inputs()]\n"
    )
    np.savez("d.npz", x=np.ones((3, 2, 4), np.float32))
    for data in ("d.py:inputs", "d.py:pairs", "d.py:unlabeled", "d.npz"):
        said = say(f"lower d.py:make -t xnnpack --quantize int8 --data {data} -o d.pte")
        assert "on 3 inputs of --data" in said
        said = say(f"accuracy d.py:make -t xnnpack --quantize int8 --data {data} --levels 0")
        assert "of 6" in said, said


def test_no_line_points_into_pytorch(say: Say) -> None:
    explained = say("explain m.py:norms")
    assert not re.search(r"(conv|batchnorm|container|linear|module)\.py:", explained)
    assert re.search(r"conv2d_3 +6 +delegate 0", explained)  # Known by its module.
    said = say("accuracy m.py:deep --data m.py:rows --levels 0")
    assert not re.search(r"0\.0000 ± 0\.0000 .*%", said), "a share of what is printed as nothing"
