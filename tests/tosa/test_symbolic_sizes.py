"""Sizes that only the run knows: the extension `shape`, and its refusal elsewhere."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim

import stepwell
from deit import deit_small_depth2
from dynamic import dynamic_batch, dynamic_length
from resnet import resnet8

TARGET = "tosa-1.1+fp+shape"


def with_any_batch(make):
    """A model of one input whose leading axis is left open."""
    model, (x,) = make()
    x = torch.cat([x] * 3)
    return model, (x,), ({0: Dim("batch", min=2, max=16)},)


MODELS = {
    "convolutions": (dynamic_batch, [(2, 3, 16, 16), (7, 3, 16, 16)]),
    "attention over any length": (dynamic_length, [(1, 5, 32), (1, 64, 32)]),
    "a residual network": (lambda: with_any_batch(resnet8), [(5, 3, 32, 32)]),
    "a transformer": (lambda: with_any_batch(deit_small_depth2), [(2, 3, 32, 32)]),
}


def lowered(make, target: str = TARGET):
    model, inputs, shapes = make()
    exported = torch.export.export(model.eval(), inputs, dynamic_shapes=shapes)
    return model, stepwell.lower(exported, target)


@pytest.mark.parametrize("name", MODELS)
def test_one_graph_serves_every_size_on_the_reference_model(name: str, tmp_path: Path) -> None:
    make, shapes = MODELS[name]
    model, graph = lowered(make)
    for shape in shapes:
        x = torch.randn(shape)
        with torch.no_grad():
            expected = model(x)
        bound = 2e-5 * expected.abs().max()
        (found,) = graph.run(x)
        assert (found - expected).abs().max() <= bound
        (interpreted,) = graph.program.run(x)
        assert (interpreted - expected).abs().max() <= bound
        (back,) = stepwell.read_tosa(graph.to_tosa()).run(x, method="main")
        assert torch.equal(back, interpreted)
    assert_tosa_opt_accepts(graph.to_tosa(), tmp_path)


def assert_tosa_opt_accepts(data: bytes, folder: Path) -> None:
    """Its deserialiser, verifier and profile validation take the graph."""
    path = folder / "graph.tosa"
    path.write_bytes(data)
    target = "specification_version=1.1.draft profiles=pro_fp extensions=shape"
    passes = (
        f"tosa-deserialize{{tosa-flatbuffer-filename={path}}},"
        f"tosa-attach-target{{{target}}},tosa-validate{{strict-op-spec-alignment}}"
    )
    command = [Path(sys.executable).with_name("tosa-opt"), "/dev/null"]
    command.append(f"--pass-pipeline=builtin.module({passes})")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_transposes_of_a_network_with_any_batch_cancel_as_those_of_a_fixed_one() -> None:
    _, graph = lowered(lambda: with_any_batch(resnet8))
    names = [op.name for op in graph.program.method().body.block.ops]
    assert names.count("tosa.transpose") == 1


def test_a_target_without_the_extension_names_the_input_and_a_remedy() -> None:
    with pytest.raises(stepwell.StepwellError, match="known only at run time") as caught:
        lowered(dynamic_batch, "tosa-1.1+fp")
    (problem,) = caught.value.problems
    assert "image" in problem.fact and "tosa-1.1+fp+shape" in (problem.help or "")


class _Sizes(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, y, x], 0).reshape(-1).view(-1, 2).sum(1)


def test_sizes_are_computed_by_shape_operators() -> None:
    shapes = ({0: Dim("n", min=2, max=64)}, {0: Dim("m", min=2, max=64)})
    inputs = (torch.randn(3, 4), torch.randn(5, 4))
    exported = torch.export.export(_Sizes(), inputs, dynamic_shapes=shapes)
    graph = stepwell.lower(exported, TARGET)
    names = {op.name for op in graph.program.method().body.block.ops}
    assert {"tosa.dim", "tosa.mul_shape", "tosa.add_shape"} <= names
    x, y = torch.randn(7, 4), torch.randn(2, 4)
    (found,) = graph.run(x, y)
    torch.testing.assert_close(found, _Sizes()(x, y))


def test_a_plane_of_unknown_size_is_refused_where_the_padding_depends_on_it() -> None:
    model = nn.Conv2d(3, 4, 3, stride=2)
    shapes = ({2: Dim("height", min=8, max=64)},)
    exported = torch.export.export(model, (torch.randn(1, 3, 16, 16),), dynamic_shapes=shapes)
    with pytest.raises(stepwell.StepwellError, match="an image of size"):
        stepwell.lower(exported, TARGET)
