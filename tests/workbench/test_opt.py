"""`stepwell opt` does what mlir-opt does, over our text, passes and verifier."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import stepwell
from stepwell.cli import main
from stepwell.steps import all_passes, step_classes

PERMUTES = """
func.func @forward(%x: tensor<2x3x4xf32>) -> tensor<3x4x2xf32> {
  %a = aten.permute.default(%x, [0, 2, 1]) : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
  %y = aten.permute.default(%a, [2, 1, 0]) : (tensor<2x4x3xf32>) -> tensor<3x4x2xf32>
  func.return %y : tensor<3x4x2xf32>
}
"""
WRONG_TYPE = PERMUTES.replace("2x4x3", "2x4x4")


@pytest.fixture
def permutes(tmp_path: Path) -> str:
    path = tmp_path / "permutes.mlir"
    path.write_text(PERMUTES)
    return str(path)


def test_a_pass_runs_by_name(permutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", permutes, "-p", "merge-permutes"]) == 0
    assert capsys.readouterr().out.count("aten.permute.default") == 1


def test_a_pipeline_runs_by_name(permutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", permutes, "-p", "lower-to-xnnpack"]) == 0
    out = capsys.readouterr().out
    assert "xnnpack.delegate" in out and 'stepwell.level = "xnnpack"' in out


def test_options_are_fields_of_the_rewrite(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", "--list-passes"]) == 0
    listed = capsys.readouterr().out
    assert "lift-constant-scalar{protect_attention=" in listed
    passes = all_passes()
    assert set(step_classes()) <= set(passes)
    cls = passes["lift-constant-scalar"]()
    assert [field.name for field in dataclasses.fields(cls)] == ["protect_attention"]


def test_an_option_reaches_the_rewrite(permutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    passes = "merge-permutes,lift-constant-scalar{protect_attention=false}"
    assert main(["opt", permutes, "-p", passes]) == 0
    assert main(["opt", permutes, "-p", "lift-constant-scalar{no_such=1}"]) == 1
    assert "no_such" in capsys.readouterr().err


def test_an_unknown_pass_is_an_error_with_help(
    permutes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["opt", permutes, "-p", "no-such-pass"]) == 1
    err = capsys.readouterr().err
    assert "no-such-pass" in err and "--list-passes" in err


def test_the_ir_is_printed_between_passes(
    permutes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["opt", permutes, "-p", "merge-permutes,remove-copy", "--print-between-passes"]) == 0
    )
    assert "// IR after merge-permutes:" in capsys.readouterr().out


def test_passes_are_timed(permutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", permutes, "-p", "merge-permutes", "--time-passes"]) == 0
    assert "merge-permutes: " in capsys.readouterr().err


def test_pieces_of_a_split_file_are_programs_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.mlir"
    path.write_text(PERMUTES + "// -----\n" + WRONG_TYPE)
    arguments = ["opt", str(path), "--split-input-file", "-p", "merge-permutes"]
    assert main([*arguments, "--verify-diagnostics"]) == 0
    good, bad = capsys.readouterr().out.split("// -----")
    assert "aten.permute.default" in good
    assert "aten.permute.default: results are" in bad
    assert main(arguments) == 1


def test_a_parse_error_has_a_line_and_can_be_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.mlir"
    path.write_text("func.func @forward(")
    assert main(["opt", str(path)]) == 1
    assert "bad.mlir:1:" in capsys.readouterr().err
    assert main(["opt", str(path), "--parsing-diagnostics"]) == 0


def test_real_weights_beside_the_text_are_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = torch.export.export(torch.nn.Linear(4, 4), (torch.randn(1, 4),))
    stepwell.from_exported_program(exported).save(tmp_path / "model.mlir")
    assert main(["opt", str(tmp_path / "model.mlir"), "-p", "lower-to-xnnpack"]) == 0
    assert "xnnpack.fully_connected" in capsys.readouterr().out


def test_output_goes_to_a_file_whole(permutes: str, tmp_path: Path) -> None:
    out = tmp_path / "out.mlir"
    assert main(["opt", permutes, "-o", str(out)]) == 0
    assert stepwell.parse(out.read_text()).methods


def test_plain_xdsl_opt_sees_our_dialects_and_passes(permutes: str) -> None:
    driver = Path(sys.executable).parent / "xdsl-opt"
    done = subprocess.run(
        [str(driver), permutes, "-p", "merge-permutes"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("aten.permute.default") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["opt", "FILE"], ["opt", "FILE", "-p", "cse"]])
def test_a_text_is_read_verified_and_printed_without_torch(
    arguments: list[str], tmp_path: Path
) -> None:
    text = tmp_path / "text.mlir"
    text.write_text(
        "func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
        "  %y = aten.relu.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>\n"
        "  func.return %y : tensor<2x3xf32>\n"
        "}\n"
    )
    given = [str(text) if word == "FILE" else word for word in arguments]
    code = (
        "import contextlib, sys\n"
        "from stepwell.cli import main\n"
        f"with contextlib.suppress(SystemExit): main({given!r})\n"
        "print(sorted({'torch', 'sympy', 'executorch'} & set(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
