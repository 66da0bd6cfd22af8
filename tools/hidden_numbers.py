"""Which forms see a number that their result must not see: each behind each producer.

    python tools/hidden_numbers.py [--numerics torch finite strict] [--producers …] [--target …]

Forms, producers and numbers are those of `tests/numerics/hidden.py`. Each program is exported and
lowered alone. A row of the table is a form: how many of its programs are right, how many wrong ones
are listed in `report.deviations`, and which are not.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import stepwell

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "numerics"))
from hidden import PRODUCERS, cases, is_listed, wrong


def main() -> None:
    """Print a table for each mode."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--numerics", nargs="+", default=["torch", "finite", "strict"])
    parser.add_argument("--producers", nargs="+", default=PRODUCERS)
    parser.add_argument("--target", default="xnnpack")
    arguments = parser.parse_args()
    for numerics in arguments.numerics:
        found: dict[str, list[str]] = defaultdict(list)
        for dynamic in (False, True):
            for case in cases(dynamic, arguments.producers):
                for name, form in case.forms.items():
                    alone = replace(case, forms={name: form})
                    program = alone.exported()
                    lowered = stepwell.lower(program, arguments.target, numerics=numerics)
                    seen = wrong(alone, lowered)
                    listed = "listed" if is_listed(lowered) else f"WRONG behind {case}"
                    found[name].append(listed if seen else "right")
        total = [verdict for verdicts in found.values() for verdict in verdicts]
        print(f"\n{numerics}: {len(total)} programs, {total.count('right')} right, ", end="")
        print(f"{total.count('listed')} wrong and listed")
        print("| form | right | listed | wrong |\n|---|---|---|---|")
        for name, verdicts in found.items():
            others = [v for v in verdicts if v not in ("right", "listed")]
            counts = f"{verdicts.count('right')} | {verdicts.count('listed')}"
            print(f"| {name} | {counts} | {'; '.join(others)} |")


if __name__ == "__main__":
    main()
