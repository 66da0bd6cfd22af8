"""Compare the pipelines with the best of equivalent programs, on blocks of common models.

    python -m tools.optimum [--most 48] [--state ROWS.jsonl]

Each block (`tools/mutating/programs.py`, and a Llama block of the examples) is passed to
`stepwell.optimum` for each target that supports it. A row contains the number of lowered programs
and the savings of the best of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

from tools.mutating.programs import INTEGER, SMALL, case

from stepwell.cost_model.optimum import optimum

FLOATS = ("xnnpack", "tosa-1.0+fp")
BLOCKS = [
    *(("float32", name, target) for name in (*SMALL, "llama.llama_block") for target in FLOATS),
    *(
        (kind, name, target)
        for kind, target in (
            ("int8-tosa", "tosa-1.0+int"),
            ("int8-cortex-m", "cortex-m55"),
            ("int8-xnnpack", "xnnpack"),
        )
        for name in INTEGER
    ),
]


def main() -> None:
    """Parse the command line, search, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--most", type=int, default=48, help="programs to lower for each block")
    parser.add_argument("--state", type=Path, help="a file of rows, from which a run continues")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    there = given.state.read_text().splitlines() if given.state and given.state.exists() else []
    known = {tuple(json.loads(line)["block"]) for line in there}
    for block in BLOCKS:
        if block in known:
            continue
        kind, name, target = block
        best = optimum(case(kind, name).program, target, given.most)
        row = {
            "block": block, "tried": best.tried, "refused": best.refused,
            "applications": best.applications, "gain": round(best.gain, 5), "steps": best.steps,
        }  # fmt: skip
        print(json.dumps(row), flush=True)
        if given.state:
            with given.state.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    sys.exit(main())
