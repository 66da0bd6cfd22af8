"""The core ATen operators on the TOSA reference model: which lower, and how near to torch they are.

Each call of tests/tosa/core_operators.py is exported alone, lowered to `tosa-1.0+fp`, or with
`+int` where integers are computed, or `+fft`, run on the reference model and compared.

    python bench/tosa_operators.py [--only PATTERN] [--table docs/tosa_operators.md]
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

import torch
from _report import prepare
from torch.utils import _pytree as pytree

import stepwell

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "tosa"))
from core_operators import CALLS, NOT_CALLED, WHY, module_of

TARGETS = ("tosa-1.0+fp", "tosa-1.0+fp+int", "tosa-1.0+fp+fft")


def measured(name: str) -> tuple[str, str, int]:
    """The target, how near its results are, and how many operators it takes."""
    module, inputs = module_of([name])
    with torch.no_grad():
        expected = pytree.tree_leaves(module(*inputs))
        exported = torch.export.export(module, inputs)
    reason = ""
    for target in TARGETS:
        try:
            lowered = stepwell.lower(exported, target)
        except stepwell.StepwellError as error:
            reason = error.problems[0].fact
            continue
        kinds = [op.name for op in lowered.program.module.walk()]
        count = sum(kind.startswith("tosa.") and "const" not in kind for kind in kinds)
        near = distance(lowered.run(*inputs), expected)
        return target, near, count
    return "", reason, 0


def distance(found: tuple[torch.Tensor, ...], wanted: list[torch.Tensor]) -> str:
    """`equal`, or an upper bound of the difference as a share of the largest element."""
    worst = 0.0
    for one, other in zip(found, wanted, strict=True):
        if torch.equal(one.to(other.dtype), other):
            continue
        if not other.dtype.is_floating_point:
            return "WRONG"
        worst = max(worst, float((one - other).abs().max() / other.abs().max()))
    limit = next((bound for bound in (1e-7, 1e-6, 1e-5) if worst <= bound), None)
    return "equal" if worst == 0 else "WRONG" if limit is None else f"within {limit:.0e}"


def main() -> int:
    """Print the table; exit status 1 if a result is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="operators whose name matches")
    parser.add_argument("--table", type=Path, help="also write the table to this file")
    asked = parser.parse_args()
    prepare()
    counts: Counter[str] = Counter()
    rows: list[str] = []
    for name in CALLS:
        if not re.search(asked.only, name):
            continue
        target, near, operators = measured(name)
        if not target:
            counts["refused"] += 1
            rows.append(f"| `{name}` | refused: {WHY.get(name, near)} | | |")
        else:
            counts[near if near in ("equal", "WRONG") else "rounded"] += 1
            rows.append(f"| `{name}` | {near} | {operators} | {target} |")
        print(rows[-1], flush=True)
    for reason, names in NOT_CALLED.items():
        rows += [f"| `{name}` | not called: {reason} | | |" for name in names]
        counts["not called"] += len(names)
    total = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    lines = [
        "# Core ATen operators under TOSA",
        "",
        "`python bench/tosa_operators.py --table docs/tosa_operators.md` writes this page. One typical call",  # noqa: E501
        "(`tests/tosa/core_operators.py`) of each operator with `torch.Tag.core` is exported, lowered, run on",  # noqa: E501
        "the TOSA reference model and compared with eager PyTorch. Differences are relative to the largest",  # noqa: E501
        "element. Constants do not count as operators.",
        "",
        f"{total}.",
        "",
        "| call | result | operators | target |",
        "|---|---|---|---|",
        *sorted(rows),
    ]
    print(total)
    if asked.table:
        asked.table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
