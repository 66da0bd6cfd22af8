"""Validate artifacts that show the faults of docs/upstream.md: what a user is told of each.

    python tools/upstream_verdicts.py [FAULT …]

The programs are those of the reproductions in `tools/faults`, lowered by the flow that has the
fault; their inputs are passed as the user's own data. Faults of tools that write no `.pte` are left
out. Printed: the fault, the verdict's sentence, and whether it is `named` (an operator is named),
`detected` only, or not; or `no file` if the flow raises. The status is the number of faults in a
file that are not named.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from _artifacts import each_in_a_child, flat_inputs, prepare, stock
from torch.export import ExportedProgram
from upstream_faults import faults

from stepwell.validation.artifacts import validate

FOLDER = Path(__file__).parent
FLOWS = {
    "portable_kernels": "portable",
    "exir": "portable",
    "xnnpack": "xnnpack",
    "cortex_m": "cortex-m",
}
"""Files of faults, and the flow of each."""
NO_FILE = ("bytes_that_are_loaded_twice", "dilated_convolution")
"""Faults that are not in a `.pte`: of the flow, and of operators in Python."""
CONTIGUOUS = ("rows_for_channels_last",)
"""Faults that need contiguous inputs, where the example's are channels-last."""


class Captured(BaseException):
    """The exported program that a reproduction is about to lower."""


def captured(file: str, name: str) -> ExportedProgram:
    """Return the exported program of a reproduction."""
    module: Any = import_module(f"tools.faults.{file}")

    def capture(program: ExportedProgram, **_: Any) -> None:
        raise Captured(program)

    module.to_edge = module.to_edge_transform_and_lower = capture
    try:
        getattr(module, name)()
    except Captured as found:
        return found.args[0]
    raise AssertionError(f"{name} lowers no program")


def verdict(task: tuple[str, str]) -> tuple[str, str]:
    """Return what is known of a fault, and the sentence."""
    file, name = task
    try:
        source = captured(file, name)
        data = stock(source, FLOWS[file])
    except Exception as error:
        return "no file", f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    inputs = flat_inputs(source)
    if name in CONTIGUOUS:
        inputs = [x.contiguous() for x in inputs]
    found = validate(data, source, tuple(inputs))
    known = "named" if found.wrong else "NOT NAMED" if not found.ok else "NOT DETECTED"
    return known, str(found).splitlines()[0]


def main() -> int:
    """Print the table, and return how many faults in files are not named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="faults by name; all if none")
    asked = parser.parse_args().names
    tasks = [
        (file, name)
        for file in FLOWS
        for name, _ in faults(FOLDER / "faults" / f"{file}.py")
        if name not in NO_FILE and (not asked or name in asked)
    ]
    prepare()
    counts: dict[str, int] = {}
    print("| fault | | verdict |\n|---|---|---|")
    for (_, name), result, ended, _ in each_in_a_child(verdict, tasks):
        known, said = result or ("NOT DETECTED", ended)
        counts[known] = counts.get(known, 0) + 1
        print(f"| `{name}` | {known} | {said} |", flush=True)
    print(", ".join(f"{count} {known}" for known, count in counts.items()))
    return sum(count for known, count in counts.items() if known.startswith("NOT"))


if __name__ == "__main__":
    sys.exit(main())
