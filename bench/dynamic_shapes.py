"""Whole models with dynamic sizes that `stepwell.dynamic_shapes` found, run at other sizes.

Each model (of the zoo, or `file.py:callable`) is exported with its batch, its sequence, or height
and width dynamic, lowered to XNNPACK, and its `.pte` is compared with eager PyTorch at the
example's size and at up to three others. It is also lowered unchanged, for the delegates of the
static program. A row is `right`, `WRONG at …`, `runs not …`, `pinned: …` (the model or torch makes
the dimension static, with the line, or torch's export does not end) or `refused: …`. Cases that are
not right also run through ExecuTorch's own flow, on the same program. Every case runs in a separate
process, and rows are stored in `--cache`: an aborted run can be continued.

    python bench/dynamic_shapes.py --models timm/resnet18,transformers/bert [--kinds batch,image]
        [--cache FILE] [--again REGEX] [--table docs/dynamic_shapes.md]

`--again` judges anew the kept rows whose case and text match.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _report import between_markers, in_a_child, keep_rows, kept_rows, prepare
from torch.utils import _pytree as pytree

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.integrations.executorch.stock import stock_pte
from stepwell.loaders.dynamic_shapes import OpenSizes, dynamic_shapes, insist
from stepwell.loaders.dynamic_shapes.candidates import inputs_of
from stepwell.loaders.dynamic_shapes.trials import opened
from stepwell.loaders.factories import made_by, parts_of
from stepwell.model_zoo.catalogue.models import find, select
from stepwell.model_zoo.catalogue.vision import imported
from stepwell.model_zoo.sweep.warm import fence

KINDS = ("batch", "sequence", "image")
MOST_SIZES = 4
SECONDS = 240
"""Of CPU, that a case may take."""
MEMORY = 8 * 10**9
"""Bytes that it may take."""
SETTLED = ("right", "pinned", "not compared", "not exported")
"""How a row begins that stock need not be asked for."""


class OutOfTime(BaseException):
    """No exception that torch or a model catches."""


def ends(_: int, frame: Any) -> None:
    """What the clock of a case does."""
    called = traceback.extract_stack(frame)
    step = next((step for step, file in STEPS.items() if any(file in f.filename for f in called)))
    raise OutOfTime(f"{step} takes more than {SECONDS} CPU seconds")


def limited() -> None:
    """Ends this process's case, in words, beyond its memory and its CPU time."""
    fence(MEMORY)
    signal.signal(signal.SIGPROF, ends)
    signal.setitimer(signal.ITIMER_PROF, SECONDS, 5)


STEPS = {"torch.export.export": "torch/export/", "stepwell": "stepwell", "the model": ""}
"""Who is at work where a file of theirs is among those that are running."""


Parts = tuple[torch.nn.Module, tuple[Any, ...], Mapping[str, Any]]


def made(name: str) -> Parts:
    """A model and its example inputs."""
    if ".py:" in name:
        return parts_of(name, made_by(name))[:3]
    held = find(name).make()
    assert held.module is not None, "a model that is exported already"
    return held.module, tuple(held.inputs), {}


def counts(program: Any) -> tuple[Any, list[int]]:
    """A lowered program, its delegates and the operators outside them."""
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
def judged(parts: Parts, kind: str) -> dict[str, Any]:
    """The row of a model and a kind; `static` is a kind too."""
    limited()
    row: dict[str, Any] = {}
    try:
        return row | {"said": said(parts, kind, row)}
    except OutOfTime as error:
        kept = "pinned" if str(error).startswith("torch.export") else "bare"
        return row | {"said": f"{kept}: {error}"}
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return row | {"said": f"bare: {type(error).__name__}: {lines[0][:200]}"}


def said(parts: Parts, kind: str, row: dict[str, Any]) -> str:
    """What came of a case; its counts and open axes are written into the row."""
    module, args, kwargs = parts
    try:
        if kind == "static":
            try:
                program = torch.export.export(module, args, dict(kwargs))
            except Exception as error:
                return f"not exported: {type(error).__name__}: {str(error).strip()[:100]}"
            row["counts"] = counts(program)[1]
            return "right"
        found = dynamic_shapes(module, args, kwargs, dynamic=kind)
        insist(found, kind)
    except stepwell.StepwellError as error:
        problem = error.problems[0]
        where = f" at {problem.where}" if problem.where and kind != "static" else ""
        return f"{'refused' if kind == 'static' else 'pinned'}: {problem.fact}{where}"
    row["open"] = [str(axis) for axis in found.axes if axis.size is not None]
    try:
        lowered, row["counts"] = counts(found.program)
        pte = lowered.to_pte()
    except stepwell.StepwellError as error:
        return f"refused: {error.problems[0].fact}"
    return run(module, found, PteSession.load(pte))


