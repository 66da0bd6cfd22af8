"""A program goes on from any stage of its target, by its text alone, to the same artifact."""

from pathlib import Path

import pytest
import torch
from example_models import program
from torch.export import export

import stepwell
from stepwell.cli.main import main
from stepwell.cli.terminal.sources import random_values
from stepwell.ir.diagnostics import StepwellError
from stepwell.pipelines.pass_pipeline.stages import stages_of
from stepwell.targets.table import PIPELINES

WAYS = (
    ("bert:bert", "tosa-1.0+fp"),
    ("control_flow:cond_model", "xnnpack"),
    ("dynamic:dynamic_batch", "xnnpack"),
    ("quantized:cnn_per_tensor", "xnnpack"),
    ("quantized:mlp_dynamic", "xnnpack"),
    ("tiny:ds_cnn", "xnnpack-published"),
    ("transformer:transformer_encoder_2layers", "xnnpack"),
    ("quantized:cnn_per_tensor", "cortex-m55"),
    ("tiny:mlp", "cortex-m4"),
    ("quantized:cnn_per_tensor", "tosa-1.0+int"),
    ("tiny:ds_cnn", "tosa-1.0+fp"),
    ("tiny:mlp", "tosa-1.1+fp+mxfp"),
    ("quantized:cnn_per_tensor", "tosa-1.0+int+cpu"),
)


@pytest.mark.parametrize(("name", "target"), WAYS)
def test_the_text_of_every_stage_gives_the_artifact_of_the_direct_way(
    name: str, target: str, tmp_path: Path
) -> None:
    source = program(name)
    direct = stepwell.lower(source, target)
    stages = stages_of(direct.target.pipeline, target)
    assert len(stages) >= 3
    for stage in stages:
        stopped = stepwell.lower(source, target, stop=stage)
        stopped.program.save(tmp_path / "stage.mlir")
        again = stepwell.load(tmp_path / "stage.mlir")
        again.verify()
        assert stepwell.emit(again, target) == direct.emit(), stage


@pytest.mark.parametrize("target", list(PIPELINES))
def test_no_stage_is_called_like_a_step(target: str) -> None:
    pipeline = PIPELINES[target]
    stages = stages_of(pipeline, target)
    assert not set(stages) & set(pipeline.paths)
    ends = [pipeline.find(f"/{step}")[0] for step in stages.values() if step]
    assert ends == sorted(ends) and len(stages) >= 3


NODES = """
builtin.module attributes {stepwell.level = "xnnpack"} {
  func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %a = xnnpack.abs(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %b = BETWEEN.default(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %c = xnnpack.negate(%b) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    func.return %c : tensor<2x3xf32>
  }
}
"""


def test_nodes_written_by_hand_are_partitioned_and_what_stands_beside_them_stays() -> None:
    written = stepwell.parse(NODES.replace("BETWEEN", "aten.relu"))
    lowered = stepwell.lower(written, "xnnpack")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (2, {"aten.relu.default": 1})
    x = torch.randn(2, 3)
    assert torch.equal(lowered.run(x)[0], -x.abs().relu())


def test_a_mixture_of_levels_takes_the_whole_way_where_that_is_said() -> None:
    written = stepwell.parse(NODES.replace("BETWEEN", "aten.relu"))
    lowered = stepwell.lower(written, "xnnpack", start="aten")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    x = torch.randn(2, 3)
    assert torch.equal(lowered.run(x)[0], -x.abs().relu())


def test_a_node_beside_delegates_becomes_one_of_its_own() -> None:
    written = stepwell.parse(NODES.replace("BETWEEN", "aten.relu"))
    text = str(stepwell.lower(written, "xnnpack").program)
    edited = text.replace("aten.relu.default(", "xnnpack.abs(")
    assert edited != text
    lowered = stepwell.lower(stepwell.parse(edited), "xnnpack")
    assert lowered.report.delegates == 3
    x = torch.randn(2, 3)
    assert torch.equal(lowered.run(x)[0], -x.abs())


def test_the_level_of_a_text_that_says_none_is_that_of_its_ops() -> None:
    text = NODES.replace('attributes {stepwell.level = "xnnpack"} ', "")
    text = text.replace("BETWEEN", "aten.relu")
    assert stepwell.parse(text).level == "xnnpack"
    in_torch = text.replace("xnnpack.abs", "aten.abs.default")
    assert stepwell.parse(in_torch.replace("xnnpack.negate", "aten.neg.default")).level == "aten"


