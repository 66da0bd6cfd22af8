"""Cycles of a call on an Arm core, from instruction counts and the core's issue width.

This is a lower bound, not a measurement: the instructions of each kind are divided by the number of
that kind that the core issues per cycle, and the greatest quotient is taken. It ignores caches,
latencies and stalls. The issue widths are from the ports of LLVM's scheduling models
(`AArch64SchedA53.td`, `A55`, `NeoverseN1` for the Cortex-A76, `NeoverseN2` for the Cortex-A710,
`NeoverseV1`), which follow Arm's Software Optimization Guides. binutils' disassembler classifies
the instructions.
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stepwell.backends.executorch.running.arm64 import Counts, folder


@dataclass(frozen=True)
class Starts:
    """What a core starts in a cycle.

    Attributes:
        all: instructions that are decoded.
        whole: of whole numbers.
        branch: jumps.
        load: of up to 16 bytes.
        store: of up to 16 bytes.
        vector: of 16 bytes, products too.
        slow: divisions and square roots of 16 bytes.
        turned: conversions, which some cores have fewer of.
        gigahertz: cycles in a nanosecond of a usual product with it.

    """

    all: float
    whole: float
    branch: float
    load: float
    store: float
    vector: float
    slow: float
    turned: float
    gigahertz: float


STARTS = {
    "cortex-a53": Starts(2, 2, 1, 0.5, 0.5, 1, 1 / 22, 1, 1.4),
    "cortex-a55": Starts(2, 2, 1, 0.5, 1, 1, 1 / 22, 1, 1.8),
    "cortex-a76": Starts(4, 3, 1, 2, 2, 2, 1 / 7, 1, 2.6),
    "cortex-a710": Starts(5, 4, 2, 3, 2, 2, 1 / 7, 1, 2.8),
    "neoverse-v1": Starts(8, 4, 2, 3, 2, 4, 2 / 7, 2, 2.6),
}
PAIRS = re.compile(r"^(ldp|ldnp|stp|stnp)$")
LOAD = re.compile(r"^(ld|prf)")
STORE = re.compile(r"^st")
BRANCH = re.compile(r"^(b|bl|br|blr|ret|cbz|cbnz|tbz|tbnz|b\..*)$")
SLOW = re.compile(r"^(fdiv|fsqrt|fdivr|sdiv|udiv)$")
TURNED = re.compile(r"^(fcvt.*|scvtf|ucvtf|frint.*)$")
OF_VECTORS = re.compile(r"\b[vzqdsh]\d+\b")


def kind_of(mnemonic: str, operands: str) -> tuple[str, int]:
    """The kind of an instruction, and how many of it it counts as: pairs of 16 bytes are two."""
    wide = 2 if PAIRS.match(mnemonic) and "q" in operands else 1
    several = re.match(r"\{([^}]*)\}", operands)
    if several is not None:  # ld1 {v0.16b-v3.16b}
        first, _, last = several[1].partition("-")
        numbers = [int(n) for n in re.findall(r"[vz](\d+)", first + " " + last)]
        wide = max(1, (numbers[-1] - numbers[0] + 1) if last else len(numbers))
    if LOAD.match(mnemonic):
        return "load", wide
    if STORE.match(mnemonic):
        return "store", wide
    if BRANCH.match(mnemonic):
        return "branch", 1
    if SLOW.match(mnemonic):
        return "slow", 1
    if TURNED.match(mnemonic):
        return "turned", 1
    return ("vector", 1) if OF_VECTORS.search(operands) else ("whole", 1)


_KINDS: dict[int, tuple[str, int]] = {}


def _learn(words: Iterable[int]) -> None:
    """Disassemble words that were not met before."""
    new = [word for word in words if word not in _KINDS]
    if not new:
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(struct.pack(f"<{len(new)}I", *new))
        file.flush()
        command = [folder() / "objdump", "-D", "-b", "binary", "-m", "aarch64", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = re.findall(r"^\s*[0-9a-f]+:\t[0-9a-f]{8} \t(\S+)(?:\t(.*))?$", text, re.M)
    assert len(lines) == len(new), "the disassembler skipped a word"
    for word, (mnemonic, operands) in zip(new, lines, strict=True):
        _KINDS[word] = kind_of(mnemonic, operands)


def mix(counts: Counts) -> Counter[str]:
    """How many instructions of each kind ran, and `all`."""
    _learn(counts)
    found: Counter[str] = Counter()
    for word, runs in counts.items():
        kind, wide = _KINDS[word]
        found[kind] += wide * runs
        found["all"] += runs
        if kind in ("slow", "turned"):
            found["vector"] += runs
    return found


def cycles(counts: Counts, core: str) -> float:
    """The least that a core needs for these instructions."""
    held: Mapping[str, float] = vars(STARTS[core])
    return max(number / held[kind] for kind, number in mix(counts).items())


def seconds(counts: Counts, core: str) -> float:
    """The same in seconds."""
    return cycles(counts, core) / STARTS[core].gigahertz * 1e-9
