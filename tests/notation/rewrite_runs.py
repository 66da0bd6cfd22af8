"""Run a rewrite on a method in short form: what it makes is verified, interpreted and compared."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from short_ir import program_text
from xdsl.dialects.builtin import TensorType

import stepwell.dialects  # noqa: F401  (makes the dialects known)
from stepwell.dialects.quant.types import quantization, storage_dtype
from stepwell.ir.context import Context
from stepwell.ir.core import StateOp, WeightOp
from stepwell.ir.diagnostics import VerificationError
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.cleanup import RemoveDeadCode
from stepwell.ir.rewriting.rewrite import Bound, History, Pass, Rewrite, run_rewrites
from stepwell.ir.signature import get_signature
from stepwell.ir.syntax.text import to_text
from stepwell.ir.types import dims, element
from stepwell.ir.verification import find_problems
from stepwell.ir.weights import WeightStore
from stepwell.validation.compare import tolerated
from stepwell.validation.recording import NotRecorded, record
from stepwell.validation.samples import Sample
from stepwell.validation.step_observer import Watcher


def random_tensor(type_: Any, name: str = "", size: int = 5) -> torch.Tensor:
    """A tensor of a type; a suffix of `name` such as `#ones` or `#causal` chooses its elements."""
    shape = [
        d if isinstance(d, int) else d.evaluate(dict.fromkeys(d.symbols, size)) for d in dims(type_)
    ]
    if (held := quantization(type_)) is not None:
        return torch.randint(held.low, held.high + 1, shape, dtype=storage_dtype(held))
    dtype = torch_dtype(element(type_))
    if "#ones" in name or "#zeros" in name:
        return torch.full(shape, "#ones" in name, dtype=dtype)
    if "#rolled" in name:
        return torch.arange(shape[0]).roll(1)
    if "#squares" in name:
        return torch.arange(shape[0]).square() % 13
    if "#causal" in name:
        allowed = torch.ones(shape, dtype=torch.bool).tril()
        return (
            allowed if dtype == torch.bool else torch.zeros(shape).masked_fill(~allowed, -torch.inf)
        )
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype)
    if not dtype.is_floating_point:
        return torch.randint(0, 3, shape, dtype=dtype)
    real = torch.rand(shape) + 0.5 if "#positive" in name else torch.randn(shape)
    return real.to(dtype)


def program_of(text: str) -> Program:
    """A program of a text (`short_ir`) whose weights are random, made from their types."""
    program = Program(program_text(text), WeightStore())
    for op in program.module.walk():
        if isinstance(op, WeightOp | StateOp) and op.key.data not in program.weights:
            program.weights.add(op.key.data, random_tensor(op.result.type, op.key.data))
    check(program)
    return program


def check(program: Program) -> None:
    """Verify all but level membership: between two levels a program holds ops of both."""
    problems = list(find_problems(program.module, program.weights, membership=False))
    if problems:
        raise VerificationError(problems)


def inputs_of(program: Program) -> list[torch.Tensor]:
    """Random run-time inputs of the only method, in the dim orders that it declares."""
    func = program.method()
    taken = func.function_type.inputs.data
    assert all(isinstance(type_, TensorType) for type_ in taken)
    ports = get_signature(func).runtime_inputs
    return [
        laid_out(random_tensor(type_), port.dim_order)
        for type_, port in zip(taken, ports, strict=True)
    ]


def laid_out(tensor: torch.Tensor, order: tuple[int, ...] | None) -> torch.Tensor:
    """The same elements, dense in a dim order."""
    if order is None:
        return tensor
    back = [order.index(axis) for axis in range(len(order))]
    return tensor.permute(order).contiguous().permute(back)


def assert_within(bound: Bound, before: Sequence[Any], after: Sequence[Any]) -> None:
    """Outputs have the same shapes and dtypes, and values within a bound; NaN equals NaN."""
    for one, other in zip(before, after, strict=True):
        if isinstance(one, int | float):
            assert one == other
            continue
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        torch.testing.assert_close(
            other,
            one,
            rtol=bound.relative,
            atol=bound.absolute + (0 if one.dtype.is_floating_point else bound.units),
            equal_nan=True,
        )


class Applied:
    """A program after a rewrite: its text, how often the rewrite applied, and why it refused."""

    def __init__(self, program: Program, count: int, history: History) -> None:
        self.program, self.count, self.history = program, count, history

    @property
    def text(self) -> str:
        return to_text(self.program.module)

    @property
    def reasons(self) -> list[str]:
        return [record.reason for record in self.history.refusals.values()]

    def ops(self) -> list[str]:
        """The names of the ops of the method in order, without weights and the return."""
        block = self.program.method().body.block
        names = [op.name for op in block.ops]
        return [name for name in names if not name.startswith(("stepwell.", "func."))]


Given = Rewrite[Any] | Pass | ModuleType
"""A rewrite, a pass, or a module: its rules, or all lowerings of its file."""


def applied(text: str, *given: Given, inputs: Any = None) -> Applied:
    """Run rewrites together on a text; their result is interpreted and compared."""
    listed = [[r() for r in s.RULES] if isinstance(s, ModuleType) else [s] for s in given]
    steps = [step for part in listed for step in part]
    program = program_of(text)
    inputs = inputs_of(program) if inputs is None else inputs
    before = program.run(*inputs)
    history = History()
    func = program.method()
    recording = record(func, program.weights, Sample("given", tuple(inputs), True))
    history.watch = watch = Watcher(program, history, {func.sym_name.data: [recording]})
    rewrites = [step for step in steps if isinstance(step, Rewrite)]
    count = run_rewrites(program, rewrites, history)
    for step in steps:
        if isinstance(step, Pass):
            count += step.apply(program, history)
    RemoveDeadCode().apply(program, history)
    check(program)
    assert not watch.findings, watch.findings[0]
    bound = replace(
        tolerated([step.bound for step in steps]), units=sum(step.bound.units for step in steps)
    )
    if any(step.bound.derived for step in steps) and watch.trusted:
        with suppress(NotRecorded):  # From the values that followed each application.
            seen = recording.followed(program.method())
            before = [seen[f"output {index}"] for index in range(len(before))]
    assert_within(bound, before, program.run(*inputs))
    return Applied(program, count, history)


def queried(
    text: str, rewrite: Rewrite[Any] | ModuleType, target: str = "", **options: str
) -> tuple[int, list[str]]:
    """How often a rewrite applies in a lowering to a target with options, and why it does not.

    Nothing is run.
    """
    program, history = program_of(text), History()
    program.context = Context(target, options)
    listed = [r() for r in rewrite.RULES] if isinstance(rewrite, ModuleType) else [rewrite]
    count = run_rewrites(program, listed, history)
    check(program)
    return count, [record.reason for record in history.refusals.values()]
