"""Operators stand in the order that needs the least memory, found exactly."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import export
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import stepwell
from stepwell.backends.cortex_m.plan_memory import Calls
from stepwell.backends.executorch.reading.read import read_container
from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer
from stepwell.translate.rewrites.cmsis.layout import order_operators
from stepwell.translate.rewrites.cmsis.layout.order_operators import (
    OperatorGraph,
    OrderOperators,
    lower_bound,
)


class Branches(nn.Module):
    """Wide branches that each end narrow: one after the other they need the least."""

    def __init__(self, count: int = 3) -> None:
        super().__init__()
        self.wide = nn.ModuleList(nn.Conv2d(2, 16, 1) for _ in range(count))
        self.narrow = nn.ModuleList(nn.Conv2d(16, 1, 1) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        held = [torch.relu(wide(x)) for wide in self.wide]
        out = [narrow(y) for narrow, y in zip(self.narrow, held, strict=True)]
        return out[0] + out[1] + out[2]


def lowered(model: nn.Module, x: Tensor, without: bool = False) -> Any:
    torch.manual_seed(0)
    prepared = prepare_pt2e(
        export(model.eval(), (x,)).module(check_guards=False), CortexMQuantizer()
    )
    prepared(x)
    exported = export(convert_pt2e(prepared), (x,))
    if without:
        return stepwell.lower(
            exported, "cortex-m4", pipeline=lambda pipeline: pipeline.without("order-operators")
        )
    return stepwell.lower(exported, "cortex-m4")


def arena(made: Any) -> int:
    return sum(read_container(bytearray(made.to_pte())).methods[0].arena_sizes[1:])


def test_branches_run_one_after_the_other_and_compute_the_same() -> None:
    torch.manual_seed(1)
    model, x = Branches(), torch.randn(1, 2, 8, 8)
    plain, made = lowered(model, x, without=True), lowered(model, x)
    assert arena(made) < 0.6 * arena(plain)
    assert torch.equal(made.program.run(x)[0], plain.program.run(x)[0])


def test_the_order_is_the_best_of_all_orders() -> None:
    torch.manual_seed(2)
    program = lowered(Branches(), torch.randn(1, 2, 4, 4), without=True).program
    block = program.method().body.block
    held = [op for op in block.ops if op.name not in ("stepwell.weight", "func.return")]
    graph = OperatorGraph(held, block.last_op)
    found = order_operators.least(graph)
    assert found is not None

    def orders(done: int, order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(order) == len(held):
            yield order
        ready = [i for i in range(len(held)) if not (done >> i & 1 or graph.needs[i] & ~done)]
        for i in [i for i in ready if graph.is_view[i]][:1] or ready:  # A view takes no bytes.
            yield from orders(done | 1 << i, (*order, i))

    busiest = {graph.busiest(order) for order in orders(0, ())}
    assert graph.busiest(found) == min(busiest) < max(busiest)


def test_too_many_states_keep_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_operators, "MOST", 2)
    program = lowered(Branches(), torch.randn(1, 2, 4, 4), without=True).program
    assert OrderOperators().apply(program, Any) == 0  # pyright: ignore


@pytest.mark.parametrize("size", ["4", "s"], ids=["of no operators", "of any length"])
def test_a_method_has_no_least_memory(size: str, programs: Any, written: Any) -> None:
    text = written(f"%x: f32[{size}]", f"%y = aten.neg.default(%x) : (f32[{size}]) -> f32[{size}]")
    method = programs(text)[0].method()
    if size == "4":
        (neg, last) = method.body.block.ops
        last.operands[0] = neg.operands[0]
        neg.detach()
    assert lower_bound(method) is None


def test_what_a_call_reads_is_alive_at_it_the_first_one_too(programs: Any) -> None:
    method = programs("""
        %a = cmsis.minimum(%x: i8<0.5>[1, 8], %z: i8<0.5>[1, 8]) -> i8<0.5>[1, 8]
        %y = cmsis.minimum(%a, %a) -> i8<0.5>[1, 8]
        """)[0].method()
    assert Calls(method).alive == [24, 16, 8]
