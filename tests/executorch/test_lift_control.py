"""Jumps of a `.pte` are read back as regions that compute what the runtime does."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from eager import Function, assert_as_eager, exported
from torch import Tensor, nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan

import stepwell
from control_flow import cond_model, while_loop_model
from stepwell.backends.executorch.container import ScalarType
from stepwell.backends.executorch.running.runner import PteSession, run_pte
from stepwell.backends.executorch.writing.builder import ContainerBuilder
from stepwell.backends.executorch.writing.emit import emit
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.dialects.control import CondOp, MapOp, ScanOp, WhileLoopOp
from stepwell.ir.diagnostics import UnsupportedError


def mapped(x: Tensor, weight: nn.Linear) -> Tensor:
    return torch_map(lambda row: torch.sin(row) * weight.weight[0], x) + 1.0


def scanned(start: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Stacks what is carried before it is changed, which a copy must keep."""
    return scan(lambda total, row: (total + row, total * row), start, x)


def nested(x: Tensor) -> Tensor:
    def outer(x: Tensor) -> Tensor:
        return torch.cond(x.max() > 1.0, lambda x: x * 2.0, lambda x: x.neg(), (x + 1.0,))

    return torch.cond(x.sum() > 0.0, outer, lambda x: x.abs().sqrt(), (x,)).exp()


def ours(program: torch.export.ExportedProgram) -> bytes:
    return stepwell.lower(program, "xnnpack").to_pte()


@cache
def stock_pte(name: str) -> tuple[nn.Module, bytes]:
    make, samples, _ = CASES[name]
    torch.manual_seed(0)
    model = make()
    return model, stock(exported(model, *samples[0]))


def stock(program: torch.export.ExportedProgram) -> bytes:
    from executorch.exir import EdgeCompileConfig, to_edge

    edge = to_edge(program, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    return edge.to_executorch().buffer


def kinds(program: stepwell.Program) -> list[type]:
    known = (CondOp, WhileLoopOp, MapOp, ScanOp)
    return [type(op) for op in program.module.walk() if isinstance(op, known)]


def check(
    model: nn.Module, data: bytes, samples: Sequence[Sequence[Any]], wanted: list[type]
) -> None:
    """The program computes what eager PyTorch does, and so does what is read back and verified."""
    program = stepwell.read_pte(data)
    program.verify()
    assert kinds(program) == wanted
    again = stepwell.parse(str(program), program.weights)
    assert again.module.is_structurally_equivalent(program.module)
    for inputs in samples:
        assert_as_eager(program, model, *inputs)
        assert_as_eager(PteSession.load(data), model, *inputs)


CASES: dict[str, tuple[Callable[[], nn.Module], list[list[Tensor]], list[type]]] = {
    "cond": (
        lambda: cond_model()[0],
        [[torch.randn(2, 16) + shift] for shift in (1.0, -1.0)],
        [CondOp],
    ),
    "nested": (
        lambda: Function(nested),
        [[torch.full((3,), v)] for v in (2.0, -2.0, 0.01)],
        [CondOp, CondOp],
    ),
    "map": (lambda: Function(mapped, nn.Linear(4, 1)), [[torch.randn(3, 4)]], [MapOp]),
    "scan": (lambda: Function(scanned), [[torch.randn(4), torch.randn(5, 4)]], [ScanOp]),
}


@pytest.mark.parametrize("name", CASES)
def test_our_jumps_become_regions(name: str) -> None:
    make, samples, wanted = CASES[name]
    model = make()
    check(model, ours(exported(model, *samples[0])), samples, wanted)


@pytest.mark.parametrize("scratch", ["flags", "floats"])
def test_scratch_that_lay_where_a_result_does_is_no_result(scratch: str) -> None:
    """What is dead, and lay over the first bytes of what a branch gives, is not given with it."""
    builder = ContainerBuilder()
    method = builder.method("forward")
    x, y = method.tensor(ScalarType.FLOAT, (4,)), method.tensor(ScalarType.FLOAT, (4,))
    choice = method.tensor(ScalarType.BOOL, ())
    method.input(x)
    method.input(choice)
    otherwise = method.jump_if_false(choice)
    if scratch == "flags":
        dead = method.tensor(ScalarType.BOOL, (4,))
        method.call("aten::logical_not.out", [x, dead, dead])
    else:
        dead = method.tensor(ScalarType.FLOAT, (1,))
        method.call("aten::amax.out", [x, method.ints([0]), method.scalar(True), dead, dead])
    method.place(dead, y, 0)
    method.call("aten::exp.out", [x, y, y])
    end = method.jump_if_false(method.scalar(False))
    method.land(otherwise)
    method.call("aten::neg.out", [x, y, y])
    method.land(end)
    method.outputs([y])
    data = to_bytes(builder.finish())
    program = stepwell.read_pte(data)
    [cond] = [op for op in program.module.walk() if isinstance(op, CondOp)]
    assert len(cond.results) == 1
    for given in (True, False):
        inputs = [torch.tensor([1.0, -2.0, 0.0, 3.0]), torch.tensor(given)]
        for got, want in zip(program.run(*inputs), run_pte(data, inputs), strict=True):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", CASES)
def test_stock_jumps_become_regions(name: str) -> None:
    check(*stock_pte(name), CASES[name][1], CASES[name][2])


def test_a_loop_becomes_a_region_that_carries_what_it_changes() -> None:
    module, (x, _) = while_loop_model()
    samples = [(x, torch.tensor(steps)) for steps in (0, 1, 5)]
    check(module, ours(exported(module, *samples[0])), samples, [WhileLoopOp])


@pytest.mark.parametrize("name", CASES)
def test_what_was_read_can_be_written_again(name: str) -> None:
    samples, (_, data) = CASES[name][1], stock_pte(name)
    again = to_bytes(emit(stepwell.read_pte(data)))
    for inputs in samples:
        for got, want in zip(run_pte(again, inputs), run_pte(data, inputs), strict=True):
            assert torch.equal(got, want)


def test_a_jump_into_the_middle_of_a_branch_is_refused_with_its_place() -> None:
    builder = ContainerBuilder()
    method = builder.method("forward")
    x, y = method.tensor(ScalarType.FLOAT, (2,)), method.tensor(ScalarType.FLOAT, (2,))
    choice = method.tensor(ScalarType.BOOL, ())
    method.input(x)
    method.input(choice)
    first = method.jump_if_false(choice)
    method.call("aten::exp.out", [x, y, y])
    method.land(first)
    start = method.here
    method.call("aten::neg.out", [x, y, y])
    method.jump_back(choice, start)
    method.outputs([y])
    with pytest.raises(UnsupportedError, match=r"not part of a cond, .*\n.*instruction 3"):
        stepwell.read_pte(to_bytes(builder.finish()))
