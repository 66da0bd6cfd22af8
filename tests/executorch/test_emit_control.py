"""Run-time numbers and control flow become the runtime's scalar kernels and jumps."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

import stepwell
from stepwell.backends.executorch.running.runner import PteSession, run_pte
from stepwell.backends.executorch.writing.emit import emit
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.control import CondOp, MapOp, ScanOp, WhileLoopOp, YieldOp
from stepwell.dialects.sym import OPS
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.dtypes import f32, i1
from stepwell.ir.program import Program
from stepwell.ir.signature import Port, Signature, set_signature
from stepwell.ir.types import BoolType, FloatType, IntType, tensor

V4, B0 = tensor([4], f32), tensor([], i1)


def op(name: str, *args: Any, to: Attribute) -> Operation:
    return op_class(name).make(*args, result_types=[to])


def region(inputs: Sequence[Attribute], body: Callable[..., Sequence[Any]]) -> Region:
    """A region whose `body` gets a function that adds ops, then the block's arguments."""
    block = Block(arg_types=inputs)

    def add(made: Operation) -> SSAValue:
        block.add_op(made)
        return made.results[0]

    block.add_op(YieldOp(*body(add, *block.args)))
    return Region(block)


def program(inputs: Sequence[Attribute], build: Callable[..., Sequence[SSAValue]]) -> Program:
    block = Block(arg_types=inputs)

    def add(made: Operation) -> SSAValue:
        block.add_op(made)
        return made.results[0]

    results = build(add, *block.args)
    block.add_op(ReturnOp(*results))
    types = FunctionType.from_lists(list(inputs), [value.type for value in results])
    return Program(ModuleOp([FuncOp("forward", types, Region(block))]))


def session(prog: Program) -> PteSession:
    return PteSession.load(to_bytes(emit(prog)))


def test_cond_runs_the_branch_its_predicate_chooses() -> None:
    def build(add: Any, x: SSAValue, p: SSAValue) -> Sequence[SSAValue]:
        yes = region([V4], lambda a, v: [a(op("aten.exp.default", v, to=V4))])
        no = region(
            [V4],
            lambda a, v: [a(op("aten.neg.default", a(op("aten.sin.default", v, to=V4)), to=V4))],
        )
        made = CondOp.create(operands=[p, x], result_types=[V4], regions=[yes, no])
        return [add(op("aten.mul.Scalar", add(made), 2.0, to=V4)), x]

    prog = program([V4, B0], build)
    run = session(prog)
    x = torch.randn(4)
    for choice in (True, False, True):
        out, same = run.run(x, torch.tensor(choice))
        torch.testing.assert_close(out, 2 * (x.exp() if choice else -x.sin()))
        assert torch.equal(same, x)
        torch.testing.assert_close(out, prog.run(x, torch.tensor(choice))[0])


def test_a_branch_may_give_an_input_back() -> None:
    def build(add: Any, x: SSAValue, y: SSAValue, p: SSAValue) -> Sequence[SSAValue]:
        yes, no = (region([V4, V4], lambda a, u, v, i=i: [(u, v)[i]]) for i in range(2))
        return [add(CondOp.create(operands=[p, x, y], result_types=[V4], regions=[yes, no]))]

    run = session(program([V4, V4, B0], build))
    x, y = torch.randn(4), torch.randn(4)
    assert torch.equal(run.run(x, y, torch.tensor(True))[0], x)
    assert torch.equal(run.run(x, y, torch.tensor(False))[0], y)


def _fibonacci(add: Any, a: SSAValue, b: SSAValue, limit: SSAValue) -> Sequence[SSAValue]:
    """Carried values that move among themselves: a, b = b, a + b while sum(b) < limit."""
    types = [V4, V4, tensor([], f32)]

    def condition(put: Any, _a: SSAValue, b: SSAValue, limit: SSAValue) -> Sequence[SSAValue]:
        total = put(op("aten.sum.default", b, to=tensor([], f32)))
        return [put(op("aten.lt.Tensor", total, limit, to=B0))]

    def body(put: Any, a: SSAValue, b: SSAValue, _limit: SSAValue) -> Sequence[SSAValue]:
        return [b, put(op("aten.add.Tensor", a, b, to=V4))]

    made = WhileLoopOp.build(
        operands=[[a, b], [limit]],
        result_types=[[V4, V4]],
        regions=[region(types, condition), region(types, body)],
    )
    add(made)
    return list(made.results)


