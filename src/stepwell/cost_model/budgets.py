"""Budgets: what a program may cost, in a committed file that a build is held to.

    [[program]]
    model = "net.py:make"
    target = "xnnpack"
    delegates = 1
    outside = 0
    bytes = 1048576
    arena = 65536
    latency_ratio = 0.6

A figure that is not there is not looked at. `budget` holds one lowering to such figures in Python.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from stepwell.ir.diagnostics import Problem, StepwellError
from stepwell.ir.platform.files import read_bytes, write_atomically
from stepwell.lowering import Lowered

FILE = Path("stepwell-budget.toml")
HEAD = """\
# What each program may cost at most: `stepwell budget` fails where it costs more.
# `stepwell budget MODEL --write` sets those of one program anew, `--write` alone those of all.
"""


@dataclass(frozen=True)
class Figures:
    """What a program costs, or may cost; None is not known, or not looked at.

    Attributes:
        delegates: parts that a backend runs as a whole.
        outside: ops that the runtime's own kernels run.
        bytes: of the artifact.
        arena: bytes planned for activations, of the method that has most; of a `.pte`.
        latency_ratio: the time of a call, of one with the program of ExecuTorch's own flow.
    """

    delegates: int | None = None
    outside: int | None = None
    bytes: int | None = None
    arena: int | None = None
    latency_ratio: float | None = None

    def passed(self, limits: Figures) -> dict[str, tuple[float, float]]:
        """Each figure that is greater than its limit: (limit, figure)."""
        pairs = {one.name: (getattr(limits, one.name), getattr(self, one.name)) for one in FIELDS}
        return {
            name: (limit, figure)
            for name, (limit, figure) in pairs.items()
            if limit is not None and figure is not None and figure > limit
        }


FIELDS = fields(Figures)


@dataclass(frozen=True)
class Budget:
    """What one program may cost.

    Attributes:
        model: as commands take it (`net.py:make`, `net.pt2`), or a `.pte` that somebody made.
        target, quantize, options: how it is lowered; nothing is, of a `.pte`.
        limits: its figures at most.
    """

    model: str
    target: str = "xnnpack"
    quantize: str | None = None
    options: tuple[str, ...] = ()
    limits: Figures = Figures()

    @property
    def key(self) -> tuple[str, str, str | None, tuple[str, ...]]:
        """What tells it from the others of a file."""
        return self.model, self.target, self.quantize, self.options

    def __str__(self) -> str:
        parts = [self.model, "" if self.model.endswith(".pte") else f"-t {self.target}"]
        parts += [f"--quantize {self.quantize}"] if self.quantize else []
        return " ".join(part for part in [*parts, *(f"-O {o}" for o in self.options)] if part)


def measure(lowered: Lowered) -> Figures:
    """What a lowering costs; its latency is a matter of another measurement."""
    data = lowered.artifact
    is_pte = lowered.target.artifact == "pte"
    figures = Figures(lowered.report.delegates, lowered.report.outside.total(), len(data))
    return replace(figures, arena=arena_of(data)) if is_pte else figures


def measure_pte(data: bytes) -> Figures:
    """What a `.pte` costs, whoever made it: its calls of delegates and of kernels are counted."""
    from stepwell.backends.executorch.container import DelegateCall, KernelCall
    from stepwell.backends.executorch.reading.read import read_container

    steps = [step for method in read_container(data).methods for step in method.instructions]
    return Figures(
        sum(isinstance(step, DelegateCall) for step in steps),
        sum(isinstance(step, KernelCall) for step in steps),
        len(data),
        arena_of(data),
    )


def arena_of(data: bytes) -> int:
    """Bytes that a `.pte` plans for activations, of the method that has most."""
    from stepwell.backends.executorch.reading.read import read_container

    return max((sum(method.arena_sizes[1:]) for method in read_container(data).methods), default=0)


def budget(
    lowered: Lowered,
    *,
    delegates: int | None = None,
    outside: int | None = None,
    bytes: int | None = None,
    arena: int | None = None,
) -> Figures:
    """Hold a lowering to what it may cost, in a test of one's own.

        stepwell.budget(stepwell.lower(exported, "xnnpack"), delegates=1, outside=0)

    Args:
        lowered: by `stepwell.lower`.
        delegates, outside, bytes, arena: at most so many (`Figures`); None: any.

    Returns:
        What it costs.

    Raises:
        StepwellError: naming every figure that is passed.
    """
    figures = measure(lowered)
    problems = [
        Problem(f"{name} is {figure:,}, and {limit:,} is what it may be")
        for name, (limit, figure) in figures.passed(
            Figures(delegates, outside, bytes, arena)
        ).items()
    ]
    if problems:
        help = "lowered.report says what is outside delegates, and why"
        raise StepwellError([*problems[:-1], replace(problems[-1], help=help)])
    return figures


def read_budgets(path: Path) -> list[Budget]:
    """The budgets of a file.

    Raises:
        StepwellError: it cannot be read, is no TOML, or has what no budget has.
    """
    try:
        document = tomllib.loads(read_bytes(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StepwellError(f"{path} is no TOML: {error}") from None
    programs = document.pop("program", None)
    if document or not isinstance(programs, list):
        raise StepwellError(
            f"{path} has {', '.join(document) or 'no program'}", help="it holds [[program]] tables"
        )
    return [_read(entry, f"{path}, program {number}") for number, entry in enumerate(programs, 1)]


def _read(entry: Any, where: str) -> Budget:
    if not isinstance(entry, Mapping):
        raise StepwellError("a program is a table", where, "[[program]]")
    given = dict(cast("Mapping[str, Any]", entry))
    limits = {one.name: given.pop(one.name) for one in FIELDS if one.name in given}
    named: dict[str, type] = {"model": str, "target": str, "quantize": str, "options": list}
    wrong = [n for n, v in given.items() if not isinstance(v, named.get(n, type(None)))]
    wrong += [n for n, v in limits.items() if isinstance(v, bool) or not isinstance(v, int | float)]
    if wrong or "model" not in given:
        fact = f"{wrong[0]} = {entry[wrong[0]]!r}" if wrong else "a program names no model"
        known = ", ".join([*named, *(one.name for one in FIELDS)])
        raise StepwellError(fact, where, f"texts, a list of options, numbers: {known}")
    options = tuple(str(option) for option in given.pop("options", ()))
    return Budget(**given, options=options, limits=Figures(**limits))


def write_budgets(path: Path, budgets: Sequence[Budget]) -> None:
    """Write a file of budgets, with what says how it is read."""
    tables: list[str] = []
    for one in budgets:
        named = {"model": one.model, "target": None if one.model.endswith(".pte") else one.target}
        rows = {**named, "quantize": one.quantize, "options": list(one.options) or None}
        held = rows | asdict(one.limits)
        lines = [f"{name} = {json.dumps(v)}" for name, v in held.items() if v is not None]
        tables.append("\n".join(["[[program]]", *lines]))
    write_atomically(path, "\n".join([HEAD, "\n\n".join(tables), ""]).encode())
