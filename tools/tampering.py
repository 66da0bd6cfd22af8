"""Tamper with certificates, programs and weights in every known way; print what is refused.

python tools/tampering.py             # the table of docs/proofs.md; -v: each with the reason
python tools/tampering.py --checker   # by the small checker alone: the table of docs/trust.md
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "notation"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "certificates"))

from honest import honest
from tamper_kinds import applied, checked, is_refused, said_by_checker
from tampered_programs import sample

from stepwell.validation.certificates.application import by_hash


def main() -> None:
    """Tamper in every way with every lowering, and print what is refused."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checker", action="store_true", help="without the audit")
    parser.add_argument("-v", action="store_true", help="each, with the reason")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    by_hash()  # The recipes of weights.
    counts: dict[str, Counter[str]] = {}
    kinds: dict[str, set[str]] = {}
    for name, case in sample(every=True):
        group = name.partition(":")[0] if ":" in name else name.split(" by ")[0].split(",")[0]
        tampered = applied(name, honest(case))
        assert tampered is not None
        try:
            if given.checker:
                said, found = said_by_checker(tampered, honest(case))
            else:
                found = checked(tampered)
                said = "refused" if is_refused(found) else "accepted"
        except Exception as error:
            found, said = repr(error)[:200], "raised"
        counts.setdefault(group, Counter())[said] += 1
        kinds.setdefault(group, set()).add(name)
        if said != "refused" or given.v:
            print(f"{said}: {name}: {case}: {str(found)[:300]}", flush=True)
    columns = ("refused", "assumed", "accepted", "raised")
    print(f"| what is tampered with | kinds | cases | {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|")
    rows = [(g, len(kinds[g]), counts[g]) for g in counts]
    rows.append(("all", sum(len(k) for k in kinds.values()), sum(counts.values(), Counter[str]())))
    for group, many, each in rows:
        cells = group, many, each.total(), *(each[column] for column in columns)
        print(f"| {' | '.join(map(str, cells))} |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"peak memory {peak} MB, {resource.getrusage(resource.RUSAGE_SELF).ru_utime:.0f} CPU s")


if __name__ == "__main__":
    main()
