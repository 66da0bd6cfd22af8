"""Record a program after every pass of its lowering, as lines that can be compared.

Passes change a program in place, so an unchanged op is the same object before and after a pass.
Each op gets a number when it is first seen, and the difference of two levels is a difference of
sets of numbers, without comparing text.

A location names a file without its folder. The folder is that of a loaded module, or of a model
given as `file.py:callable`. An ambiguous name is ignored.
"""

from __future__ import annotations

import linecache
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation

from stepwell.inspection.viewer.applications import Application, ApplicationRecorder
from stepwell.inspection.viewer.memory import MemoryPlan
from stepwell.inspection.viewer.weights import Numbers, WeightRow, weight_rows
from stepwell.ir.diagnostics import module_path, node_name, op_name, source_line
from stepwell.ir.options import OptionValue
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass, Step, step_name
from stepwell.ir.syntax.printer import TextPrinter
from stepwell.lowering import Lowered, lower_as_far
from stepwell.pipelines.pass_pipeline.pipeline_text import prepared
from stepwell.program import from_exported_program
from stepwell.report.outcomes import Fate, fates
from stepwell.targets.table import find_target
from stepwell.targets.target import PipelineLike

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_AROUND = 4
"""The number of lines shown before and after the line of an op."""


@dataclass(frozen=True)
class SourceExcerpt:
    """The lines of a source file from which ops come, with some context lines.

    Attributes:
        path: the file's path on this machine.
        lines: line number → text.
    """

    path: str
    lines: dict[int, str]


def sources(places: Iterable[str], folder: Path | None = None) -> dict[str, SourceExcerpt]:
    """Return the text around each source location.

    Args:
        places: locations of ops, such as `model.py:41`.
        folder: the folder in which files are searched first.
    """
    wanted: dict[str, set[int]] = defaultdict(set)
    for place in places:
        name, _, number = place.rpartition(":")
        if name and number.isdigit():
            wanted[name].add(int(number))
    return {
        name: SourceExcerpt(str(path), _lines(path, numbers))
        for name, numbers in wanted.items()
        if (path := _find(name, folder)) is not None
    }


def _find(name: str, folder: Path | None) -> Path | None:
    if folder is not None and (folder / name).is_file():
        return (folder / name).resolve()
    files = {
        file
        for module in list(sys.modules.values())
        if (file := getattr(module, "__file__", None)) and Path(file).name == name
    }
    return Path(files.pop()).resolve() if len(files) == 1 else None


def _lines(path: Path, numbers: Iterable[int]) -> dict[int, str]:
    text = linecache.getlines(str(path))
    shown = {
        near
        for number in numbers
        for near in range(number - _AROUND, number + _AROUND + 1)
        if 1 <= near <= len(text)
    }
    return {number: text[number - 1].rstrip("\n") for number in sorted(shown)}


@dataclass(frozen=True)
class OpLine:
    """A line of the page: one op of the program at one level.

    Attributes:
        op: the number of the op, the same at every level if it is the same object; -1 for braces
            and signatures.
        text: the printed op, without location.
        depth: the nesting depth.
        name, node, source, path: op name, node name, source line and module of the model.
        delegate: the number of the delegate that contains it; -1 outside.
    """

    op: int
    text: str
    depth: int
    name: str = ""
    node: str | None = None
    source: str | None = None
    path: str | None = None
    delegate: int = -1


@dataclass(frozen=True)
class PassSnapshot:
    """The program after one pass, and the applications of rewrites in that pass."""

    name: str
    applied: int
    lines: tuple[OpLine, ...]
    applications: tuple[Application, ...] = ()


@dataclass(frozen=True)
class Story:
    """The content of the viewer's page.

    Attributes:
        title: the model's name.
        levels: the source program, and the program after each pass that changed it.
        weights: the weights of the last level.
        fates: the fate of each op of the model; empty without a target.
        lowered: the lowering; None without a target.
        notes: further tables, title → text (a check, a memory plan).
        latency: the seconds of a call, if measured.
    """

    title: str
    levels: tuple[PassSnapshot, ...]
    weights: tuple[WeightRow, ...]
    fates: tuple[Fate, ...] = ()
    lowered: Lowered | None = None
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    latency: float | None = None
    times: Mapping[str, float] = field(default_factory=dict[str, float])
    """Node of the model → its milliseconds per call, if measured."""
    sources: Mapping[str, SourceExcerpt] = field(default_factory=dict[str, SourceExcerpt])
    """File name in locations → its text, if found."""
    memory: tuple[MemoryPlan, ...] = ()
    """The arenas of the artifact's methods, and the workspaces of its delegates."""
    added: float = 0.0
    """Milliseconds per call in ops without a node of the model."""
    differences: Mapping[str, float] = field(default_factory=dict[str, float])
    """Node of the model → the difference of the lowered program's value from eager PyTorch's."""
    overlays: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Name → user-supplied numbers, as Model Explorer's node data."""
    numbers: Mapping[str, Numbers] = field(default_factory=dict[str, Numbers])
    """Key of a weight → statistics of its elements, if computed."""
    beside: int = -1
    """The level that the graph compares with the last one; -1 for none."""


