"""Test the calling convention: every kind of argument at every entry point, compared with eager.

    python tools/calling_convention.py                       # the table, and what is wrong
    python tools/calling_convention.py --table docs/contracts.md

Correct are eager's results and its effects on the caller's tensors, or a `StepwellError` that names
the argument. Anything else is wrong, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench._report import between_markers
from tests.calling_convention import garbage, memory, trees, trial

PARTS = {
    "values": "kinds of tensors × which argument × how it is passed × what reads or writes it",
    "memory": "programs that were drawn × ten ways to lie in memory × what two inputs share",
    "trees": "dictionaries, tuples, data classes, frozen numbers, right and wrong",
    "sizes": "open sizes in, out of and beside their ranges, expressions of each other",
    "public functions": "each parameter of each public function × 26 things it does not take",
}


def main() -> int:
    """Run all combinations and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--table", type=Path, help="a document to write the table into")
    arguments = parser.parse_args()
    rows: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
    with tempfile.TemporaryDirectory() as folder:
        for trials in (
            trial.value_trials(),
            memory.memory_trials(range(memory.PROGRAMS)),
            trees.tree_trials(),
            trees.size_trials(),
            garbage.garbage_trials(Path(folder)),
        ):
            for each in trials:
                rows[each.part][each.outcome if each.is_right else "wrong"] += 1
                if not each.is_right:
                    print(f"{each.what}: {each.outcome}", file=sys.stderr)
            print({part: dict(found) for part, found in rows.items() if found}, file=sys.stderr)
    lines = ["| combinations | tried | as eager | refused by name | wrong |"]
    lines.append("|---|---|---|---|---|")
    for part, found in rows.items():
        counts = [found.total(), found["equal"], found["refused"], found["wrong"]]
        shown = " | ".join(f"{n:,}".replace(",", " ") for n in counts)
        lines.append(f"| {PARTS[part]} | {shown} |")
    print("\n".join(lines))
    if arguments.table:
        between_markers(arguments.table, "calling convention", lines)
    return int(any(found["wrong"] for found in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
