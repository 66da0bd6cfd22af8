"""The core ATen operators with one dynamic axis: which flow lowers them correctly at every size.

Each call of tests/tosa/core_operators.py is exported alone, with each axis of its inputs dynamic in
turn (2 to 12), lowered here and by stock ExecuTorch, and compared with eager PyTorch at several
sizes, each flow in a separate process. The stock flow takes a hundred times as long and runs only
where ours is not right; with `--whole` everywhere. Rows are stored in `--cache`: an aborted run can
be continued.

    python bench/dynamic_axes.py [--only PATTERN] [--cache FILE] [--whole]
        [--table docs/open_axes.md]
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _report import in_a_child, keep_rows, kept_rows, prepare
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.integrations.executorch.stock import stock_pte
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import dims

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "tosa"))
from core_operators import CALLS, NOT_CALLED, module_of

LEAST, MOST = 2, 12
FLOWS = ("stepwell", "stock")


def cases(pattern: str) -> Iterator[tuple[str, int, int]]:
    """Operator, input and axis."""
    for name in sorted(CALLS.keys() - NOT_CALLED.keys()):
        if re.search(pattern, name):
            for at, given in enumerate(module_of([name])[1]):
                yield from ((name, at, axis) for axis in range(given.dim()))


def exported(name: str, at: int, axis: int) -> ExportedProgram:
    """The call with one open axis, and those of other inputs that must be as long."""
    module, inputs = module_of([name])
    size = inputs[at].shape[axis]
    shapes = [
        {
            a: Dim.DYNAMIC(min=LEAST, max=MOST)
            if (i, a) == (at, axis)
            else Dim.AUTO(min=LEAST, max=MOST)
            for a, held in enumerate(given.shape)
            if (i, a) == (at, axis) or (i != at and held == size)
        }
        for i, given in enumerate(inputs)
    ]
    return torch.export.export(module, inputs, dynamic_shapes={"tensors": tuple(shapes)})


def sized(given: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """As many rows, from those that there are: what numbers may be stays what it was."""
    return (
        torch.cat([given] * (size // given.shape[axis] + 1), axis)
        .narrow(axis, 0, size)
        .contiguous()
    )


def verdict(name: str, at: int, axis: int, flow: str) -> str:
    """`right`, `WRONG at …`, `runs not …`, or why it does not lower."""
    program = exported(name, at, axis)
    module, inputs = module_of([name])
    types = stepwell.from_exported_program(program).method("forward").body.block.args
    opened = {
        (i, a): dim for i, arg in enumerate(types) for a, dim in enumerate(dims(arg.type))
        if isinstance(dim, Size)
    }  # fmt: skip
    is_ours = flow == "stepwell"
    pte = stepwell.lower(program, "xnnpack").to_pte() if is_ours else stock_pte(program)
    session = PteSession.load(pte)
    symbol = opened[at, axis]
    within = {str(name): held for name, held in program.range_constraints.items()}[str(symbol)]
    sizes = (inputs[at].shape[axis], LEAST, LEAST + 1, 7, MOST)
    for size in (size for size in sizes if within.lower <= size <= within.upper):
        given = list(inputs)
        for (i, a), dim in opened.items():
            given[i] = sized(given[i], a, size) if dim == symbol else given[i]
        try:
            wanted = pytree.tree_leaves(module(*given))
        except (RuntimeError, IndexError):
            continue  # No size for eager either.
        try:
            found = session.run(*given)
        except Exception as error:
            return f"runs not at {size}: {' '.join(str(error).split())[:120]}"
        for one, other in zip(found, wanted, strict=True):
            try:
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, check_dtype=False)
            except AssertionError:
                return f"WRONG at {size}"
    return "right"


def judged(name: str, at: int, axis: int, flow: str) -> str:
    """The verdict, or the sentence it ends in."""
    try:
        exported(name, at, axis)
    except Exception:
        return "not exported"
    try:
        return verdict(name, at, axis, flow)
    except stepwell.StepwellError as error:
        return "refused: " + error.problems[0].fact
    except Exception as error:
        return f"refused: {type(error).__name__}: {' '.join(str(error).split())[:120]}"


def table(rows: dict[str, dict[str, str]]) -> str:
    """Return both flows' results, axes where ours is worse, and all refusals by their reason."""
    tried = {case: row for case, row in rows.items() if row["stepwell"] != "not exported"}
    others = {case: row for case, row in tried.items() if row["stepwell"] != "right"}
    of_stock = {case: row for case, row in tried.items() if "stock" in row}
    columns = {
        "stepwell": [row["stepwell"] for row in tried.values()],
        f"stock, the {len(others)} others": [row.get("stock", "") for row in others.values()],
    }
    if len(of_stock) == len(tried):
        columns["stock, all"] = [row["stock"] for row in tried.values()]
    lines = ["| one open axis | " + " | ".join(columns) + " |", "|---" * (1 + len(columns)) + "|"]
    for kind in ("right", "WRONG", "runs not", "refused"):
        counts = [sum(one.startswith(kind) for one in said) for said in columns.values()]
        lines.append(f"| {kind} | " + " | ".join(map(str, counts)) + " |")
    behind = sorted(case for case, row in others.items() if row.get("stock") == "right")
    lines += ["", f"Behind stock: {', '.join(behind) or 'none'}."]
    reasons = Counter(re.sub(r"s\d+", "s", row["stepwell"]) for row in others.values())
    lines += ["", "| axes | what is said |", "|---|---|"]
    lines += [f"| {count} | {said.replace('|', ' ')} |" for said, count in reasons.most_common()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Judge what is not in the cache yet, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", metavar="PATTERN")
    parser.add_argument("--cache", type=Path, metavar="FILE")
    parser.add_argument("--whole", action="store_true", help="ask stock everywhere")
    parser.add_argument("--table", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    prepare()
    rows: dict[str, dict[str, Any]] = kept_rows(chosen.cache)
    stepwell.lower(exported("add.Tensor", 0, 0), "xnnpack").to_pte()  # What it imports, once.
    for name, at, axis in cases(chosen.only):
        row = rows.setdefault(f"{name} [{at}, {axis}]", {})
        for flow in FLOWS:
            ends = row.get("stepwell") in ("right", "not exported") and not chosen.whole
            if flow not in row and not (flow == "stock" and ends):
                found, ended = in_a_child(partial(judged, name, at, axis, flow))
                row[flow] = found if found is not None else f"runs not: {ended}"
        keep_rows(chosen.cache, rows)
    text = table(rows)
    print(text)
    if chosen.table:
        head = "# Core operators with one dynamic axis\n\n`python bench/dynamic_axes.py` compares "
        head += f"each operator with eager PyTorch at sizes {LEAST} to {MOST}.\n\n"
        chosen.table.write_text(head + text)


if __name__ == "__main__":
    main()
