"""`stepwell.lower` and the command line: nothing changed, nothing copied, errors in words."""

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from eager import lower
from forking import Forks
from torch.export import export

import stepwell
from deit import deit_small_depth2
from stepwell.cli.main import main
from stepwell.ir.rewriting.rewrite import History
from stepwell.program import Program

EXAMPLES = Path(__file__).parents[2] / "examples" / "models"


@pytest.fixture(scope="module")
def program() -> Program:
    module, inputs = deit_small_depth2()
    return stepwell.from_exported_program(export(module.eval(), inputs))


def test_lowering_does_not_change_its_argument(program: Program) -> None:
    text, keys = str(program), set(program.used_weights())
    pointers = {key: program.weights.get(key).data_ptr() for key in keys}
    stepwell.lower(program, "xnnpack").to_pte()
    assert str(program) == text
    assert {key: program.weights.get(key).data_ptr() for key in keys} == pointers
    program.verify()


def test_import_and_clone_share_the_tensors_of_the_torch_program() -> None:
    module, inputs = deit_small_depth2()
    exported = export(module.eval(), inputs)
    program = stepwell.from_exported_program(exported).clone()
    for key, tensor in exported.state_dict.items():
        assert program.weights.get(key).data_ptr() == tensor.data_ptr()


def test_an_op_is_looked_at_a_bounded_number_of_times(program: Program) -> None:
    work = program.clone()
    for step in stepwell.PIPELINES["xnnpack"].steps:
        ops = sum(1 for _ in work.module.walk())
        history = History()
        step.apply(work, history)
        assert history.visits <= 12 * ops, step


