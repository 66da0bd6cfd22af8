"""Tamper with certificates, programs and weights in every known way; print what is refused.

python tools/tampering.py        # the table of docs/proofs.md; -v: each with the reason
"""

from __future__ import annotations

import resource
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "notation"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "certificates"))

from honest import honest
from tampered_programs import sample
from tampering import applied, checked, is_refused


def main() -> None:
    """Tamper in every way with every lowering, and print what is refused."""
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    counts: dict[str, Counter[str]] = {}
    kinds: dict[str, set[str]] = {}
    for name, case in sample(every=True):
        group = name.partition(":")[0] if ":" in name else name.split(" by ")[0].split(",")[0]
        given = applied(name, honest(case))
        assert given is not None
        try:
            found = checked(given)
            said = "refused" if is_refused(found) else "accepted"
        except Exception as error:
            found, said = repr(error)[:200], "raised"
        counts.setdefault(group, Counter())[said] += 1
        kinds.setdefault(group, set()).add(name)
        if said != "refused" or "-v" in sys.argv:
            print(f"{said}: {name}: {case}: {str(found)[:300]}", flush=True)
    print("| what is tampered with | kinds | cases | refused | accepted | exceptions |")
    print("|---|---|---|---|---|---|")
    rows = [(g, len(kinds[g]), counts[g]) for g in counts]
    rows.append(("all", sum(len(k) for k in kinds.values()), sum(counts.values(), Counter[str]())))
    for group, many, each in rows:
        cells = group, many, each.total(), each["refused"], each["accepted"], each["raised"]
        print(f"| {' | '.join(map(str, cells))} |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"peak memory {peak} MB, {resource.getrusage(resource.RUSAGE_SELF).ru_utime:.0f} CPU s")


if __name__ == "__main__":
    main()