def test_a_while_loop_carries_values_that_change_places() -> None:
    from stepwell.backends.executorch.decompose import DecomposeForKernels
    from stepwell.ir.rewriting.rewrite import run_rewrites

    prog = program([V4, V4, tensor([], f32)], _fibonacci)
    run_rewrites(prog, (DecomposeForKernels(),))
    run = session(prog)
    for limit in (1000.0, 3.0, 50.0):
        a, b = torch.ones(4), torch.arange(4.0)
        outs = run.run(a, b, torch.tensor(limit))
        while b.sum() < limit:
            a, b = b, a + b
        assert torch.equal(outs[0], a) and torch.equal(outs[1], b)


def test_map_runs_its_body_over_the_first_axis_every_time() -> None:
    rows = tensor([3, 4], f32)

    def build(add: Any, x: SSAValue, y: SSAValue) -> Sequence[SSAValue]:
        body = region([V4, V4], lambda a, row, other: [a(op("aten.mul.Tensor", row, other, to=V4))])
        return [
            add(MapOp.build(operands=[[x], [y]], result_types=[[rows]], regions=[body]))
        ]  # fmt: skip

    run = session(program([rows, V4], build))
    for _ in range(2):
        x, y = torch.randn(3, 4), torch.randn(4)
        torch.testing.assert_close(run.run(x, y)[0], x * y)


def test_scan_carries_and_stacks() -> None:
    rows = tensor([5, 4], f32)

    def body(add: Any, total: SSAValue, row: SSAValue) -> Sequence[SSAValue]:
        new = add(op("aten.add.Tensor", total, row, to=V4))
        return [new, add(op("aten.neg.default", new, to=V4))]

    def build(add: Any, start: SSAValue, x: SSAValue) -> Sequence[SSAValue]:
        made = ScanOp.build(
            operands=[[start], [x], []],
            result_types=[[V4, rows]],
            regions=[region([V4, V4], body)],
        )
        add(made)
        return list(made.results)

    run = session(program([V4, rows], build))
    for _ in range(2):
        start, x = torch.randn(4), torch.randn(5, 4)
        total, stacked = run.run(start, x)
        expected = start + x.cumsum(0)
        torch.testing.assert_close(total, expected[-1])
        torch.testing.assert_close(stacked, -expected)


