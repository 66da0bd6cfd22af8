"""Run-time numbers and control flow become the runtime's scalar kernels and jumps."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from eager import Model, assert_as_eager, exported, lower
from rewrite_runs import program_of
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

from stepwell.backends.executorch.decompose import DecomposeForKernels
from stepwell.backends.executorch.running.runner import PteSession, run_pte
from stepwell.backends.executorch.writing.emit import emit
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import run_rewrites
from stepwell.ir.signature import Port, Signature, set_signature
from stepwell.translate.importer.from_torch import from_exported_program


def session(program: Program) -> PteSession:
    """A program on kernels alone."""
    run_rewrites(program, (DecomposeForKernels(),))
    return PteSession.load(to_bytes(emit(program)))


V4 = torch.arange(4.0)
REGIONS: dict[str, tuple[Model, list[tuple[torch.Tensor, ...]]]] = {
    "cond": (
        lambda x, p: (torch.cond(p, lambda x: x.exp(), lambda x: x.sin().neg(), (x,)) * 2, x),
        [(V4 + 1, torch.tensor(choice)) for choice in (True, False, True)],
    ),
    "map": (
        lambda x, y: torch_map(lambda row, other: row * other, x, y),
        [(torch.randn(3, 4), V4), (torch.randn(3, 4), V4 + 1)],
    ),
    "scan": (
        lambda start, x: scan(lambda total, row: (total + row, -(total + row)), start, x),
        [(V4, torch.randn(5, 4)), (V4 + 1, torch.randn(5, 4))],
    ),
    "while loop": (
        lambda a, b, limit: while_loop(
            lambda a, b: b.sum() < limit, lambda a, b: (b.clone(), a + b), (a, b)
        ),
        [(torch.ones(4), V4, torch.tensor(limit)) for limit in (1000.0, 3.0, 50.0)],
    ),
}


@pytest.mark.parametrize("name", REGIONS)
def test_regions_compute_what_eager_pytorch_does_at_every_call(name: str) -> None:
    model, calls = REGIONS[name]
    program = from_exported_program(exported(model, *calls[0]))
    running = session(program.clone())
    for inputs in calls:
        assert_as_eager(running, model, *inputs)
        assert_as_eager(program, model, *inputs)


T, B, S = "tensor<4xf32>", "tensor<i1>", "tensor<f32>"
INPUT_BACK = f"""
func.func @forward(%x: {T}, %y: {T}, %p: {B}) -> {T} {{
  %z = control.cond %p(%x, %y) : ({B}, {T}, {T}) -> {T} {{
  ^bb0(%u: {T}, %v: {T}):
    control.yield %u : {T}
  }} else {{
  ^bb0(%u2: {T}, %v2: {T}):
    control.yield %v2 : {T}
  }}
  func.return %z : {T}
}}"""
CHANGED_PLACES = f"""
func.func @forward(%x: {T}, %y: {T}, %limit: {S}) -> ({T}, {T}) {{
  %a, %b = control.while_loop(%x, %y) with(%limit) : ({T}, {T}), ({S}) -> ({T}, {T}) {{
  ^bb0(%c: {T}, %d: {T}, %l: {S}):
    %sum = aten.sum.default(%d) : ({T}) -> {S}
    %lt = aten.lt.Tensor(%sum, %l) : ({S}, {S}) -> {B}
    control.yield %lt : {B}
  }} do {{
  ^bb0(%e: {T}, %f: {T}, %m: {S}):
    %add = aten.add.Tensor(%e, %f) : ({T}, {T}) -> {T}
    control.yield %f, %add : {T}, {T}
  }}
  func.return %a, %b : {T}, {T}
}}"""


def test_a_branch_may_give_an_input_back() -> None:
    running, x, y = session(program_of(INPUT_BACK)), torch.randn(4), torch.randn(4)
    assert torch.equal(running.run(x, y, torch.tensor(True))[0], x)
    assert torch.equal(running.run(x, y, torch.tensor(False))[0], y)


def test_a_while_loop_carries_values_that_change_places() -> None:
    running = session(program_of(CHANGED_PLACES))
    for limit in (1000.0, 3.0, 50.0):
        a, b = torch.ones(4), torch.arange(4.0)
        outs = running.run(a, b, torch.tensor(limit))
        while b.sum() < limit:
            a, b = b, a + b
        assert torch.equal(outs[0], a) and torch.equal(outs[1], b)


EXPRESSIONS: dict[str, Callable[[int], Any]] = {
    "add": lambda n: n + 5,
    "sub": lambda n: n - 5,
    "mul": lambda n: n * 5,
    "floordiv": lambda n: n // 5,
    "truediv": lambda n: n / 5,
    "mod": lambda n: n % 5,
    "eq": lambda n: n == 5,
    "ne": lambda n: n != 5,
    "lt": lambda n: n < 5,
    "ge": lambda n: n >= 5,
    "max": lambda n: max(n, 5),
    "min": lambda n: min(n, 5),
    "sum": lambda n: n + 5,
}


def sized(name: str, kind: type) -> Program:
    """An expression of the length of a vector and of 5."""
    given = "[[#aten.dyn, 5 : i64]]" if name == "sum" else "[#aten.dyn, 5 : i64]"
    type_ = f'!stepwell.{kind.__name__}<"e">'
    program = program_of(
        f'%n: int<s0>; %y = sym.{name} {given}(%n) : (!stepwell.int<"s0">) -> {type_}'
    )
    signature = Signature((Port("x"),), (Port("y"),), ranges={"s0": (1, 20)})
    set_signature(program.method(), signature)
    return program


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_arithmetic_on_sizes_is_pythons(name: str) -> None:
    expected = EXPRESSIONS[name]
    running = session(sized(name, type(expected(7))))
    for n in (1, 5, 7, 20):
        (value,) = running.run(torch.zeros(n))
        assert value == expected(n) and type(value) is type(expected(n))


def test_bitwise_and_of_sizes_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"sym\.and"):
        emit(sized("and", int))


def test_an_output_in_any_dim_order_comes_out_in_it() -> None:
    program = program_of("%y = aten.exp.default(%x: f32[2, 3, 4])")
    set_signature(program.method(), Signature((Port("x"),), (Port("y", (2, 0, 1)),)))
    x = torch.randn(2, 3, 4)
    (out,) = run_pte(to_bytes(emit(program)), [x])
    torch.testing.assert_close(out, x.exp())
    assert out.stride() == (3, 1, 6)


def test_map_and_scan_take_rows_of_open_sizes_that_change_between_calls() -> None:
    def mapped(x: torch.Tensor) -> Any:
        doubled = torch_map(lambda row: row * 2 + 1, x)
        total, sums = scan(lambda a, row: (a + row, a * row), x[0] * 0, x, dim=0)
        return doubled, total, sums

    sizes = {0: Dim("b", min=1, max=7), 1: Dim("t", min=1, max=9)}
    running = PteSession.load(lower(mapped, torch.randn(5, 3, 4), dynamic=sizes).to_pte())
    for rows, length in ((5, 3), (3, 9), (7, 1), (1, 1), (7, 9)):
        assert_as_eager(running, mapped, torch.randn(rows, length, 4))


def test_a_remainder_has_the_sign_of_its_divisor() -> None:
    def padded(x: torch.Tensor) -> Any:
        rest = x * ((x.shape[1] - 9) % 5)
        return torch.nn.functional.pad(x, (0, (-x.shape[1]) % 4)), rest

    lowered = lower(padded, torch.ones(2, 6), dynamic={1: Dim("t", min=1, max=19)})
    for length in (1, 6, 8, 19):
        assert_as_eager(lowered, padded, torch.randn(2, length), rtol=0, atol=0)
