"""Whole models with open sizes: what `stepwell.open_sizes` opens, lowered and run at other sizes.

Each model (of the zoo, or `file.py:callable`) is exported with its batch, its sequence, or height
and width open, lowered to XNNPACK, and its `.pte` run beside eager PyTorch at the example's size
and at up to three others; and once as it is, for the delegates of the static program. A row says
`right`, `WRONG at …`, `runs not …`, `pinned: …` (the model or torch does not let it be open, with
the line) or `refused: …`. Every case runs in a process of its own, and rows are kept in `--cache`:
a run may be ended and gone on with.

    python bench/open_strangers.py --models timm/resnet18,transformers/bert [--kinds batch,image]
        [--cache FILE] [--table docs/open_sizes.md]
"""

from __future__ import annotations

import argparse
import random
import re
import resource
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _report import between_markers, keep_rows, kept_rows, prepare
from strangers import in_a_child
from torch.utils import _pytree as pytree

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.opening import OpenSizes, insist, open_sizes
from stepwell.opening.candidates import inputs_of
from stepwell.opening.trying import opened
from stepwell.reading.factories import made_by, parts_of
from stepwell.zoo.catalogue import find, select
from stepwell.zoo.vision import imported

KINDS = ("batch", "sequence", "image")
MOST_SIZES = 4
SECONDS = 240
"""Of CPU, that a case may take."""


def made(name: str) -> tuple[torch.nn.Module, tuple[Any, ...], Mapping[str, Any]]:
    """A model and its example inputs."""
    if ".py:" in name:
        return parts_of(name, made_by(name))[:3]
    held = find(name).make()
    assert held.module is not None, "a model that is exported already"
    return held.module, tuple(held.inputs), {}


def counts(program: Any) -> tuple[Any, list[int]]:
    """A lowered program, its delegates and the operators beside them."""
    lowered = stepwell.lower(program, "xnnpack", numerics="finite")
    report = lowered.report
    return lowered, [report.stages, sum(report.outside.values())]


def differs(found: Any, wanted: Any) -> bool:
    """Whether results are further apart than kernels of one network are."""
    for one, other in zip(found, pytree.tree_leaves(wanted), strict=True):
        if isinstance(other, torch.Tensor) and other.is_floating_point():
            scale = float(other.abs().max()) if other.numel() else 1.0
            if one.shape != other.shape or not torch.allclose(
                one.float(), other.float(), rtol=1e-2, atol=2e-4 * max(scale, 1e-6), equal_nan=True
            ):
                return True
    return False


@torch.no_grad()
def judged(name: str, kind: str) -> dict[str, Any]:
    """The row of a model and a kind; `static` is a kind too."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))  # torch's export may not end.
    module, args, kwargs = made(name)
    try:
        if kind == "static":
            program = torch.export.export(module, args, dict(kwargs))
            return {"said": "right", "counts": counts(program)[1]}
        found = open_sizes(module, args, kwargs, dynamic=kind)
        insist(found, kind)
    except stepwell.StepwellError as error:
        if kind == "static":
            return {"said": f"refused: {error.problems[0].fact}"}
        problem = error.problems[0]
        return {
            "said": f"pinned: {problem.fact}" + (f" at {problem.where}" if problem.where else "")
        }
    row: dict[str, Any] = {"open": [str(axis) for axis in found.axes if axis.size is not None]}
    try:
        lowered, row["counts"] = counts(found.program)
        pte = lowered.to_pte()
    except stepwell.StepwellError as error:
        return {**row, "said": f"refused: {error.problems[0].fact}"}
    except Exception as error:
        return {**row, "said": f"bare: {type(error).__name__}: {str(error)[:200]}"}
    return {**row, "said": run(module, found, PteSession.load(pte))}


def run(module: torch.nn.Module, found: OpenSizes, session: PteSession) -> str:
    """The `.pte` beside the model, at the example's sizes and at others that both took."""
    given = inputs_of(module, found.inputs, found.keywords)
    once, again = (module(*given.args, **given.kwargs) for _ in range(2))
    if differs(pytree.tree_leaves(once), again):
        return "not compared: it draws numbers"
    asked: list[dict[Any, int]] = [{}]
    for size in opened(found.program, given):
        others = [n for n in found.tried.get(size.symbol, ()) if n != size.given]
        for at, value in enumerate(others[: MOST_SIZES - 1]):
            asked += [{} for _ in range(at + 2 - len(asked))]
            asked[at + 1].update(size.sizes(value))
    for sizes in asked:
        inputs = given.resized(sizes)
        try:
            wanted = module(*inputs.args, **inputs.kwargs)
        except Exception:
            continue  # Two sizes that do not go together.
        try:
            said = session.run(*pytree.tree_leaves((inputs.args, dict(inputs.kwargs))))
        except Exception as error:
            return f"runs not at {sorted(sizes.values())}: {' '.join(str(error).split())[:160]}"
        if differs(said, wanted):
            return f"WRONG at {sorted(sizes.values())}"
    return "right"


def table(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Markdown: what came of each kind, and why the rest was refused."""
    kinds = [kind for kind in KINDS if any(case.endswith(f" {kind}") for case in rows)]
    lines = ["| open | models that let it be | right | one delegate, static | one, open |"]
    lines += ["|---" * 5 + "|"]
    for kind in kinds:
        here = {case.rpartition(" ")[0]: row for case, row in rows.items() if case.endswith(kind)}
        held = {name: row for name, row in here.items() if not row["said"].startswith("pinned")}
        right = [name for name, row in held.items() if row["said"] == "right"]
        static = [rows.get(f"{name} static", {}).get("counts", [0])[0] == 1 for name in held]
        one = [held[name]["counts"][0] == 1 for name in right]
        cells = (f"{len(held)} of {len(here)}", len(right), sum(static), sum(one))
        lines.append(f"| {kind} | {' | '.join(map(str, cells))} |")
    others = Counter(
        re.sub(r"\bs\d+\b", "s", row["said"].replace("|", " "))
        for row in rows.values()
        if row["said"] != "right" and not row["said"].startswith("pinned")
    )
    if others:
        lines += ["", "| times | what is said |", "|---|---|"]
        lines += [f"| {count} | {said} |" for said, count in others.most_common()]
    return lines


def main() -> None:
    """Judge what is not in the cache yet, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--models", default="", help="patterns of the zoo or file.py:callable, with commas"
    )
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--cache", type=Path, metavar="FILE")
    parser.add_argument("--table", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    prepare()
    rows: dict[str, dict[str, Any]] = kept_rows(chosen.cache)
    entries = select(chosen.models.split(",")) if chosen.models else []
    random.Random(0).shuffle(entries)
    for entry in entries:
        name = entry.name
        try:
            imported(entry.module)
        except Exception as error:
            print(f"{name}: its package is not here: {error}", flush=True)
            continue
        for kind in ("static", *chosen.kinds.split(",")):
            case = f"{name} {kind}"
            if case in rows:
                continue
            found, ended = in_a_child(partial(judged, name, kind))
            rows[case] = found if found is not None else {"said": f"bare: {ended}"}
            print(case, rows[case].get("counts", ""), rows[case]["said"], flush=True)
            keep_rows(chosen.cache, rows)
    text = table(rows)
    print("\n".join(text))
    if chosen.table:
        between_markers(chosen.table, "open strangers", text)


if __name__ == "__main__":
    main()
