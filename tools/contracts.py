"""Try variants of every rewrite's documented example, and print the table of `docs/contracts.md`.

    python tools/contracts.py                  100 variants of each rewrite
    python tools/contracts.py -n 1500 -s 1     as in `make soak`
    python tools/contracts.py -k 'tosa.lower'  only modules whose name matches
    python tools/contracts.py --bounds         numbers of every size: the table of bounds
    python tools/contracts.py --derived docs/proofs.md    derived bounds of rules, as its table

Exit status 1 if a variant is wrong, or a rewrite was not applied to any.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch

from stepwell.validation.compare import describe_bound
from stepwell.validation.contracts.trial import Outcome

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "contracts"))
from contract_driver import Tally, documented, tally
from magnitudes import Sized, sized, subjects

COLUMNS: tuple[Outcome, ...] = ("applied", "refused", "not matched", "dropped", "wrong")


def row(name: str, outcomes: Counter[Outcome]) -> str:
    """Format a row of the table."""
    numbers = [sum(outcomes.values()), *(outcomes[column] for column in COLUMNS)]
    return f"| {name} | " + " | ".join(map(str, numbers)) + " |"


def bounds(pattern: str, rounds: int) -> int:
    """Print the table of bounds; return 1 if one is false."""
    columns = "elements exceeded closest less wider class declared underived".split()
    print(f"| rewrite | {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|---|---|")
    bad: list[Sized] = []
    for name in subjects():
        if not re.search(pattern, name):
            continue
        found = sized(name, rounds)
        stated = [found.short, f"{found.width:.1f}"] if found.is_stated else ["–", "–"]
        cells = [found.elements, found.exceeded.total(), f"{found.closest:.2f}", *stated]
        cells += [found.classes.total(), "; ".join(found.declared), "; ".join(found.underived)]
        print(f"| {name} | " + " | ".join(map(str, cells)) + " |", flush=True)
        if not found.is_true:
            bad.append(found)
    for found in bad:
        print(found, file=sys.stderr)
    return bool(bad)


START, END = "<!-- bounds of rules: tools/contracts.py -->", "<!-- end of bounds -->"


def derived(page: Path, rounds: int) -> int:
    """Write the table of rules' bounds into a page; return 1 if one is false."""
    lines = [START, "", "| rule | stated | derived | wider |", "|---|---|---|---|"]
    every = [sized(name, rounds) for name in subjects() if ": " in name]
    found = [each for each in every if each.stated is not None]
    for each in sorted(found, key=lambda each: each.needed):
        assert each.stated is not None
        stated = describe_bound(replace(each.stated, reason=""))
        bounds_text = [text.replace("|", "\\|") for text in (stated, each.derived)]
        wider = f"{1 / each.needed:.1f}" if each.needed else "–"
        lines.append(
            f"| `{each.name.rpartition(': ')[2]}` | {bounds_text[0]} | {bounds_text[1]} | {wider} |"
        )
    wide = [f"`{each.name.rpartition(': ')[2]}`" for each in found if each.is_wide]
    false = [each for each in found if not each.is_true]
    lines += ["", f"{len(false)} false; wider than ten times: {', '.join(wide) or 'none'}.", ""]
    before, _, rest = page.read_text().partition(START)
    page.write_text(before + "\n".join(lines) + END + rest.partition(END)[2])
    for each in false:
        print(each, file=sys.stderr)
    return bool(false)


def main() -> int:
    """Print the table; errors go to standard error."""
    parser = argparse.ArgumentParser(description="variants of every rewrite's example")
    parser.add_argument("-n", type=int, default=100, help="variants of each rewrite")
    parser.add_argument("-s", type=int, default=0, help="seed")
    parser.add_argument("-k", default="", help="only modules in whose name this is found")
    parser.add_argument("--bounds", action="store_true", help="numbers from 1e-30 to 1e30")
    parser.add_argument("--derived", type=Path, metavar="PAGE", help="a page's table of bounds")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.derived:
        return derived(given.derived, max(given.n // 20, 1))
    if given.bounds:
        return bounds(given.k, max(given.n // 10, 1))
    print("| rewrite | tried | applied | refused | not matched | dropped | wrong |")
    print("|---|---|---|---|---|---|---|")
    total: Counter[Outcome] = Counter()
    bad: list[Tally] = []
    for name in documented():
        if not re.search(given.k, name):
            continue
        found = tally(name, given.n, given.s)
        total.update(found.outcomes)
        print(row(name, found.outcomes), flush=True)
        if found.wrong or not found.outcomes["applied"]:
            bad.append(found)
    print(row("all", total))
    for found in bad:
        print(found, file=sys.stderr)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