_EXPRESSIONS: list[tuple[str, Callable[[int], Any]]] = [
    ("add", lambda n: n + 5),
    ("sub", lambda n: n - 5),
    ("mul", lambda n: n * 5),
    ("floordiv", lambda n: n // 5),
    ("truediv", lambda n: n / 5),
    ("mod", lambda n: n % 5),
    ("eq", lambda n: n == 5),
    ("ne", lambda n: n != 5),
    ("lt", lambda n: n < 5),
    ("ge", lambda n: n >= 5),
    ("max", lambda n: max(n, 5)),
    ("min", lambda n: min(n, 5)),
    ("sum", lambda n: n + 5),
]


@pytest.mark.parametrize(("name", "expected"), _EXPRESSIONS, ids=[n for n, _ in _EXPRESSIONS])
def test_arithmetic_on_sizes_is_pythons(name: str, expected: Callable[[int], Any]) -> None:
    type_ = tensor(["s0"], f32)
    kind = {bool: BoolType, float: FloatType, int: IntType}[type(expected(7))]

    def build(add: Any, x: SSAValue) -> Sequence[SSAValue]:
        size = add(op("aten.sym_size.int", x, 0, to=IntType("s0")))
        cls = next(c for c in OPS.values() if c.name == f"sym.{name}")
        arguments = [[size, 5]] if name == "sum" else [size, 5]
        if name == "sum":
            from xdsl.dialects.builtin import ArrayAttr

            from stepwell.dialects.aten.attributes import DYNAMIC, scalar_attribute

            listed = ArrayAttr([ArrayAttr([DYNAMIC, scalar_attribute(5)])])
            return [
                add(
                    cls.create(
                        operands=[size],
                        result_types=[kind("e")],
                        properties={"arguments": listed},
                    )
                )
            ]
        return [add(cls.make(arguments, kind("e")))]

    prog = program([type_], build)
    set_signature(prog.method(), Signature((Port("x"),), (Port("y"),), ranges={"s0": (1, 20)}))
    run = session(prog)
    for n in (1, 5, 7, 20):
        (value,) = run.run(torch.zeros(n))
        assert value == expected(n) and type(value) is type(expected(n))


def test_bitwise_and_of_sizes_is_refused() -> None:
    def build(add: Any, x: SSAValue) -> Sequence[SSAValue]:
        size = add(op("aten.sym_size.int", x, 0, to=IntType("s0")))
        cls = next(c for c in OPS.values() if c.name == "sym.and")
        return [add(cls.make([size, 3], IntType("e")))]

    prog = program([tensor(["s0"], f32)], build)
    with pytest.raises(UnsupportedError, match=r"sym\.and"):
        emit(prog)


def test_an_output_in_any_dim_order_comes_out_in_it() -> None:
    type_ = tensor([2, 3, 4], f32)
    prog = program([type_], lambda add, x: [add(op("aten.exp.default", x, to=type_))])
    set_signature(prog.method(), Signature((Port("x"),), (Port("y", (2, 0, 1)),)))
    x = torch.randn(2, 3, 4)
    (out,) = run_pte(to_bytes(emit(prog)), [x])
    torch.testing.assert_close(out, x.exp())
    assert out.stride() == (3, 1, 6)


def test_map_and_scan_take_rows_of_open_sizes_that_change_between_calls() -> None:
    class Rows(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            doubled = torch_map(lambda row: row * 2 + 1, x)
            total, sums = torch_scan(lambda a, row: (a + row, a * row), x[0] * 0, x, dim=0)
            return doubled, total, sums

    from torch._higher_order_ops.map import map as torch_map
    from torch._higher_order_ops.scan import scan as torch_scan

    size = torch.export.Dim
    shapes = ({0: size("b", min=1, max=7), 1: size("t", min=1, max=9)},)
    exported = torch.export.export(
        Rows(), (torch.randn(5, 3, 4),), dynamic_shapes=shapes, strict=False
    )
    session = PteSession.load(stepwell.lower(exported, "xnnpack").to_pte())
    for rows, length in ((5, 3), (3, 9), (7, 1), (1, 1), (7, 9)):
        x = torch.randn(rows, length, 4)
        doubled, total, sums = session.run(x)
        assert torch.equal(doubled, x * 2 + 1)
        before, given = torch.zeros(length, 4), []
        for row in x:
            given.append(before * row)
            before = before + row
        assert torch.equal(total, before) and torch.equal(sums, torch.stack(given))


def test_a_remainder_has_the_sign_of_its_divisor() -> None:
    class Padded(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            rest = x * ((x.shape[1] - 9) % 5)
            return torch.nn.functional.pad(x, (0, (-x.shape[1]) % 4)), rest

    shapes = ({1: torch.export.Dim("t", min=1, max=19)},)
    exported = torch.export.export(Padded(), (torch.ones(2, 6),), dynamic_shapes=shapes)
    lowered = stepwell.lower(exported, "xnnpack")
    for length in (1, 6, 8, 19):
        x = torch.randn(2, length)
        for result, wanted in zip(lowered.run(x), Padded()(x), strict=True):
            assert torch.equal(result, wanted)
