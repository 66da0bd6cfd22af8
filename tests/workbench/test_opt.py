"""`stepwell opt` does what mlir-opt does, over our text, passes and verifier."""

import dataclasses
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from forking import Forks

import stepwell
from stepwell.pipelines.pass_pipeline.named_passes import all_passes, step_classes

from .commands import Commands

PERMUTES = """
func.func @forward(%x: tensor<2x3x4xf32>) -> tensor<3x4x2xf32> {
  %a = aten.permute.default(%x, [0, 2, 1]) : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
  %y = aten.permute.default(%a, [2, 1, 0]) : (tensor<2x4x3xf32>) -> tensor<3x4x2xf32>
  func.return %y : tensor<3x4x2xf32>
}
"""
WRONG_TYPE = PERMUTES.replace("2x4x3", "2x4x4")
RELU = """
func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %y = aten.relu.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}
"""
LOAD = """
func.func @f(%m: memref<4xf32>) -> f32 {
  %c = arith.constant 0 : index
  %v = memref.load %m[%c] : memref<4xf32>
  func.return %v : f32
}
"""
BOTH = "-p merge-permutes,remove-copy"
CASES: dict[str, tuple[str, str, int, tuple[str, ...]]] = {
    "a pipeline runs by name": (
        "-p lower-to-xnnpack", PERMUTES, 0, ("xnnpack.delegate", 'stepwell.level = "xnnpack"')
    ),
    "an option reaches the rewrite": (
        "-p merge-permutes,lift-constant-scalar{protect_attention=false}", PERMUTES, 0, ()
    ),
    "an unknown option": ("-p lift-constant-scalar{no_such=1}", PERMUTES, 1, ("no_such",)),
    "the nearest option": (
        "-p lift-constant-scalar{protect_atention=true}", PERMUTES, 1,
        ("did you mean 'protect_attention'?",),
    ),
    "an unknown pass": ("-p no-such-pass", PERMUTES, 1, ("no-such-pass", "--list-passes")),
    "the nearest pass": ("-p merge-permute", PERMUTES, 1, ("did you mean 'merge-permutes'?",)),
    "the nearest op": (
        "", PERMUTES.replace("permute.", "permutes."), 1,
        ("did you mean 'aten.permute.default'?",),
    ),
    "the nearest dialect": ("", PERMUTES.replace("aten", "atten"), 1, ("did you mean 'aten'?",)),
    "the nearest op of another dialect": (
        "", PERMUTES.replace("aten.permute.default", "xnnpack.ad"), 1,
        ("did you mean 'xnnpack.add'?",),
    ),
    "the IR between passes": (
        f"{BOTH} --print-between-passes", PERMUTES, 0, ("// IR after merge-permutes:",)
    ),
    "times": ("-p merge-permutes --time-passes", PERMUTES, 0, ("merge-permutes: ",)),
    "statistics": (f"{BOTH} --stats", PERMUTES, 0, ("statistics:",)),
    "a parse error has a line": ("", "func.func @forward(", 1, ("t.mlir:1:",)),
    "a parse error that is expected": ("--parsing-diagnostics", "func.func @forward(", 0, ()),
    "every dialect of xDSL": ("-p canonicalize", LOAD, 0, ("memref.load",)),
    "a target of lower is no target of opt": (
        "-t tosa-1.0+fp", RELU, 1,
        ("tosa-1.0+fp: opt prints only mlir, torch-mlir, linalg", "stepwell lower FILE"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_opt_says(name: str, command: Commands) -> None:
    flags, text, status, words = CASES[name]
    said = command(f"opt {command.write('t.mlir', text)} {flags}", status)
    for word in words:
        assert word in said.out + said.err


@pytest.mark.parametrize(
    "passes", ["merge-permutes", "both(merge-permutes,remove-copy),cse"], ids=["a pass", "a group"]
)
def test_rewrites_run_by_name(passes: str, command: Commands) -> None:
    said = command(f"opt {command.write('t.mlir', PERMUTES)} -p {passes}")
    assert said.out.count("aten.permute.default") == 1


def test_options_are_fields_of_the_rewrite(command: Commands) -> None:
    assert "lift-constant-scalar{protect_attention=" in command("opt --list-passes").out
    passes = all_passes()
    assert set(step_classes()) <= set(passes)
    cls = passes["lift-constant-scalar"]()
    assert [field.name for field in dataclasses.fields(cls)] == ["protect_attention"]


def test_pieces_of_a_split_file_are_programs_of_their_own(command: Commands) -> None:
    command.write("two.mlir", PERMUTES + "// -----\n" + WRONG_TYPE)
    line = "opt two.mlir --split-input-file -p merge-permutes"
    good, bad = command(f"{line} --verify-diagnostics").out.split("// -----")
    assert "aten.permute.default" in good
    assert "aten.permute.default: results are" in bad
    command(line, 1)


def test_an_error_shows_its_line_with_a_caret_and_its_chunk(command: Commands) -> None:
    command.write("two.mlir", PERMUTES + "// -----\n" + WRONG_TYPE)
    lines = command("opt two.mlir --split-input-file", 1).err.splitlines()
    at = next(index for index, line in enumerate(lines) if "two.mlir:10:8, in chunk 2" in line)
    assert lines[at + 2].index("^") == lines[at + 1].index("aten.permute")


def test_real_weights_beside_the_text_are_used(command: Commands) -> None:
    exported = torch.export.export(torch.nn.Linear(4, 4), (torch.randn(1, 4),))
    stepwell.from_exported_program(exported).save("model.mlir")
    assert "xnnpack.fully_connected" in command("opt model.mlir -p lower-to-xnnpack").out


def test_output_goes_to_a_file_whole(command: Commands) -> None:
    command(f"opt {command.write('t.mlir', PERMUTES)} -o out.mlir")
    assert stepwell.parse(command.read("out.mlir")).methods


@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_no_mask_is_read_from_the_name_of_a_weight_without_elements(
    name: str, command: Commands
) -> None:
    text = EXPECTING.rpartition("// -----")[2].replace('"m"', f'"{name}"')
    command.write("t.mlir", text)
    assert "aten.where.self" in command("opt t.mlir -p select-by-constant-mask").out


def test_plain_xdsl_opt_sees_our_dialects_and_passes(command: Commands, forks: Forks) -> None:
    driver = Path(sys.executable).parent / "xdsl-opt"
    given = [driver, command.write("t.mlir", PERMUTES), "-p", "merge-permutes"]
    done = forks.run(given, with_torch_alone=True)
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


def test_xdsls_interpreter_runs_our_functions() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    x = torch.randn(1, 4)
    program = stepwell.from_exported_program(torch.export.export(model, (x,)))
    for now in (program, stepwell.lower(program, "tosa-1.0+fp").program):
        (given,) = stepwell.xdsl_interpreter(now).call_op("forward", (x,))
        assert torch.equal(given, now.run(x)[0])


@pytest.mark.parametrize(
    ("line", "needed"),
    [
        ("--help", set()),
        ("opt t.mlir -p cse", set()),
        ("opt t.mlir -p lower-unary", {"numpy"}),  # XNNPACK's numbers
        ("opt t.mlir -p 'drop-true-from-and,merge-clamps'", {"numpy"}),
    ],
)
def test_a_text_is_read_and_rewritten_without_heavy_imports(
    line: str, needed: set[str], command: Commands
) -> None:
    command.write("t.mlir", RELU)
    code = (
        "import contextlib, sys\n"
        "from stepwell.cli.main import main\n"
        f"with contextlib.suppress(SystemExit): main({shlex.split(line)!r})\n"
        "heavy = {'torch', 'sympy', 'executorch', 'numpy', 'networkx', 'rich', 'webbrowser'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == str(sorted(needed))


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
VERIFY = "opt t.mlir --split-input-file --verify-diagnostics -p select-by-constant-mask"


def test_what_is_said_is_matched_with_what_a_text_expects(command: Commands) -> None:
    command.write("t.mlir", EXPECTING)
    command(VERIFY)


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
    right: str, wrong: str, said: str, command: Commands
) -> None:
    command.write("t.mlir", EXPECTING.replace(right, wrong))
    assert said in command(VERIFY, 1).err


def test_constants_stand_in_the_text_or_beside_it(command: Commands) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 40))
    with torch.no_grad():
        model[0].bias.copy_(torch.tensor([torch.inf, -0.0, 1e-45, torch.nan]))
    exported = torch.export.export(model, (torch.randn(1, 4),))
    stepwell.from_exported_program(exported).save("model.mlir")
    command("opt model.mlir -p lower-to-xnnpack -o o.mlir")
    again = stepwell.load(Path("o.mlir"))
    x = torch.randn(1, 4)
    direct = stepwell.lower(exported, "xnnpack").program
    assert torch.equal(again.run(x)[0].isnan(), direct.run(x)[0].isnan())
    assert Path("o.safetensors").exists()
    command("opt model.mlir -o same.mlir")
    assert "= dense<[0x7f800000, -0.0" in command.read("same.mlir")

    whole = stepwell.from_exported_program(exported).text(constants=1000)
    held = stepwell.parse(whole).weights
    for key, tensor in model.state_dict().items():
        assert held.get(key).view(torch.int32).equal(tensor.view(torch.int32)), key
    with pytest.raises(stepwell.StepwellError, match="has other elements in the text"):
        stepwell.parse(whole.replace("0x7f800000", "0.000000e+00"), held)


@pytest.mark.parametrize(
    ("flags", "dumps"),
    [
        ("--mlir-print-ir-after-all", ["After", "After"]),
        ("--mlir-print-ir-before-all", ["Before", "Before"]),
        ("--mlir-print-ir-after-change", ["After"]),
        ("--mlir-print-ir-after remove-copy", ["After"]),
        ("--mlir-print-ir-before merge-permutes", ["Before"]),
        ("--mlir-print-ir-after-failure", []),
    ],
)
def test_the_ir_is_printed_when_mlir_would(flags: str, dumps: list[str], command: Commands) -> None:
    err = command(f"opt {command.write('t.mlir', PERMUTES)} {BOTH} {flags}").err
    said = [line.split()[4] for line in err.splitlines() if line.startswith("// -----// IR Dump")]
    assert said == dumps


def test_functions_of_several_blocks_and_declarations_are_mlirs_own(command: Commands) -> None:
    text = (
        "func.func private @ext(i32) -> i32\n"
        "func.func @f(%c: i1, %a: i32) -> i32 {\n"
        "  cf.cond_br %c, ^bb1, ^bb2(%a : i32)\n"
        "^bb1:\n"
        "  %b = func.call @ext(%a) : (i32) -> i32\n"
        "  cf.br ^bb2(%b : i32)\n"
        "^bb2(%d: i32):\n"
        "  func.return %d : i32\n"
        "}\n"
    )
    command.write("jumps.mlir", text)
    said = command("opt jumps.mlir").out
    assert command.write("again.mlir", said) and command("opt again.mlir").out == said
    command.write("wrong.mlir", text.replace("return %d", "return %b"))
    assert "operand %b is used before it is defined" in command("opt wrong.mlir", 1).err
    command.write("declared.mlir", text.partition("\n")[0])
    assert "the method has 0 blocks" in command("lower declared.mlir -o d.pte", 1).err
