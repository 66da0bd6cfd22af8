"""Sizes that only the run knows: the extension `shape`, and its refusal elsewhere."""

from pathlib import Path

import pytest
import torch
from eager import Function, assert_as_eager, lower
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

import stepwell
from deit import deit_small_depth2
from dynamic import dynamic_batch, dynamic_length
from resnet import resnet8

from .arm_quantized import quantized_by_ours
from .graphs import assert_agree, assert_tosa_opt_accepts

TARGET = "tosa-1.1+fp+shape"
DRAFT = "specification_version=1.1.draft profiles=pro_fp extensions=shape"


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
            assert_agree(graph, model, x, atol=2e-5 * float(model(x).abs().max()))
        (back,) = stepwell.read_tosa(graph.to_tosa()).run(x, method="main")
        assert torch.equal(back, graph.program.run(x)[0])
    assert_tosa_opt_accepts(graph.to_tosa(), DRAFT, tmp_path)


def test_the_transposes_of_a_network_with_any_batch_cancel_as_those_of_a_fixed_one() -> None:
    _, graph = lowered(lambda: with_any_batch(resnet8))
    names = [op.name for op in graph.program.method().body.block.ops]
    assert names.count("tosa.transpose") == 1


def test_a_target_without_the_extension_names_the_input_and_a_remedy() -> None:
    with pytest.raises(stepwell.StepwellError, match="known only at run time") as caught:
        lowered(dynamic_batch, "tosa-1.1+fp")
    (problem,) = caught.value.problems
    assert "image" in problem.fact and "tosa-1.1+fp+shape" in (problem.help or "")


def _sizes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, y, x], 0).reshape(-1).view(-1, 2).sum(1)


def test_sizes_are_computed_by_shape_operators() -> None:
    dynamic = {0: Dim("n", min=2, max=64)}, {0: Dim("m", min=2, max=64)}
    graph = lower(_sizes, torch.randn(3, 4), torch.randn(5, 4), target=TARGET, dynamic=dynamic)
    names = {op.name for op in graph.program.method().body.block.ops}
    assert {"tosa.dim", "tosa.mul_shape", "tosa.add_shape"} <= names
    assert_as_eager(graph, _sizes, torch.randn(7, 4), torch.randn(2, 4))


HEIGHT, WIDTH = Dim("height", min=5, max=64), Dim("width", min=5, max=64)
LENGTH = Dim("length", min=2, max=64)
PLANES = {
    "padding that the size decides": nn.Conv2d(3, 4, 3, stride=2, padding=1),
    "a stride of three": nn.Conv2d(3, 4, 5, stride=3, padding=2),
    "groups, channel by channel": nn.Conv2d(3, 6, 3, stride=2, padding=1, groups=3),
    "transposed": nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
    "pools": nn.Sequential(nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1)),
    "an average that leaves padding out": nn.AvgPool2d(3, 1, 1, count_include_pad=False),
    "a classifier": nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6(), nn.AdaptiveAvgPool2d(1)
    ),
}


@pytest.mark.parametrize("name", PLANES)
def test_one_graph_serves_images_of_every_size(name: str) -> None:
    model = PLANES[name].eval()
    graph = lower(model, torch.randn(1, 3, 8, 9), target=TARGET, dynamic={2: HEIGHT, 3: WIDTH})
    for size in ((8, 9), (13, 7)):
        assert_agree(graph, model, torch.randn(1, 3, *size), rtol=2e-5, atol=1e-6)


def _counts(x: torch.Tensor) -> torch.Tensor:
    return x + torch.arange(3, x.shape[1] + 3, dtype=x.dtype)[:, None]


LENGTHS = {
    "a mean": lambda x: x.mean(1),
    "a mean of all": lambda x: x.mean((0, 1)),
    "causal attention": lambda x: nn.functional.scaled_dot_product_attention(
        x, x, x, is_causal=True
    ),
    "a triangle": lambda x: torch.tril(x @ x.mT, -1) + torch.triu(x @ x.mT, 2),
    "numbers that count": _counts,
    "a fill where a mask says so": lambda x: x.masked_fill(x > 0, -1.0),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_one_graph_serves_rows_of_every_length(name: str) -> None:
    model = Function(LENGTHS[name])
    graph = lower(model, torch.randn(2, 5, 4), target=TARGET, dynamic={1: LENGTH})
    for length in (5, 19):
        assert_agree(graph, model, torch.randn(2, length, 4), rtol=2e-5, atol=1e-6)


def test_numbers_that_count_have_no_end_where_the_size_has_no_bound(tmp_path: Path) -> None:
    model = Function(_counts)
    graph = lower(model, torch.randn(2, 5, 4), target=TARGET, dynamic={1: Dim("free", min=2)})
    for length in (5, 2500):
        assert_agree(graph, model, torch.randn(2, length, 4), rtol=2e-5, atol=1e-6)
    assert_tosa_opt_accepts(graph.to_tosa(), DRAFT, tmp_path)


def test_integer_images_may_have_any_size() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(3, 2, 1)).eval()
    shapes = ({2: HEIGHT, 3: WIDTH},)
    inputs = (torch.randn(1, 3, 16, 17),)
    quantized = quantized_by_ours(model, *inputs, sizes=shapes)
    graph = stepwell.lower(quantized, "tosa-1.1+int+shape")
    for size in ((16, 17), (21, 30)):
        x = torch.randint(-128, 128, (1, 3, *size), dtype=torch.int8)
        assert torch.equal(graph.run(x)[0], graph.program.run(x)[0])


def test_an_average_whose_counts_a_symbolic_size_decides_is_refused() -> None:
    model = nn.AvgPool2d(3, 2, 1, count_include_pad=False)
    with pytest.raises(stepwell.StepwellError, match="decides which elements of a window count"):
        lower(model, torch.randn(1, 3, 16, 16), target=TARGET, dynamic={2: HEIGHT})


def test_a_size_in_a_loop_is_asked_of_what_the_loop_is_given() -> None:
    def mean_in_loop(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return while_loop(
            lambda i, h: i > 0, lambda i, h: (i - 1, h - h.mean(1, keepdim=True)), (n, x * 1)
        )[1]

    steps, target = torch.tensor(3, dtype=torch.int32), "tosa-1.1+fp+int+controlflow+shape"
    dynamic = {1: Dim("t")}, None
    graph = lower(mean_in_loop, torch.randn(2, 5, 6), steps, target=target, dynamic=dynamic)
    for length in (2, 7):
        assert_as_eager(graph.program, mean_in_loop, torch.randn(2, length, 6), steps)
