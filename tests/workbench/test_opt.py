"""`stepwell opt` does what mlir-opt does, over our text, passes and verifier."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from forking import Forks

import stepwell
from stepwell.cli.main import main
from stepwell.pipelines.pass_pipeline.named_passes import all_passes, step_classes

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


def test_statistics_are_printed(permutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", permutes, "-p", "merge-permutes,remove-dead-code", "--stats"]) == 0
    assert "statistics:" in capsys.readouterr().err


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


def test_plain_xdsl_opt_sees_our_dialects_and_passes(permutes: str, forks: Forks) -> None:
    driver = Path(sys.executable).parent / "xdsl-opt"
    done = forks.run([driver, permutes, "-p", "merge-permutes"], with_torch_alone=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("aten.permute.default") == 1


def test_plain_xdsl_opt_reads_every_dialect_ours_of_tosa_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from xdsl.universe import XDSL_UNIVERSE, Universe

    from stepwell.dialects import PACKAGES

    monkeypatch.setattr(XDSL_UNIVERSE, "all_dialects", dict(XDSL_UNIVERSE.all_dialects))
    everything = Universe.get_multiverse().all_dialects
    assert {*PACKAGES, "stepwell"} <= set(everything)
    for name in PACKAGES:
        assert everything[name]() is not None, name
    names = {op.name for op in everything["tosa"]().operations}
    assert {"tosa.conv2d", "tosa.scatter", "tosa.transpose_conv2d"} <= names


def test_every_dialect_of_xdsl_is_read_here_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.mlir").write_text(
        "func.func @f(%m: memref<4xf32>) -> f32 {\n"
        "  %c = arith.constant 0 : index\n"
        "  %v = memref.load %m[%c] : memref<4xf32>\n"
        "  func.return %v : f32\n"
        "}\n"
    )
    assert main(["opt", str(tmp_path / "t.mlir"), "-p", "canonicalize"]) == 0
    assert "memref.load" in capsys.readouterr().out


def test_xdsls_interpreter_runs_our_functions() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    x = torch.randn(1, 4)
    program = stepwell.from_exported_program(torch.export.export(model, (x,)))
    for now in (program, stepwell.lower(program, "tosa-1.0+fp").program):
        (given,) = stepwell.xdsl_interpreter(now).call_op("forward", (x,))
        assert torch.equal(given, now.run(x)[0])


@pytest.mark.parametrize("arguments", [["--help"], ["opt", "FILE"], ["opt", "FILE", "-p", "cse"]])
def test_a_text_is_read_verified_and_printed_without_heavy_imports(
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
        "from stepwell.cli.main import main\n"
        f"with contextlib.suppress(SystemExit): main({given!r})\n"
        "heavy = {'torch', 'sympy', 'executorch', 'numpy', 'networkx', 'rich', 'webbrowser'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


EXPECTING = """
func.func @forward(%x: tensor<2x3x4xf32>) -> tensor<2x4x4xf32> {
  // expected-error @+1 {{results are}}
  %a = aten.permute.default(%x, [0, 2, 1]) : (tensor<2x3x4xf32>) -> tensor<2x4x4xf32>
  func.return %a : tensor<2x4x4xf32>
}
// -----
func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %y = aten.nonsense.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // expected-error-re @above {{is not reg.*}}
  func.return %y : tensor<2x3xf32>
}
// -----
func.func @forward(%x: tensor<4xf32>, %z: tensor<4xf32>) -> tensor<4xf32> {
  %m = stepwell.weight <"m"> "constant" : tensor<1xi1>
  // expected-remark @below {{the elements of weight "m" are not known}}
  %y = aten.where.self(%m, %x, %z) : (tensor<1xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}
"""


def verify_diagnostics(text: str, tmp_path: Path) -> int:
    path = tmp_path / "expecting.mlir"
    path.write_text(text)
    flags = ["--split-input-file", "--verify-diagnostics", "-p", "select-by-constant-mask"]
    return main(["opt", str(path), *flags])


def test_what_is_said_is_matched_with_what_a_text_expects(tmp_path: Path) -> None:
    assert verify_diagnostics(EXPECTING, tmp_path) == 0


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("{{results are}}", "{{something else}}", "expected error was not produced on line 4"),
        ("{{results are}}", "{{something else}}", "unexpected error: aten.permute.default"),
        ("@+1", "@+2", "expected error was not produced on line 5"),
        ("is not reg.*", "is reg.*", "expected error was not produced on line 9: is reg.*"),
        ("are not known", "are known", "expected remark was not produced on line 17"),
    ],
)
def test_what_a_text_expects_in_vain_is_an_error(
    right: str, wrong: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify_diagnostics(EXPECTING.replace(right, wrong), tmp_path) == 1
    assert said in capsys.readouterr().err


def test_an_error_shows_its_line_with_a_caret_and_its_chunk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.mlir"
    path.write_text(PERMUTES + "// -----\n" + WRONG_TYPE)
    assert main(["opt", str(path), "--split-input-file"]) == 1
    lines = capsys.readouterr().err.splitlines()
    at = next(index for index, line in enumerate(lines) if "two.mlir:10:8, in chunk 2" in line)
    assert lines[at + 2].index("^") == lines[at + 1].index("aten.permute")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("aten.permutes.default", "did you mean 'aten.permute.default'?"),
        ("atten.permute.default", "did you mean 'aten'?"),
        ("xnnpack.ad", "did you mean 'xnnpack.add'?"),
    ],
)
def test_an_unknown_op_has_a_nearest_one(
    wrong: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.mlir"
    path.write_text(PERMUTES.replace("aten.permute.default", wrong))
    assert main(["opt", str(path)]) == 1
    assert said in capsys.readouterr().err


def test_an_unknown_pass_and_option_have_a_nearest_one(
    permutes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["opt", permutes, "-p", "merge-permute"]) == 1
    assert "did you mean 'merge-permutes'?" in capsys.readouterr().err
    assert main(["opt", permutes, "-p", "lift-constant-scalar{protect_atention=true}"]) == 1
    assert "did you mean 'protect_attention'?" in capsys.readouterr().err


def test_constants_stand_in_the_text_or_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 40))
    with torch.no_grad():
        model[0].bias.copy_(torch.tensor([torch.inf, -0.0, 1e-45, torch.nan]))
    exported = torch.export.export(model, (torch.randn(1, 4),))
    stepwell.from_exported_program(exported).save(tmp_path / "model.mlir")
    given = [str(tmp_path / "model.mlir"), "-p", "lower-to-xnnpack", "-o", str(tmp_path / "o.mlir")]
    assert main(["opt", *given]) == 0
    again = stepwell.load(tmp_path / "o.mlir")
    x = torch.randn(1, 4)
    direct = stepwell.lower(exported, "xnnpack").program
    assert torch.equal(again.run(x)[0].isnan(), direct.run(x)[0].isnan())
    assert (tmp_path / "o.safetensors").exists()
    assert main(["opt", str(tmp_path / "model.mlir"), "-o", str(tmp_path / "same.mlir")]) == 0
    assert "= dense<[0x7f800000, -0.0" in (tmp_path / "same.mlir").read_text()

    whole = stepwell.from_exported_program(exported).text(constants=1000)
    held = stepwell.parse(whole).weights
    for key, tensor in model.state_dict().items():
        assert held.get(key).view(torch.int32).equal(tensor.view(torch.int32)), key
    with pytest.raises(stepwell.StepwellError, match="has other elements in the text"):
        stepwell.parse(whole.replace("0x7f800000", "0.000000e+00"), held)


@pytest.mark.parametrize(
    ("flags", "dumps"),
    [
        (["--mlir-print-ir-after-all"], ["After", "After"]),
        (["--mlir-print-ir-before-all"], ["Before", "Before"]),
        (["--mlir-print-ir-after-change"], ["After"]),
        (["--mlir-print-ir-after", "remove-copy"], ["After"]),
        (["--mlir-print-ir-before", "merge-permutes"], ["Before"]),
        (["--mlir-print-ir-after-failure"], []),
    ],
)
def test_the_ir_is_printed_when_mlir_would(
    flags: list[str], dumps: list[str], permutes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["opt", permutes, "-p", "merge-permutes,remove-copy", *flags]) == 0
    err = capsys.readouterr().err
    said = [line.split()[4] for line in err.splitlines() if line.startswith("// -----// IR Dump")]
    assert said == dumps


def test_rewrites_are_driven_together_by_a_group(
    permutes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["opt", permutes, "-p", "both(merge-permutes,remove-copy),cse"]) == 0
    assert capsys.readouterr().out.count("aten.permute.default") == 1


def test_a_target_of_lower_is_no_target_of_opt_and_says_what_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.mlir").write_text("builtin.module {}\n")
    assert main(["opt", str(tmp_path / "m.mlir"), "-t", "tosa-1.0+fp"]) == 1
    said = capsys.readouterr().err
    assert "opt prints mlir, torch-mlir, linalg, not 'tosa-1.0+fp'" in said
    assert "stepwell lower FILE" in said