def tell(
    program: Program | ExportedProgram | Mapping[str, ExportedProgram],
    target: str | None = None,
    pipeline: PipelineLike | None = None,
    *,
    title: str = "program",
    notes: Mapping[str, str] | None = None,
    latency: float | None = None,
    folder: Path | None = None,
    **options: OptionValue,
) -> Story:
    """Lower a program, and record it as text after each pass. Without a target, record only the
    program.

    Args:
        program, target, pipeline, options: as for `stepwell.lower`; the program is not changed.
        title, notes, latency: the texts and figures that the page shows.
        folder: the folder of the model's source files, if they are not loaded as modules.
    """
    source = program if isinstance(program, Program) else from_exported_program(program)
    numbers: dict[Operation, int] = {}
    more = dict(notes or {})
    if target is None:
        level = snapshot(source, "program", 0, numbers)
        return Story(
            title,
            (level,),
            tuple(weight_rows(source)),
            notes=more,
            latency=latency,
            sources=_sources(level, folder),
        )
    levels: list[PassSnapshot] = []
    recorder = ApplicationRecorder(numbers)

    def look(now: Program, history: History) -> None:
        levels.append(snapshot(now, "program", 0, numbers))
        history.watch = recorder

    def observe(step: Step, now: Program, applied: int) -> None:
        if applied:
            level = snapshot(now, step_name(step), applied, numbers)
            levels.append(replace(level, applications=tuple(recorder.made)))
            recorder.made.clear()

    chosen_target = find_target(target)
    given = chosen_target.chosen(options)
    steps = prepared(chosen_target, pipeline, given)
    watched = replace(steps, steps=(_Look(look), *steps.steps))
    lowered = lower_as_far(
        source, target, watched, observer=observe, **chosen_target.beyond_pipeline(given)
    )
    report = replace(lowered.report, steps=lowered.report.steps[1:])
    lowered = replace(lowered, report=report)
    return Story(
        title,
        tuple(levels),
        tuple(weight_rows(lowered.program)),
        tuple(fates(source, lowered.program, lowered.target, lowered.report)),
        lowered,
        more,
        latency,
        sources=_sources(levels[0], folder),
    )


def _sources(level: PassSnapshot, folder: Path | None) -> dict[str, SourceExcerpt]:
    return sources(dict.fromkeys(line.source for line in level.lines if line.source), folder)


@dataclass(frozen=True)
class _Look(Pass):
    """A pass that calls a function with the source program and the history, and changes nothing."""

    show: Callable[[Program, History], None]
    name: ClassVar[str] = "look"

    def apply(self, program: Program, history: History) -> int:
        self.show(program, history)
        return 0


class _Lines(TextPrinter):
    """A printer whose text is consumed in pieces."""

    def take(self) -> str:
        text = self._out.getvalue().strip()
        self._out = StringIO()
        return text


def snapshot(
    program: Program, name: str, applied: int, numbers: dict[Operation, int]
) -> PassSnapshot:
    """Return the lines of a program; new ops get the next numbers."""
    lines: list[OpLine] = []
    delegates = 0
    for func in program.methods.values():
        printer = _Lines()
        lines.append(OpLine(-1, _signature(func, printer), 0))
        for line, starts in _block_lines(func.body.block, printer, numbers, 1, -1, delegates):
            delegates += starts
            lines.append(line)
        lines.append(OpLine(-1, "}", 0))
    return PassSnapshot(name, applied, tuple(lines))


def _signature(func: FuncOp, printer: _Lines) -> str:
    arguments = ", ".join(
        f"{printer.value_name(arg)}: {printer.spelled(arg.type)}" for arg in func.body.block.args
    )
    printer.take()
    results = ", ".join(printer.spelled(type_) for type_ in func.function_type.outputs.data)
    printer.take()
    return f"func.func @{func.sym_name.data}({arguments}) -> ({results}) {{"


def _block_lines(
    block: Block,
    printer: _Lines,
    numbers: dict[Operation, int],
    depth: int,
    delegate: int,
    delegates: int,
) -> Iterator[tuple[OpLine, bool]]:
    for op in block.ops:
        number = numbers.setdefault(op, len(numbers))
        about = (op_name(op), node_name(op.location), source_line(op.location))
        path = module_path(op.location)
        if not op.regions:
            printer.print_op(op)
            yield OpLine(number, printer.take(), depth, *about, path, delegate), False
            continue
        is_delegate = "delegate" in op.name
        inside = delegates if is_delegate else delegate
        delegates += is_delegate
        results = ", ".join(printer.value_name(result) for result in op.results)
        operands = ", ".join(printer.value_name(value) for value in op.operands)
        head = f"{results + ' = ' if results else ''}{op_name(op)}({operands}) {{"
        printer.take()
        yield OpLine(number, head, depth, *about, path, inside), is_delegate
        for region in op.regions:
            for inner in region.blocks:
                if inner.args:
                    text = ", ".join(
                        f"{printer.value_name(a)}: {printer.spelled(a.type)}" for a in inner.args
                    )
                    printer.take()
                    yield OpLine(-1, f"^({text}):", depth, delegate=inside), False
                for line, starts in _block_lines(
                    inner, printer, numbers, depth + 1, inside, delegates
                ):
                    delegates += starts
                    yield line, starts
        yield OpLine(-1, "}", depth, delegate=inside), False
