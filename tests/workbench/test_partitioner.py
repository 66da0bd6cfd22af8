"""`StepwellPartitioner` in the stock flow: the delegates of `lower`, the numbers of the model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge, to_edge_transform_and_lower
from torch import nn

import stepwell
from stepwell.backends.executorch.running.runner import PteSession

from .small_models import Net, made
from .versions import undecomposed

SHAPES = (
    "attention", "words", "two inputs", "two outputs", "an output of another", "a dictionary",
    "kernels between", "kernels alone",
)  # fmt: skip
"""Models whose programs differ in what a flow sees: their ops are the business of `lower`."""


def ran(edge: Any, *calls: Sequence[torch.Tensor]) -> list[Any]:
    """What the stock runtime gives for the program that the stock flow writes."""
    session = PteSession.load(edge.to_executorch().buffer)
    return [list(session.run(*inputs)) for inputs in calls]


def delegates(edge: Any) -> int:
    return sum(
        node.op == "call_function" and "call_delegate" in str(node.target)
        for node in edge.exported_program().graph.nodes
    )


@undecomposed
@pytest.mark.parametrize("name", SHAPES)
def test_the_flow_has_the_delegates_of_lower_and_the_numbers_of_the_model(name: str) -> None:
    model, inputs, _ = made(name)
    exported = torch.export.export(model, tuple(inputs))
    partitioner = stepwell.StepwellPartitioner()
    edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    (report,) = partitioner.reports
    assert (
        delegates(edge) == report.delegates == stepwell.lower(exported, "xnnpack").report.delegates
    )
    wanted = torch.utils._pytree.tree_leaves(model(*inputs))
    for ours, eager in zip(ran(edge, inputs)[0], wanted, strict=True):
        torch.testing.assert_close(ours, eager, atol=1e-5, rtol=1e-4)


@undecomposed
@pytest.mark.parametrize("comes_first", [True, False])
def test_what_is_left_goes_to_a_second_partitioner(comes_first: bool) -> None:
    model = Net(lambda s, x: s.b(s.a(x).cumprod(1)), a=nn.Linear(8, 8), b=nn.Linear(8, 4)).eval()
    inputs = (torch.rand(2, 5, 8),)
    both: list[Any] = [stepwell.StepwellPartitioner(), XnnpackPartitioner()]
    exported = torch.export.export(model, inputs)
    edge = to_edge_transform_and_lower(exported, partitioner=both if comes_first else both[::-1])
    assert both[0].reports[0].delegates >= 1
    assert delegates(edge) >= both[0].reports[0].delegates
    ((y,),) = ran(edge, inputs)
    torch.testing.assert_close(y, model(*inputs), atol=1e-5, rtol=1e-4)


class Counts(nn.Module):
    """Adds up what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(1, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(self.layer(x))
        return self.total * 2


@undecomposed
def test_state_is_kept_between_calls() -> None:
    torch.manual_seed(0)
    model, first, second = Counts().eval(), torch.rand(1, 4), torch.rand(1, 4)
    exported = torch.export.export(model, (first,))
    edge = to_edge_transform_and_lower(exported, partitioner=[stepwell.StepwellPartitioner()])
    wanted = [model(first).detach().clone(), model(second).detach().clone()]
    for (ours,), eager in zip(ran(edge, (first,), (second,)), wanted, strict=True):
        torch.testing.assert_close(ours, eager, atol=1e-5, rtol=1e-4)


@undecomposed
def test_several_methods_have_one_partitioner() -> None:
    model, inputs = nn.Linear(4, 2).eval(), (torch.rand(3, 4),)
    programs = {name: torch.export.export(model, inputs) for name in ("forward", "again")}
    partitioner = stepwell.StepwellPartitioner()
    edge = to_edge_transform_and_lower(programs, partitioner=[partitioner])
    assert len(partitioner.reports) == 2
    ((y,),) = ran(edge, inputs)
    torch.testing.assert_close(y, model(*inputs), atol=1e-5, rtol=1e-4)


@pytest.fixture(scope="module")
def exported() -> Any:
    return torch.export.export(nn.Linear(4, 2).eval(), (torch.rand(3, 4),))


def test_a_flow_that_decomposes_first_is_refused(exported: Any) -> None:
    with pytest.raises(stepwell.StepwellError, match=r"decomposed before part(.|\n)*transform_"):
        to_edge(exported).to_backend(stepwell.StepwellPartitioner())


@undecomposed
def test_targets_without_delegates_of_xnnpack_are_refused(exported: Any) -> None:
    with pytest.raises(stepwell.StepwellError, match=r"creates XNNPACK delegates"):
        to_edge_transform_and_lower(
            exported, partitioner=[stepwell.StepwellPartitioner("tosa-1.0+fp")]
        )


@undecomposed
def test_sizes_known_at_run_time_are_refused_with_a_way_out() -> None:
    model, x = nn.Linear(4, 2).eval(), torch.rand(3, 4)
    sizes = {"input": {0: torch.export.Dim("batch", min=2, max=8)}}
    exported = torch.export.export(model, (x,), dynamic_shapes=sizes)
    with pytest.raises(stepwell.StepwellError, match=r"dynamic sizes(.|\n)*to_pte"):
        to_edge_transform_and_lower(exported, partitioner=[stepwell.StepwellPartitioner()])


@undecomposed
def test_another_memory_format_is_refused_with_a_way_out() -> None:
    model = nn.Conv2d(3, 4, 1).eval()
    x = torch.rand(1, 3, 4, 4).to(memory_format=torch.channels_last)
    exported = torch.export.export(model, (x,))
    with pytest.raises(stepwell.StepwellError, match=r"the dim order \[0, 2, 3, 1\]"):
        to_edge_transform_and_lower(exported, partitioner=[stepwell.StepwellPartitioner()])


def test_what_to_edge_gave_is_lowered_with_its_methods_and_values() -> None:
    model, inputs = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).eval(), (torch.rand(3, 4),)
    edge = to_edge(torch.export.export(model, inputs), constant_methods={"limit": 7})
    lowered = stepwell.lower(edge, "xnnpack")
    assert lowered.report.delegates == 1
    assert lowered.run(method="limit") == (7,)
    torch.testing.assert_close(lowered.run(*inputs)[0], model(*inputs), atol=1e-5, rtol=1e-4)


def test_a_manager_of_delegates_or_of_bytes_is_refused_with_what_to_do(exported: Any) -> None:
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    with pytest.raises(
        stepwell.StepwellError, match=r"already contains delegates(.|\n)*to_backend"
    ):
        stepwell.lower(edge, "xnnpack")
    with pytest.raises(stepwell.StepwellError, match=r"memory is planned already(.|\n)*read_pte"):
        stepwell.lower(edge.to_executorch(), "xnnpack")


def test_a_lowering_gives_what_the_last_step_of_the_flow_gives(
    exported: Any, tmp_path: Path
) -> None:
    lowered = stepwell.lower(exported, "xnnpack")
    program = lowered.to_executorch()
    assert program.buffer == lowered.to_pte()
    assert program.methods == {"forward"}
    with open(tmp_path / "written.pte", "wb") as file:
        program.write_to_file(file)
    program.save(tmp_path / "saved.pte")
    assert (tmp_path / "written.pte").read_bytes() == program.buffer
    assert (tmp_path / "saved.pte").read_bytes() == program.buffer
    assert program.get_etrecord().edge_dialect_program is not None