@torch.no_grad()
def of_stock(parts: Parts, kind: str) -> str:
    """What ExecuTorch's own flow makes of the program of a case."""
    limited()
    module, args, kwargs = parts
    try:
        found = dynamic_shapes(module, args, kwargs, dynamic=kind)
        return run(module, found, PteSession.load(stock_pte(found.program)))
    except OutOfTime as error:
        return f"refused: {error}"
    except Exception as error:
        words = " ".join(str(error).split())[:160]
        return f"refused: {type(error).__name__}: {words}"


def run(module: torch.nn.Module, found: OpenSizes, session: PteSession) -> str:
    """Compare the `.pte` with the model, at the example's sizes and at others that both accept."""
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
            given_back = session.run(*pytree.tree_leaves((inputs.args, dict(inputs.kwargs))))
        except Exception as error:
            return f"runs not at {sorted(sizes.values())}: {' '.join(str(error).split())[:160]}"
        if differs(given_back, wanted):
            return f"WRONG at {sorted(sizes.values())}"
    return "right"


def row_of(parts: Parts, kind: str) -> dict[str, Any]:
    """A case in a process of its own, and stock's in another where it is needed."""

    def asked(work: Callable[..., Any]) -> Any:
        found, ended = in_a_child(partial(work, parts, kind))
        return {"said": f"bare: {ended}"} if found is None else found

    row = asked(judged)
    if kind != "static" and not row["said"].startswith(SETTLED):
        stock = asked(of_stock)
        row["stock"] = stock["said"] if isinstance(stock, dict) else stock
    return row


def table(rows: dict[str, dict[str, Any]], kinds: Sequence[str]) -> list[str]:
    """Markdown: what came of each kind, and why the rest was refused."""
    lines = ["| open | models that let it be | right | not, and stock is | one delegate, static "]
    lines[0] += "| one, open | at most one more than static |"
    lines += ["|---" * 7 + "|"]
    for kind in kinds:
        here = {case.rpartition(" ")[0]: row for case, row in rows.items() if case.endswith(kind)}
        held = {name: row for name, row in here.items() if not row["said"].startswith("pinned")}
        right = [name for name, row in held.items() if row["said"] == "right"]
        stock = [name for name, row in held.items() if row.get("stock") == "right"]
        static = {n: rows.get(f"{n} static", {}).get("counts", [0])[0] for n in held}
        one = [name for name in right if held[name]["counts"][0] == 1]
        near = [name for name in right if held[name]["counts"][0] <= static[name] + 1]
        singles = sum(count == 1 for count in static.values())
        cells = (f"{len(held)} of {len(here)}", *map(len, (right, stock)), singles, len(one))
        cells = (*cells, len(near))
        lines.append(f"| {kind} | {' | '.join(map(str, cells))} |")
    others = Counter(
        (
            re.sub(r"\bs\d+\b", "s", row["said"].replace("|", " ")),
            row.get("stock", "").partition(":")[0],
        )
        for case, row in rows.items()
        if case.endswith(("static", *kinds))
        if row["said"] != "right" and not row["said"].startswith("pinned")
    )
    if others:
        lines += ["", "| times | what is said | stock |", "|---|---|---|"]
        lines += [
            f"| {count} | {said} | {stock} |" for (said, stock), count in others.most_common()
        ]
    return lines


def main() -> None:
    """Judge what is not in the cache yet, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--models", default="", help="patterns of the zoo or file.py:callable, with commas"
    )
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--cache", type=Path, metavar="FILE")
    parser.add_argument("--again", metavar="REGEX", help="kept rows that are judged anew")
    parser.add_argument("--table", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    prepare()
    rows: dict[str, dict[str, Any]] = kept_rows(chosen.cache)
    if chosen.again:
        old = re.compile(chosen.again)
        rows = {case: row for case, row in rows.items() if not old.search(f"{case} {row['said']}")}
    entries = select(chosen.models.split(",")) if chosen.models else []
    random.Random(0).shuffle(entries)
    counts(
        torch.export.export(torch.nn.Linear(4, 4), (torch.randn(1, 4),))
    )  # Forks know the rules.
    for entry in entries:
        cases = {kind: f"{entry.name} {kind}" for kind in ("static", *chosen.kinds.split(","))}
        wanted = [kind for kind, case in cases.items() if case not in rows]
        if not wanted:
            continue
        try:
            imported(entry.module)
            parts = made(entry.name)
        except Exception as error:
            print(f"{entry.name}: it cannot be made here: {error}", flush=True)
            continue
        for kind in wanted:
            row = rows[cases[kind]] = row_of(parts, kind)
            stock = f"(stock: {row['stock']})" if "stock" in row else ""
            print(cases[kind], row.get("counts", ""), row["said"], stock, flush=True)
            keep_rows(chosen.cache, rows)
    text = table(rows, chosen.kinds.split(","))
    print("\n".join(text))
    if chosen.table:
        between_markers(chosen.table, f"dynamic shapes {chosen.kinds}", text)


if __name__ == "__main__":
    main()
