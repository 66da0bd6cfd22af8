"""`reduce`: delta debugging of a failing pass to a minimal program.

Any part of a method is a method again: the results of removed ops become arguments, and unused
values are returned. Ops are therefore removed in ever shorter sequences, as in Lithium and `ddmin`
(Zeller and Hildebrandt, Simplifying and isolating failure-inducing input, 2002), as long as the
rest fails in the same way: the same pass with the same failure, or as a user's command defines it.
"""

import shlex
import subprocess
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.validation.reducer.reproducer import Header, Reproducer, fails

Interesting = Callable[[Program], bool]
Progress = Callable[[int, int], None]
"""Called with (number of ops left, number of programs tried)."""

_OF_WHOLE = ("stepwell.inputs", "stepwell.outputs", "stepwell.in_spec", "stepwell.out_spec")


@dataclass(frozen=True)
class Reduced:
    """The result of a reduction.

    Attributes:
        reproducer: the reduced reproducer.
        before, after: the number of ops before and after.
        tried: the number of programs that were tried.
    """

    reproducer: Reproducer
    before: int
    after: int
    tried: int


def reduce(
    reproducer: Reproducer,
    interesting: Interesting | None = None,
    progress: Progress | None = None,
) -> Reduced:
    """Reduce a reproducer to a smaller one that still fails.

    Args:
        reproducer: the reproducer to reduce; it is not modified.
        interesting: whether a program still shows the failure; by default, whether the pass fails
            as the header states.
        progress: called for each program that is tried.

    Raises:
        StepwellError: the complete program does not show the failure.
    """
    header = reproducer.header
    test = interesting
    if test is None:
        header = _with_failure(reproducer)
        test = _fails_as(header)
    elif not test(reproducer.program):
        raise StepwellError(
            "the complete program does not show the failure",
            help="the command must exit with 0 on it",
        )
    search = _Search(test, progress)
    program = search.methods(reproducer.program)
    for name in list(program.methods):
        program = search.ops(program, name)
    before, after = _count(reproducer.program), _count(program)
    return Reduced(Reproducer(program, header), before, after, search.tried)


def by_command(command: str, header: Header) -> Interesting:
    """Return a predicate: whether a command exits with 0 on a program's file (`{}` in the
    command).
    """
    words = shlex.split(command)

    def interesting(program: Program) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "candidate.mlir"
            Reproducer(program, header).save(path)
            told = [word.replace("{}", str(path)) for word in words]
            told += [] if "{}" in command else [str(path)]
            return subprocess.run(told, capture_output=True, check=False).returncode == 0

    return interesting


def _fails_as(header: Header) -> Interesting:
    """Return a predicate: whether the reproducer's pass fails with the same error on a program."""
    steps = header.steps()

    def interesting(program: Program) -> bool:
        found = fails(program, steps)
        return found is not None and found.signature == header.fails

    return interesting


def _with_failure(reproducer: Reproducer) -> Header:
    """Return the header with the failure of the pass, which is determined by running the pass."""
    found = fails(reproducer.program, reproducer.header.steps())
    if found is None:
        raise StepwellError(
            "the reproducer's pass does not fail on its program",
            help="--test COMMAND defines another failure: COMMAND exits with 0 if it occurs",
        )
    return replace(reproducer.header, fails=found.signature)


def _count(program: Program) -> int:
    return sum(1 for func in program.methods.values() for _ in func.body.block.ops)


@dataclass
class _Search:
    interesting: Interesting
    progress: Progress | None
    tried: int = 0

    def accepts(self, program: Program) -> bool:
        self.tried += 1
        if self.progress is not None:
            self.progress(_count(program), self.tried)
        try:
            return self.interesting(program)
        except StepwellError:
            return False

    def methods(self, program: Program) -> Program:
        """Remove methods that the failure does not need."""
        for name in list(program.methods):
            if len(program.methods) > 1:
                rest = program.clone()
                rest.method(name).detach()
                program = rest if self.accepts(rest) else program
        return program

    def ops(self, program: Program, method: str) -> Program:
        """Remove ops of a method in ever shorter sequences, until every remaining op is needed."""
        kept = list(range(len(list(program.method(method).body.block.ops)) - 1))
        best = program
        size = max(len(kept) // 2, 1)
        while kept:
            at, shrunk = 0, False
            while at < len(kept):
                rest = kept[:at] + kept[at + size :]
                candidate = cut(program, method, rest)
                if self.accepts(candidate):
                    kept, best, shrunk = rest, candidate, True
                else:
                    at += size
            if size == 1 and not shrunk:
                break
            size = size if shrunk and size == 1 else max(size // 2, 1)
        return best


def cut(program: Program, method: str, kept: Collection[int]) -> Program:
    """Return the program with only the ops of a method that have these numbers in its block."""
    copy = program.clone()
    func = copy.method(method)
    block = func.body.block
    last = block.last_op
    if last is not None and isinstance(last, ReturnOp):
        last.detach()
        last.erase()
    body, wanted = list(block.ops), set(kept)
    for number in range(len(body) - 1, -1, -1):
        if number not in wanted:
            _leave_out(body[number], func)
    unread: list[SSAValue] = [r for op in block.ops for r in op.results if r.first_use is None]
    block.add_op(ReturnOp(*unread))
    for argument in reversed(block.args):
        if argument.first_use is None:
            block.erase_arg(argument)
    inputs, outputs = [a.type for a in block.args], [value.type for value in unread]
    func.properties["function_type"] = FunctionType.from_lists(inputs, outputs)
    for name in _OF_WHOLE:
        func.attributes.pop(name, None)
    for name in ("arg_attrs", "res_attrs"):
        func.properties.pop(name, None)
    return copy


def _leave_out(op: Operation, func: FuncOp) -> None:
    """Remove an op from a method; those of its results that are used become arguments of the
    method.
    """
    block = func.body.block
    for result in op.results:
        if result.first_use is not None:
            argument = block.insert_arg(result.type, len(block.args))
            argument.name_hint = result.name_hint
            result.replace_all_uses_with(argument)
    op.detach()
    op.erase()