class Net(torch.nn.Module):
    """Two layers with a function between them, which edits replace."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


@pytest.mark.parametrize("target", ["xnnpack", "tosa-1.0+fp", "cortex-m55"])
def test_an_op_that_is_replaced_by_hand_at_any_stage_is_in_the_artifact(target: str) -> None:
    net, x = Net(), torch.randn(2, 4)
    source = stepwell.from_exported_program(export(net, (x,)))
    wanted = net.second(torch.sigmoid(net.first(x)))
    for stage in stages_of(PIPELINES[target], target):
        program = stepwell.lower(source, target, stop=stage).program
        text = program.text(locations=True)
        edited = text.replace(".tanh", ".sigmoid", 1)
        lowered = stepwell.lower(stepwell.parse(edited, weights=program.weights), target)
        assert ".tanh" in text and "tanh" not in str(lowered.program).replace("%tanh", "")
        torch.testing.assert_close(lowered.run(x)[0], wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("target", ["cortex-m55", "tosa-1.0+int+cpu", "ethos-u55-128"])
def test_an_edit_of_integers_at_any_stage_is_what_the_artifact_computes(target: str) -> None:
    source = program("quantized:cnn_per_tensor")
    direct = stepwell.lower(source, target)
    (image,) = random_values(source, "forward", 0)
    (unedited,) = direct.program.run(image)
    for stage in stages_of(direct.target.pipeline, target):
        stopped = stepwell.lower(source, target, stop=stage).program
        text = stopped.text(locations=True)
        edited = stepwell.parse(
            text.replace(*next(edit for edit in EDITS if edit[0] in text), 1),
            weights=stopped.weights,
        )
        edited.verify()
        lowered = stepwell.lower(edited, target)
        (wanted,), (got,) = edited.run(image), lowered.program.run(image)
        by = (got - wanted).abs().max() / wanted.abs().max()
        assert by < 0.05 < (wanted - unedited).abs().max() / wanted.abs().max(), stage
        assert lowered.emit() != direct.emit()
    if not target.startswith("ethos-u"):  # Vela's commands are not interpreted.
        assert stepwell.load(stepwell.emit(edited, target)).run(image)[0].equal(wanted)


EDITS = (
    ("aten.add.Tensor(", "aten.sub.Tensor("),
    ("tosa.add ", "tosa.sub "),
    ("activation_max = 127 : i64", "activation_max = -60 : i64"),
)
"""A difference in place of a sum; where a target has none, a sum that saturates earlier."""


def test_what_stopped_on_the_way_is_no_artifact_and_says_how_it_becomes_one() -> None:
    stopped = stepwell.lower(program("tiny:mlp"), "xnnpack", stop="absorb")
    assert "kernels" not in stopped.report.text(), "what is on its way is left to none yet"
    assert stopped.stopped_after == "absorb"
    with pytest.raises(StepwellError, match=r"stopped after 'absorb'[\s\S]*emit\(program, 'xnnp"):
        stopped.to_pte()
    with pytest.raises(StepwellError, match="lowering to xnnpack stopped after 'absorb'"):
        stepwell.emit(stopped.program, "tosa-1.0+fp")


def test_a_place_that_a_pipeline_has_not_is_refused_with_the_nearest_name() -> None:
    source = program("tiny:mlp")
    with pytest.raises(StepwellError, match=r"neither a stage nor a step 'absrb'[\s\S]*'absorb'"):
        stepwell.lower(source, "xnnpack", stop="absrb")
    with pytest.raises(StepwellError, match="the lowering cannot stop inside the group"):
        stepwell.lower(source, "xnnpack", stop="absorb/merge-linears")
    nodes = stepwell.lower(source, "xnnpack", stop="nodes").program
    with pytest.raises(StepwellError, match="'share-nodes' already ran"):
        stepwell.lower(nodes, "xnnpack", stop="plain")


def test_a_program_of_another_target_is_refused() -> None:
    lowered = stepwell.lower(program("tiny:mlp"), "cortex-m55")
    with pytest.raises(StepwellError, match="made for cortex-m55, not for cortex-m4"):
        stepwell.emit(lowered.program, "cortex-m4")
    with pytest.raises(StepwellError, match="level 'cmsis', which no stage of xnnpack accepts"):
        stepwell.emit(lowered.program, "xnnpack")


def test_a_flatbuffer_of_one_version_goes_to_another_if_that_has_its_operators() -> None:
    source = program("tiny:mlp")
    older = stepwell.lower(source, "tosa-1.0+fp")
    newer = stepwell.lower(older.program, "tosa-1.1+fp")
    x = torch.randn(4, 64)
    assert newer.emit() != older.emit() and torch.equal(newer.run(x)[0], older.run(x)[0])
    with pytest.raises(StepwellError, match="tosa"):
        stepwell.lower(older.program, "tosa-1.0+int")


def test_the_command_line_stops_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program("tiny:mlp").save(tmp_path / "mlp.mlir")
    model, nodes = str(tmp_path / "mlp.mlir"), str(tmp_path / "nodes.mlir")
    direct, edited = tmp_path / "direct.pte", tmp_path / "edited.pte"
    assert main(["lower", model, "-o", str(direct)]) == 0
    assert main(["lower", model, "--to", "nodes", "-o", nodes]) == 0
    assert main(["emit", nodes, "-t", "xnnpack", "-o", str(edited)]) == 0
    assert edited.read_bytes() == direct.read_bytes()
    capsys.readouterr()
    assert main(["lower", nodes, "--stop-after", "choose-kernels"]) == 0
    assert 'stepwell.after = "xnnpack/choose-kernels"' in capsys.readouterr().out
    assert main(["lower", nodes, "--to", "laid-out", "-o", str(direct)]) == 1
    assert "writes IR, not an artifact" in capsys.readouterr().err
