"""CPUs that a program may be made for (`lower(..., cpu=...)`): a family, or one core.

The option decides costs alone. A program runs anywhere, with it and without: a rewrite relies on
what the kernels of every family do (`docs/semantics_contract.md`; measured by `bench/semantics.py`,
on emulated cores too).
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