def test_all_unsupported_ops_are_listed_with_the_models_lines() -> None:
    class Odd(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.linalg.inv(x), torch.linalg.eigvalsh(x)

    with pytest.raises(stepwell.StepwellError) as caught:
        lower(Odd(), torch.eye(3)).to_pte()
    text = str(caught.value)
    assert "aten.linalg_inv" in text and "aten.linalg_eigvalsh" in text
    assert text.count("test_front_door.py") >= 2


def test_wrong_inputs_are_all_named(program: Program) -> None:
    lowered = stepwell.lower(program, "xnnpack")
    with pytest.raises(stepwell.StepwellError, match="dimension 1 is 4, must be 3"):
        lowered.run(torch.randn(1, 4, 224, 224))
    with pytest.raises(stepwell.StepwellError, match="dtype"):
        lowered.run(torch.zeros(1, 3, 224, 224, dtype=torch.int64))


@pytest.mark.parametrize("form", ["py", "pt2", "mlir"])
def test_the_command_line_lowers_shows_and_runs_a_model(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tiny import mlp

    module, inputs = mlp()
    exported = export(module.eval(), inputs)
    model = {
        "py": f"{EXAMPLES / 'tiny.py'}:mlp",
        "pt2": str(tmp_path / "m.pt2"),
        "mlir": str(tmp_path / "m.mlir"),
    }[form]
    if form == "pt2":
        torch.export.save(exported, model)
    if form == "mlir":
        stepwell.from_exported_program(exported).save(model)
    out = tmp_path / "out.pte"
    assert main(["lower", model, "-o", str(out), "--emit-ir", str(tmp_path / "ir.mlir")]) == 0
    assert "delegates  1" in capsys.readouterr().out
    assert "xnnpack.fully_connected" in (tmp_path / "ir.mlir").read_text()
    close = torch.testing.assert_close
    close(stepwell.run_pte(out, inputs)[0], module(*inputs), rtol=1e-5, atol=1e-5)
    assert main(["run", str(out)]) == 0
    assert "output 0: tensor" in capsys.readouterr().out
    assert main(["show", model]) == 0
    assert "aten.linear.default" in capsys.readouterr().out


def test_an_artifact_takes_inputs_nested_as_the_model_does() -> None:
    class Nested(torch.nn.Module):
        def forward(self, pair: dict[str, Any], *, scale: torch.Tensor) -> torch.Tensor:
            return pair["x"] * scale + pair["y"][0]

    x, y, scale = torch.randn(2, 3), torch.randn(2, 3), torch.randn(3)
    lowered = stepwell.lower(export(Nested(), ({"x": x, "y": [y]},), {"scale": scale}), "xnnpack")
    wanted = x * scale + y
    for found in (
        lowered.run({"x": x, "y": [y]}, scale=scale),
        lowered.run(x, y, scale),
        lowered.program.run({"x": x, "y": [y]}, scale=scale),
    ):
        torch.testing.assert_close(found[0], wanted)
    with pytest.raises(stepwell.StepwellError, match="2 inputs given, 3 needed"):
        lowered.run(x, y)


def test_the_package_runs_as_a_module(forks: Forks):
    done = forks.run(["-m", "stepwell", "show", "nowhere.pte"])
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")


def scaled(
    x: torch.Tensor, factor: int, double: bool, bias: torch.Tensor | None
) -> tuple[Any, ...]:
    """A number, a switch and nothing go in; a number and nothing come out."""
    y = x * factor * (2 if double else 1)
    return 3, y if bias is None else y + bias, None


@pytest.mark.parametrize("target", ["xnnpack", "tosa-1.0+fp"])
def test_frozen_inputs_are_given_and_constant_outputs_returned_on_every_engine(target: str) -> None:
    inputs: Any = (torch.randn(2, 3), 5, True, None)
    lowered = lower(scaled, *inputs, target=target)
    first, y, last = lowered.run(*inputs)
    assert (first, last) == (3, None)
    torch.testing.assert_close(y, scaled(*inputs)[1])
    with pytest.raises(stepwell.StepwellError, match=r"(with|for) 5 here, not 4"):
        lowered.run(inputs[0], 4, True, None)


def test_a_frozen_string_is_given_though_the_runtime_takes_none() -> None:
    def named_pass(x: torch.Tensor, how: str) -> torch.Tensor:
        return x.relu() if how == "relu" else x

    x = torch.randn(3)
    inputs: Any = (x, "relu")
    lowered = lower(named_pass, *inputs)
    torch.testing.assert_close(lowered.run(x, "relu")[0], x.relu())
    with pytest.raises(stepwell.StepwellError, match="exported with 'relu' here, not 'tanh'"):
        lowered.run(x, "tanh")


@pytest.mark.parametrize("given", [torch.nn.Linear(2, 2), "model.pt2", {"forward": None}])
def test_what_is_no_exported_program_is_refused_in_words(given: Any) -> None:
    with pytest.raises(
        stepwell.StepwellError, match=r"(?s)is not an exported program.*torch.export"
    ):
        stepwell.lower(given, "xnnpack")


def test_artifacts_are_read_from_bytes_paths_and_open_files(tmp_path: Path) -> None:
    exported = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    path = tmp_path / "model.pte"
    lowered = stepwell.lower(exported, "xnnpack")
    lowered.save(path)
    wanted = str(stepwell.read_pte(lowered.to_pte()))
    assert str(stepwell.read_pte(path)) == str(stepwell.read_pte(str(path))) == wanted
    with path.open("rb") as file:
        assert str(stepwell.read_pte(file)) == wanted
    with pytest.raises(stepwell.StepwellError, match=r"cannot read model\.pte"):
        stepwell.read_pte("model.pte")
    with (
        path.open("r", encoding="latin-1") as text,
        pytest.raises(
            stepwell.StepwellError, match=r"TextIOWrapper, which cannot be read as the \.pte"
        ),
    ):
        stepwell.read_pte(text)  # type: ignore[arg-type]


def test_the_package_shows_its_public_names_alone() -> None:
    assert dir(stepwell) == sorted(["__version__", *stepwell.__all__])
    assert stepwell.__version__ == importlib.metadata.version("stepwell")
    for name in stepwell.__all__:
        assert getattr(stepwell, name).__doc__, name


def test_a_report_tells_what_was_done_and_each_refusal_once() -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        place = x.long().abs()
        return x[place % 4] + x.neg()[place % 3]

    report = lower(twice, torch.randn(4)).report
    idle = [step.name for step in report.steps if not step.applied]
    brief, whole = report.text().splitlines(), report.text(verbose=True).splitlines()
    assert str(report) == report.text()
    assert not any(line.split()[:1] == [name] for line in brief for name in idle)
    assert all(any(line.split()[:1] == [name] for line in whole) for name in idle)
    refusals = brief[brief.index("refused:") + 1 :]
    assert len(refusals) == len(set(refusals)) < len(report.refusals)
    assert any("(× 2)" in line for line in refusals)
