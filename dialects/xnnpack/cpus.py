"""CPUs that a program may be made for, and what XNNPACK's kernels do differently between them.

`lower(..., cpu=...)` names one; without it a program runs anywhere, and a rewrite may rely only on
what every family does. Measured by `bench/semantics.py`, on emulated cores too (`docs/arm64.md`).
"""

from __future__ import annotations

from enum import StrEnum

from stepwell.ir.context import Context


class Family(StrEnum):
    """CPUs whose kernels are written in the same instructions."""

    X86 = "x86"
    ARM = "arm"


CPUS = {
    "x86-64": Family.X86,
    "arm64": Family.ARM,
    "cortex-a53": Family.ARM,
    "cortex-a55": Family.ARM,
    "cortex-a76": Family.ARM,
    "cortex-a710": Family.ARM,
    "neoverse-v1": Family.ARM,
}
"""The names that the option takes: a family, or one core."""

LOSING_CLASSES: dict[str, frozenset[Family]] = {"log": frozenset(Family)}
"""Nodes that make numbers of NaN and infinity on some CPUs of a family.

NEON's log and that for AVX2 give 88.8 and 88.4; the one for AVX-512 keeps both.
"""


def families(context: Context) -> frozenset[Family]:
    """The families that a lowering's program may run on."""
    cpu = context.option("cpu")
    return frozenset((CPUS[cpu],)) if cpu in CPUS else frozenset(Family)


def keeps_classes(node: str, context: Context) -> bool:
    """Whether a node gives NaN for NaN, and infinity where that is right, wherever it may run."""
    return not LOSING_CLASSES.get(node, frozenset()) & families(context)
