"""`stepwell budget [MODEL]`: does a program cost more than the committed file allows?"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwell.cli.terminal.outcome import Outcome
from stepwell.cli.terminal.progress import waiting
from stepwell.cli.terminal.quantization import quantizer_of
from stepwell.cost_model.budgets import Budget, measure, measure_pte, read_budgets, write_budgets
from stepwell.integrations.executorch.stock import ratio_to_stock
from stepwell.ir.diagnostics import StepwellError, counted
from stepwell.ir.platform.files import read_bytes
from stepwell.loaders.models import open_model
from stepwell.lowering import lower
from stepwell.targets.table import find_target
from stepwell.validation.artifacts import validate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepwell.cost_model.budgets import Figures

SLACK = 0.15
"""The margin that is added to a measured ratio of latencies, because machines differ."""


def run(arguments: argparse.Namespace) -> Outcome:
    """Measure the programs of the budget file, print a table, and exit with 1 if a figure exceeds
    its limit.
    """
    path: Path = arguments.file
    known = read_budgets(path) if path.exists() or not arguments.write else []
    asked = [one for one in known if _is_meant(one, arguments)]
    if arguments.write and not asked and arguments.model:
        said = arguments.target or "xnnpack", quantizer_of(arguments), tuple(arguments.option)
        asked = [Budget(arguments.model, *said)]
    if not asked:
        raise StepwellError(
            f"{path} has no budget of a program {arguments.model or ''}".rstrip(),
            help="stepwell budget MODEL --write measures the program and writes one",
        )
    measured = [
        (one, *_measure(one, arguments.latency or one.limits.latency_ratio)) for one in asked
    ]
    if arguments.write:
        new = {one.key: replace(one, limits=_written(figures)) for one, figures, _ in measured}
        old = {one.key: one for one in known}
        write_budgets(path, list({**old, **new}.values()))
    rows: list[dict[str, Any]] = []
    for one, figures, outside in measured:
        passed = {} if arguments.write else figures.passed(one.limits)
        _print(one, figures, passed, outside)
        rows.append({"program": one, "figures": figures, "passed": passed, "outside": outside})
    over = sum(bool(row["passed"]) for row in rows)
    print(
        f"{path}: {counted(len(rows), 'program')}, "
        + ("written" if arguments.write else f"{over} over")
    )
    return Outcome({"programs": rows}, [path] if arguments.write else [], 1 if over else 0)


def _is_meant(one: Budget, arguments: argparse.Namespace) -> bool:
    said = {
        "model": arguments.model,
        "target": arguments.target,
        "quantize": quantizer_of(arguments),
        "options": tuple(arguments.option) or None,
    }
    return all(value is None or getattr(one, name) == value for name, value in said.items())


def _written(figures: Figures) -> Figures:
    if (ratio := figures.latency_ratio) is None:
        return figures
    return replace(figures, latency_ratio=round(ratio * (1 + SLACK), 3))


def _measure(one: Budget, timed: object) -> tuple[Figures, dict[str, int]]:
    """Return the costs of a program, and the ops outside its delegates."""
    if timed and (one.target != "xnnpack" or one.model.endswith(".pte")):
        raise StepwellError(
            f"{one}: latency_ratio needs a program of ExecuTorch's own flow, which does not "
            "exist for it",
            help="remove latency_ratio: it is for models that are lowered to xnnpack",
        )
    with waiting(f"lowering {one.model}"):
        if one.model.endswith(".pte"):
            return measure_pte(read_bytes(Path(one.model))), {}
        chosen = find_target(one.target).read_options(one.options)
        model = open_model(one.model, quantize=one.quantize)
        lowered = lower(model.program, one.target, **chosen)
        figures = measure(lowered)
        if one.limits.differences is not None:
            found = validate(lowered.artifact, model.program)
            faults = 0 if found.ok else max(len(found.differences), 1)
            figures = replace(figures, differences=faults)
    if timed:
        with waiting(f"timing {one.model} against ExecuTorch's own flow"):
            ratio = ratio_to_stock(one.model, lowered.artifact, one.quantize)
        figures = replace(figures, latency_ratio=ratio)
    return figures, dict(lowered.report.outside)


def _print(
    one: Budget, figures: Figures, passed: Mapping[str, Any], outside: Mapping[str, int]
) -> None:
    print(one)
    for name, value in asdict(figures).items():
        if value is None:
            continue
        limit = getattr(one.limits, name)
        shown, most = (
            f"{v:.3f}" if isinstance(v, float) else f"{v:,}" for v in (value, limit or 0)
        )
        text = "" if limit is None else f"of {most}"
        print(f"  {'✗' if name in passed else ' '} {name:14} {shown:>14} {text}".rstrip())
    if {"delegates", "outside"} & set(passed):
        listed = ", ".join(f"{name} × {count}" for name, count in outside.items())
        print(f"    outside: {listed}" if listed else "    the delegates were split")
        print(f"    why: stepwell explain {one} --outside")
