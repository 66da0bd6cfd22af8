"""Each kind of input, output, write and call that a torch program may hold."""

import copy
from typing import Any

import pytest
import torch
from eager import Function, Model
from torch import Tensor, nn
from torch.export import Dim
from torch.utils import _pytree as pytree

from stepwell.ir.core import StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.program import Program
from stepwell.translate.exporter.to_torch import to_exported_program
from stepwell.translate.importer.from_torch import from_exported_program


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and one == other


def check(model: Model, *inputs: Any, calls: int = 2, **options: Any) -> Program:
    """Export, import, verify, run, go back and run: everything equals eager, state included."""
    module = model if isinstance(model, nn.Module) else Function(model)
    with torch.no_grad():
        exported = torch.export.export(module, inputs, **options)
        program = from_exported_program(exported)
        program.verify()
        back, session = to_exported_program(program).module(), program.start()
        for _ in range(calls):
            ours, theirs = copy.deepcopy(inputs), copy.deepcopy(inputs)
            outcome = session.call("forward", ours)
            expected = pytree.tree_leaves(module(*theirs))
            assert all(map(same, outcome.outputs, expected))
            assert all(map(same, pytree.tree_leaves(ours), pytree.tree_leaves(inputs)))
            again = copy.deepcopy(inputs)
            assert all(map(same, pytree.tree_leaves(back(*again)), expected))
            assert all(map(same, pytree.tree_leaves(again), pytree.tree_leaves(theirs)))
    return program


def names(program: Program) -> list[str]:
    return [op.name for op in program.method().body.block.ops]


def test_buffers_that_change_are_state_and_the_others_are_weights() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(3))
            self.register_buffer("seen", torch.ones(3), persistent=False)
            self.offset = torch.tensor([1.0, 2.0, 3.0])

        def forward(self, x: Tensor) -> Tensor:
            self.calls.add_(1)
            return x + self.calls + self.seen + self.offset

    program = check(Counting(), torch.randn(3))
    ops = list(program.method().body.block.ops)
    assert [op.key.data for op in ops if isinstance(op, StateOp)] == ["calls"]
    assert [op.key.data for op in ops if isinstance(op, UpdateOp)] == ["calls"]
    assert {op.key.data: op.kind.data for op in ops if isinstance(op, WeightOp)} == {
        "seen": "buffer",
        "offset": "constant",
    }


