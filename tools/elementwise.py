"""Which elementwise operators of ATen give other classes than eager on special values.

    python tools/elementwise.py [TARGET …] [--dtypes float32 float16] [--only PREFIX …] [--cpu CPU]

Operators are those with PyTorch's tag `pointwise`, forms and excuses those of
`tests/numerics/elementwise.py`. XNNPACK's delegates run on this machine, as a CPU under
`qemu-x86_64` (`--cpu "qemu-x86_64 Haswell"`), or on an emulated Arm core (`--cpu cortex-a53`,
after `make arm64`); the lowering is the same for all. A row is a target: how many forms are as
eager, excused by a declared deviation, no worse than the stock flow, refused, and none of these.
Exit status 1 if any is none of these.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "numerics"))
from elementwise import Found, compared, measurable


def main() -> None:
    """Print a row for each target and dtype, then the forms of each count but the first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", default=["xnnpack", "tosa-1.0+fp", "cortex-m55"])
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--only", nargs="+", default=[""])
    parser.add_argument("--cpu", help="the CPU that runs XNNPACK's delegates (this machine)")
    arguments = parser.parse_args()
    counts = [field.name for field in fields(Found)]
    print(f"| target | dtype | forms | {' | '.join(name.replace('_', ' ') for name in counts)} |")
    print("|---|---|" + "---|" * (len(counts) + 1))
    is_undeclared = False
    for dtype in arguments.dtypes:
        forms = measurable(getattr(torch, dtype), arguments.only)
        for target in arguments.targets:
            found = compared(forms, getattr(torch, dtype), target, arguments.cpu)
            numbers = [str(len(getattr(found, name))) for name in counts]
            print(f"| `{target}` | {dtype} | {len(forms)} | {' | '.join(numbers)} |", flush=True)
            for name in counts[1:]:
                print(f"{name}: {'; '.join(getattr(found, name))}", file=sys.stderr)
            is_undeclared |= bool(found.undeclared)
    sys.exit(is_undeclared)


if __name__ == "__main__":
    main()
