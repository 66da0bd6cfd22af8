"""Budgets: cost limits of programs in a committed file, against which a build is checked.

    [[program]]
    model = "net.py:make"
    target = "xnnpack"
    delegates = 1
    outside = 0
    bytes = 1048576
    arena = 65536
    latency_ratio = 0.6

Absent figures are not checked. `budget` checks one lowering against limits in Python.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from stepwell.backends.executorch.container import DelegateCall, KernelCall
from stepwell.backends.executorch.reading.read import read_container
from stepwell.ir.diagnostics import Problem, StepwellError
from stepwell.ir.platform.files import read_bytes, write_atomically
from stepwell.lowering import Lowered

HEAD = """\
# What each program may cost at most: `stepwell budget` fails where it costs more.
# `stepwell budget MODEL --write` sets those of one program anew, `--write` alone those of all.
"""


@dataclass(frozen=True)
class Figures:
    """The costs of a program, or their limits; None means unknown, or not checked.

    Attributes:
        delegates: the number of delegates.
        outside: the number of ops that the runtime's own kernels run.
        bytes: the size of the artifact in bytes; of C, that of its constants.
        arena: the bytes that a `.pte` or C plans for activations, for the method that needs most.
        latency_ratio: the time of a call, divided by that of a program from ExecuTorch's own flow.
        packed: the bytes of weights that XNNPACK packs on loading, once for each node that reads
            one.
        differences: the number of calls whose results differ from the model's beyond rounding, and
            of wrong operators (`stepwell validate`); measured where it is limited.
    """

    delegates: int | None = None
    outside: int | None = None
    bytes: int | None = None
    arena: int | None = None
    latency_ratio: float | None = None
    packed: int | None = None
    differences: int | None = None

    def passed(self, limits: Figures) -> dict[str, tuple[float, float]]:
        """Return each figure that exceeds its limit, as (limit, figure)."""
        pairs = {one.name: (getattr(limits, one.name), getattr(self, one.name)) for one in FIELDS}
        return {
            name: (limit, figure)
            for name, (limit, figure) in pairs.items()
            if limit is not None and figure is not None and figure > limit
        }


FIELDS = fields(Figures)


@dataclass(frozen=True)
class Budget:
    """The limits of one program.

    Attributes:
        model: a MODEL argument (`net.py:make`, `net.pt2`), or a `.pte` of any producer.
        target, quantize, options: how the model is lowered; unused for a `.pte`.
        limits: the greatest allowed figures.
    """

    model: str
    target: str = "xnnpack"
    quantize: str | None = None
    options: tuple[str, ...] = ()
    limits: Figures = Figures()

    @property
    def key(self) -> tuple[str, str, str | None, tuple[str, ...]]:
        """Return the key that identifies the budget within a file."""
        return self.model, self.target, self.quantize, self.options

    def __str__(self) -> str:
        parts = [self.model, "" if self.model.endswith(".pte") else f"-t {self.target}"]
        parts += [f"--quantize {self.quantize}"] if self.quantize else []
        return " ".join(part for part in [*parts, *(f"-O {o}" for o in self.options)] if part)


def measure(lowered: Lowered) -> Figures:
    """Return the costs of a lowered program, without its latency, which is measured separately."""
    data = lowered.artifact
    is_pte = lowered.target.artifact == "pte"
    figures = Figures(lowered.report.delegates, lowered.report.outside.total(), len(data))
    if lowered.target.artifact == "c":
        return replace(figures, bytes=data.constants, arena=data.arena)
    if not is_pte:
        return figures
    return replace(figures, arena=arena_of(data), packed=lowered.report.packed[0])


def measure_pte(data: bytes) -> Figures:
    """Return the costs of a `.pte` of any producer: its delegate and kernel calls are counted.

    The kernels of a Cortex-M program without delegates are its target's engine.
    """
    steps = [step for method in read_container(data).methods for step in method.instructions]
    delegates = sum(isinstance(step, DelegateCall) for step in steps)
    kernels = [step.kernel for step in steps if isinstance(step, KernelCall)]
    return Figures(
        delegates,
        sum(bool(delegates) or not kernel.startswith("cortex_m::") for kernel in kernels),
        len(data),
        arena_of(data),
    )


def arena_of(data: bytes) -> int:
    """Return the bytes that a `.pte` plans for activations, of the method that needs most."""
    return max(arenas_of(data).values(), default=0)


def arenas_of(data: bytes) -> dict[str, int]:
    """Return the bytes that a `.pte` plans for activations, by method."""
    return {m.name: sum(m.arena_sizes[1:]) for m in read_container(data).methods}


def budget(
    lowered: Lowered,
    *,
    delegates: int | None = None,
    outside: int | None = None,
    bytes: int | None = None,
    arena: int | None = None,
    packed: int | None = None,
) -> Figures:
    """Check a lowering against cost limits, for use in a test.

        stepwell.budget(stepwell.lower(exported, "xnnpack"), delegates=1, outside=0)

    Args:
        lowered: the result of `stepwell.lower`.
        delegates, outside, bytes, arena, packed: the limits (`Figures`); None: no limit.

    Returns:
        The costs of the lowered program.

    Raises:
        StepwellError: a limit is exceeded; the message names every such figure.
    """
    figures = measure(lowered)
    problems = [
        Problem(f"{name} is {figure:,}, above its limit of {limit:,}")
        for name, (limit, figure) in figures.passed(
            Figures(delegates, outside, bytes, arena, packed=packed)
        ).items()
    ]
    if problems:
        help = "lowered.report says what is outside delegates, and why"
        raise StepwellError([*problems[:-1], replace(problems[-1], help=help)])
    return figures


def read_budgets(path: Path) -> list[Budget]:
    """Read the budgets of a file.

    Raises:
        StepwellError: the file cannot be read, is not TOML, or has an unknown key.
    """
    try:
        document = tomllib.loads(read_bytes(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StepwellError(f"{path} is not valid TOML: {error}") from None
    programs = document.pop("program", None)
    if document or not isinstance(programs, list):
        raise StepwellError(
            f"{path}: unknown keys {', '.join(document)}"
            if document
            else f"{path} has no [[program]] table",
            help="a file of budgets consists of [[program]] tables",
        )
    return [_read(entry, f"{path}, program {number}") for number, entry in enumerate(programs, 1)]


def _read(entry: Any, where: str) -> Budget:
    if not isinstance(entry, Mapping):
        raise StepwellError("`program` is not an array of tables", where, "[[program]]")
    given = dict(cast("Mapping[str, Any]", entry))
    limits = {one.name: given.pop(one.name) for one in FIELDS if one.name in given}
    named: dict[str, type] = {"model": str, "target": str, "quantize": str, "options": list}
    wrong = [n for n, v in given.items() if not isinstance(v, named.get(n, type(None)))]
    wrong += [n for n, v in limits.items() if isinstance(v, bool) or not isinstance(v, int | float)]
    if wrong or "model" not in given:
        fact = f"{wrong[0]} = {entry[wrong[0]]!r}" if wrong else "a program names no model"
        known = ", ".join([*named, *(one.name for one in FIELDS)])
        raise StepwellError(
            fact,
            where,
            f"model, target, quantize are strings, options a list, limits numbers: {known}",
        )
    options = tuple(str(option) for option in given.pop("options", ()))
    return Budget(**given, options=options, limits=Figures(**limits))


def write_budgets(path: Path, budgets: Sequence[Budget]) -> None:
    """Write a file of budgets, with a comment that explains its use."""
    tables: list[str] = []
    for one in budgets:
        named = {"model": one.model, "target": None if one.model.endswith(".pte") else one.target}
        rows = {**named, "quantize": one.quantize, "options": list(one.options) or None}
        held = rows | asdict(one.limits)
        lines = [f"{name} = {json.dumps(v)}" for name, v in held.items() if v is not None]
        tables.append("\n".join(["[[program]]", *lines]))
    write_atomically(path, "\n".join([HEAD, "\n\n".join(tables), ""]).encode())