def test_a_write_to_part_of_a_buffer_goes_through_torchs_functionalization() -> None:
    class Partial(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            self.seen[0:2] += x[0:2]
            return x + self.seen

    program = check(Partial(), torch.randn(3))
    assert any("scatter" in name for name in names(program))


def test_a_user_input_that_is_written_is_written_for_the_caller() -> None:
    def double(x: Tensor) -> Tensor:
        x.mul_(2)
        return x + 1

    program = check(double, torch.randn(3), calls=1)
    assert "stepwell.mutate_input" in names(program)


@pytest.mark.parametrize("view", ["view", "select", "transpose"])
def test_a_write_that_a_view_sees_is_seen(view: str) -> None:
    def write(x: Tensor) -> Tensor:
        y = x * 1
        z = {"view": y.view(-1), "select": y[0], "transpose": y.t()}[view]
        z.add_(1)
        return y * 2

    check(write, torch.randn(2, 3))


def test_a_write_that_nobody_else_sees_becomes_a_value() -> None:
    def write(x: Tensor) -> Tensor:
        y = x * 2
        y.relu_()
        y += 1
        return y.tanh()

    program = check(write, torch.randn(2, 3))
    assert names(program)[1:3] == ["aten.relu.default", "aten.add.Scalar"]


def test_dropout_in_evaluation_may_return_its_operand_and_is_taken_as_an_alias() -> None:
    def write(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 1
        z = nn.functional.dropout(y, 0.5, False)
        z.add_(1)
        return y, z

    check(write, torch.randn(3))


def test_an_in_place_operator_keeps_the_dtype_it_writes_to() -> None:
    def write(x: Tensor, y: Tensor) -> Tensor:
        z = x * 1
        z.add_(y)
        return z

    check(write, torch.randn(2), torch.randn(2, dtype=torch.float64))


def test_batch_norm_in_training_updates_its_statistics() -> None:
    program = check(nn.BatchNorm2d(3).train(), torch.randn(2, 3, 4, 4), calls=1)
    assert names(program).count("stepwell.update") == 3


def test_nested_inputs_flags_and_none_keep_their_places() -> None:
    def nested(d: dict[str, Tensor], flag: bool) -> dict[str, Any]:
        return {"a": d["x"] + 1 if flag else d["x"], "b": [d["y"].t()], "n": None, "five": 5}

    program = check(nested, {"x": torch.randn(2, 2), "y": torch.randn(2, 3)}, True)
    with pytest.raises(StepwellError, match="exported with True"):
        program.run({"x": torch.randn(2, 2), "y": torch.randn(2, 3)}, False)


def test_an_input_that_is_returned_and_a_view_of_it_come_back() -> None:
    check(lambda x: (x, x.t(), x[0]), torch.randn(2, 3))


def test_lists_of_optional_tensors_and_data_dependent_sizes() -> None:
    check(
        lambda x, i: (x[:, i], x[i > 0], x.nonzero()),
        torch.randn(3, 3),
        torch.tensor([0, 1, 2]),
    )


def test_a_size_read_from_data_is_checked_at_run_time() -> None:
    def head(x: Tensor, n: Tensor) -> Tensor:
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= x.shape[0])
        return x[:k] * 2

    check(head, torch.randn(5, 3), torch.tensor(3))


def test_arithmetic_on_sizes_is_ops_with_expressions_in_their_types() -> None:
    def sizes(x: Tensor) -> Any:
        n = x.shape[0]
        return torch.zeros(n * 2, x.shape[1] // 2), x.view(-1), x * n, n

    shapes = (({0: Dim("a", min=2, max=32), 1: Dim("b", min=4, max=64)},),)
    program = check(sizes, torch.randn(4, 6), dynamic_shapes=shapes)
    assert "sym.mul" in names(program)
    assert program.run(torch.ones(3, 8))[0].shape == (6, 4)
    with pytest.raises(StepwellError, match="outside"):
        program.run(torch.ones(40, 8))


def test_a_dtype_that_export_worked_out_is_no_value_of_the_program() -> None:
    def promoted(x: Tensor, y: Tensor) -> Tensor:
        return x.to(torch.promote_types(x.dtype, y.dtype)) + 1

    inputs = (torch.arange(3), torch.randn(3))
    exported = torch.export.export(Function(promoted), inputs)
    assert any("promote_types" in str(node.target) for node in exported.graph.nodes)
    program = from_exported_program(exported)
    assert "promote_types" not in str(program.module)
    again = to_exported_program(program).module()(*inputs)
    assert torch.equal(again, exported.module()(*inputs))


def test_map_and_scan_are_regions() -> None:
    from torch._higher_order_ops.map import map as torch_map
    from torch._higher_order_ops.scan import scan

    check(
        lambda xs, y: torch_map(lambda x, y: x * 2 + y, xs, y),
        *(torch.randn(4, 3), torch.randn(3)),
    )
    check(
        lambda xs: scan(lambda c, x: (c + x, (c * x).clone()), torch.zeros(3), xs),
        torch.randn(4, 3),
    )


def test_tied_weights_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x))

    program = check(Tied(), torch.randn(2, 3))
    held = program.weights.tensors()
    memories = {key: tensor.data_ptr() for key, tensor in held.items() if "weight" in key}
    assert len(set(memories.values())) == 1


def test_channels_last_is_part_of_the_signature() -> None:
    image = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    program = check(nn.Conv2d(3, 4, 3), image)
    assert program.signature().inputs[0].dim_order == (0, 2, 3, 1)
    assert torch.equal(program.run(image.contiguous())[0], program.run(image)[0])


def test_locations_name_node_module_and_line_but_no_folder() -> None:
    exported = torch.export.export(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), (torch.randn(2, 3),))
    from stepwell.ir.syntax.text import to_text

    text = to_text(from_exported_program(exported).module, locations=True)
    assert '"linear"("0"(' in text
    assert "/" not in text.replace("</", "")


def test_everything_unsupported_is_reported_at_once() -> None:
    @torch.library.custom_op("stepwell_test::scale_all", mutates_args={"xs"})
    def scale_all(xs: list[Tensor], factor: float) -> None:
        for x in xs:
            x.mul_(factor)

    class Writes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 1
            torch.ops.stepwell_test.scale_all([y], 2.0)
            torch.ops.stepwell_test.scale_all([y], 3.0)
            return y

    exported = torch.export.export(Writes(), (torch.randn(2),))
    with pytest.raises(UnsupportedError) as caught:
        from_exported_program(exported)
    assert len(caught.value.problems) == 2
    assert all("test_from_torch.py:" in (p.where or "") for p in caught.value.problems)


def test_two_methods_with_different_weights_under_one_name_are_refused() -> None:
    one, other = (torch.export.export(nn.Linear(3, 3), (torch.randn(2, 3),)) for _ in range(2))
    with pytest.raises(UnsupportedError, match="different values"):
        from_exported_program({"a": one, "b": other})
