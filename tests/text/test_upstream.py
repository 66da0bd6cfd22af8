"""Texts of MLIR's own dialects and of torch-mlir's come in, compute what they say, and go out."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stepwell
from stepwell.backends.tosa.installed import tool
from stepwell.cli.main import main
from stepwell.ir.diagnostics import StepwellError

IDENTITY = "affine_map<(d0, d1) -> (d0, d1)>"
MATRIX = """
func.func @f(%a: tensor<4x8xf32>, %b: tensor<8x6xf32>) -> tensor<4x6xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x6xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x6xf32>) -> tensor<4x6xf32>
  %m = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>)
       outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %m : tensor<4x6xf32>
}
"""
SOFT = f"""
func.func @f(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {{
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<4xf32>
  %i = linalg.fill ins(%low : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %max = linalg.generic {{indexing_maps = [{IDENTITY}, affine_map<(d0, d1) -> (d0)>],
      iterator_types = ["parallel", "reduction"]}}
      ins(%a : tensor<4x8xf32>) outs(%i : tensor<4xf32>) {{
  ^bb0(%x: f32, %acc: f32):
    %y = arith.maximumf %x, %acc : f32
    linalg.yield %y : f32
  }} -> tensor<4xf32>
  %out = tensor.empty() : tensor<4x8xf32>
  %r = linalg.generic {{indexing_maps = [{IDENTITY}, affine_map<(d0, d1) -> (d0)>, {IDENTITY}],
      iterator_types = ["parallel", "parallel"]}}
      ins(%a, %max : tensor<4x8xf32>, tensor<4xf32>) outs(%out : tensor<4x8xf32>) {{
  ^bb0(%x: f32, %m: f32, %o: f32):
    %d = arith.subf %x, %m : f32
    %y = math.exp %d : f32
    linalg.yield %y : f32
  }} -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}}
"""
TRANSPOSED = """
func.func @f(%a: tensor<4x8xf32>, %b: tensor<6x8xf32>, %c: tensor<6x4xf32>) -> tensor<6x4xf32> {
  %m = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>,
      affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d1, d0)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<4x8xf32>, tensor<6x8xf32>) outs(%c : tensor<6x4xf32>) {
  ^bb0(%x: f32, %y: f32, %acc: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %acc, %p : f32
    linalg.yield %s : f32
  } -> tensor<6x4xf32>
  return %m : tensor<6x4xf32>
}
"""
INDEXED = """
func.func @f(%a: tensor<3x4xf32>) -> tensor<4x3xf32> {
  %e = tensor.empty() : tensor<4x3xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>,
      affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<3x4xf32>) outs(%e : tensor<4x3xf32>) {
  ^bb0(%x: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %keep = arith.cmpi sge, %i, %j : index
    %zero = arith.constant 0.0 : f32
    %y = arith.select %keep, %x, %zero : f32
    linalg.yield %y : f32
  } -> tensor<4x3xf32>
  return %r : tensor<4x3xf32>
}
"""
MOVED = """
func.func @f(%a: tensor<2x3x4xf32>) -> tensor<4x6xf32> {
  %c = tensor.collapse_shape %a [[0, 1], [2]] : tensor<2x3x4xf32> into tensor<6x4xf32>
  %s = tensor.extract_slice %c[0, 1] [6, 2] [1, 2] : tensor<6x4xf32> to tensor<6x2xf32>
  %n = tensor.concat dim(1) %s, %s : (tensor<6x2xf32>, tensor<6x2xf32>) -> tensor<6x4xf32>
  %e = tensor.empty() : tensor<4x6xf32>
  %t = linalg.transpose ins(%n : tensor<6x4xf32>) outs(%e : tensor<4x6xf32>) permutation = [1, 0]
  return %t : tensor<4x6xf32>
}
"""
REDUCED = """
func.func @f(%a: tensor<2x3x4xf32>, %b: tensor<3xf32>) -> tensor<3xf32> {
  %r = linalg.reduce ins(%a : tensor<2x3x4xf32>) outs(%b : tensor<3xf32>) dimensions = [0, 2]
    (%x: f32, %acc: f32) {
      %s = arith.addf %x, %acc : f32
      linalg.yield %s : f32
    }
  return %r : tensor<3xf32>
}
"""
COMPARED = """
func.func @f(%a: tensor<6xf32>, %b: tensor<6xf32>) -> tensor<6xf32> {
  %d = arith.divf %a, %b : tensor<6xf32>
  %k = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]> : tensor<6xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%a, %b, %d : tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) outs(%k : tensor<6xf32>) {
  ^bb0(%x: f32, %y: f32, %q: f32, %o: f32):
    %c = arith.cmpf ult, %x, %y : f32
    %s = arith.select %c, %q, %o : f32
    linalg.yield %s : f32
  } -> tensor<6xf32>
  return %r : tensor<6xf32>
}
"""
LAYER = """
func.func @forward(%x: !torch.vtensor<[2,3],f32>, %w: !torch.vtensor<[4,3],f32>)
    -> !torch.vtensor<[2],f32> {
  %none = torch.constant.none
  %int1 = torch.constant.int 1
  %false = torch.constant.bool false
  %half = torch.constant.float 5.000000e-01
  %str = torch.constant.str "tanh"
  %list = torch.prim.ListConstruct %int1 : (!torch.int) -> !torch.list<int>
  %b = torch.vtensor.literal(dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>) : !torch.vtensor<[4],f32>
  %0 = torch.aten.linear %x, %w, %b : !torch.vtensor<[2,3],f32>, !torch.vtensor<[4,3],f32>, \
!torch.vtensor<[4],f32> -> !torch.vtensor<[2,4],f32>
  %1 = torch.aten.gelu %0, %str : !torch.vtensor<[2,4],f32>, !torch.str -> !torch.vtensor<[2,4],f32>
  %2 = torch.aten.add.Scalar %1, %half, %int1 : !torch.vtensor<[2,4],f32>, !torch.float, \
!torch.int -> !torch.vtensor<[2,4],f32>
  %3 = torch.aten.sum.dim_IntList %2, %list, %false, %none : !torch.vtensor<[2,4],f32>, \
!torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[2],f32>
  return %3 : !torch.vtensor<[2],f32>
}
"""


def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = F.gelu(F.linear(x, w, torch.tensor([1.0, 2.0, 3.0, 4.0])), approximate="tanh")
    return (y + 0.5).sum(1)


def compared(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.where(~(a >= b), a / b, torch.arange(1.0, 7))


CASES: dict[str, tuple[str, Callable[..., torch.Tensor]]] = {
    "a product": (MATRIX, torch.matmul),
    "a maximum and what is under it": (SOFT, lambda a: (a - a.amax(1, keepdim=True)).exp()),
    "a product with axes in another order": (TRANSPOSED, lambda a, b, c: c + (a @ b.T).T),
    "indices of the loop": (INDEXED, lambda a: a.T.tril()),
    "movements": (MOVED, lambda a: a.reshape(6, 4)[:, 1::2].repeat(1, 2).T),
    "a reduction": (REDUCED, lambda a, b: b + a.sum((0, 2))),
    "comparisons": (COMPARED, compared),
    "torch-mlir": (LAYER, layer),
}


def inputs_of(program: Any) -> list[torch.Tensor]:
    shapes = [arg.type.get_shape() for arg in program.method().body.block.args]
    random = torch.Generator().manual_seed(0)
    return [torch.randn(list(shape), generator=random) for shape in shapes]


@pytest.mark.parametrize("name", CASES)
def test_a_text_computes_what_it_says_and_goes_down(name: str) -> None:
    text, wanted = CASES[name]
    held = stepwell.parse(text)
    assert held.level == "upstream"
    program = held.raise_to("aten")
    program.verify()
    method = next(iter(program.methods))
    given = inputs_of(type("One", (), {"method": lambda self: program.methods[method]})())
    expected = wanted(*given)
    (found,) = program.run(*given, method=method)
    assert (found - expected).abs().max() < 1e-5
    lowered = stepwell.lower(held, "xnnpack")
    assert (lowered.program.run(*given, method=method)[0] - expected).abs().max() < 1e-5


def test_an_unordered_comparison_is_true_of_nan() -> None:
    program = stepwell.parse(COMPARED).raise_to("aten")
    a, b = torch.ones(6), torch.tensor([torch.nan, 1, 2, 0.5, torch.inf, torch.nan])
    found = program.run(a, b, method="f")[0]
    assert found.isnan().tolist() == [True, False, False, False, False, True]


def test_torch_mlirs_text_goes_out_and_comes_in_the_same(capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "layer.mlir").write_text(LAYER)
    assert main(["opt", str(tmp_path / "layer.mlir"), "-t", "torch-mlir"]) == 0
    once = capsys.readouterr().out
    assert "torch.aten.linear %x, %w, %b" in once
    (tmp_path / "again.mlir").write_text(once)
    assert main(["opt", str(tmp_path / "again.mlir"), "-t", "torch-mlir"]) == 0
    assert capsys.readouterr().out == once
    one, other = (stepwell.parse(t).raise_to("aten") for t in (LAYER, once))
    x, w = torch.randn(2, 3), torch.randn(4, 3)
    assert one.run(x, w)[0].equal(other.run(x, w)[0])


def test_a_model_goes_out_as_torch_mlirs_text_and_comes_back() -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
        torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(16, 3), torch.nn.Softmax(-1),
    ).eval()  # fmt: skip
    x = torch.randn(1, 2, 4, 4)
    program = stepwell.from_exported_program(torch.export.export(model, (x,)))
    back = stepwell.parse(program.render("torch-mlir")).raise_to("aten")
    assert back.run(x)[0].equal(program.run(x)[0])


@pytest.mark.parametrize("form", [(), ("--mlir-print-op-generic",)], ids=["pretty", "generic"])
def test_what_tosa_opt_prints_is_read_and_emitted(form: tuple[str, ...]) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.Sigmoid()).eval()
    x = torch.randn(1, 2, 6, 6)
    lowered = stepwell.lower(torch.export.export(model, (x,)), "tosa-1.0+fp")
    printed = subprocess.run(
        [tool("tosa-opt"), *form],
        input=lowered.to_mlir(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    read = stepwell.read_tosa(stepwell.emit(stepwell.parse(printed), "tosa-1.0+fp"))
    assert read.run(x)[0].equal(lowered.program.run(x)[0])


def test_opt_knows_xdsls_dialects_and_passes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "m.mlir").write_text(MATRIX)
    passes = "canonicalize,linalg-generalize-named-ops,cse"
    assert main(["opt", str(tmp_path / "m.mlir"), "-p", passes]) == 0
    general = capsys.readouterr().out
    assert "linalg.generic" in general and "linalg.matmul" not in general
    a, b = torch.randn(4, 8), torch.randn(8, 6)
    found = stepwell.parse(general).raise_to("aten").run(a, b, method="f")[0]
    assert (found - a @ b).abs().max() < 1e-5
    (tmp_path / "r.mlir").write_text(
        "%i = arith.constant 0 : index\n"
        "%m = memref.alloc() : memref<4xf32>\n%v = memref.load %m[%i] : memref<4xf32>\n"
    )
    assert main(["opt", str(tmp_path / "r.mlir")]) == 0
    assert main(["opt", str(tmp_path / "m.mlir"), "-t", "riscv-asm"]) == 1
    assert "opt prints only mlir, torch-mlir" in capsys.readouterr().err


REFUSED = {
    "an open size": (LAYER.replace("[2,3]", "[?,3]"), "sizes are dynamic; state them"),
    "an op of nobody's": (LAYER.replace("aten.gelu", "aten.gelus"), "torch has no operator"),
    "another shape than torch's": (
        LAYER.replace("[2],f32>", "[3],f32>"),
        "the text states tensor<3",
    ),
    "an empty tensor that is read": (
        MATRIX.replace("outs(%init", "outs(%empty"), "adds to an empty tensor"),
    "a diagonal": (
        SOFT.replace(IDENTITY, "affine_map<(d0, d1) -> (d0, d0)>", 1), "a diagonal"),
    "an op without a meaning": (SOFT.replace("math.exp", "math.cbrt"), "math.cbrt in its body"),
    "unsigned integers": (INDEXED.replace("sge", "uge"), "compared with their sign"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_come_in_is_named(name: str) -> None:
    text, why = REFUSED[name]
    with pytest.raises(StepwellError) as error:
        stepwell.parse(text).raise_to("aten")
    assert why in str(error.value)
