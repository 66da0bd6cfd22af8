"""CPUs that a program may be optimized for (`lower(..., cpu=...)`): a family, or one core.

The option affects costs only. A program runs on any CPU with or without it: a rewrite relies only
on what the kernels of every family do (`docs/semantics_contract.md`; measured by
`bench/semantics.py`, on emulated cores too).
"""

CPUS = (
    "x86-64",
    "arm64",
    "cortex-a53",
    "cortex-a55",
    "cortex-a76",
    "cortex-a710",
    "neoverse-v1",
)
