"""CPUs that a program may be optimized for (`lower(..., cpu=...)`): a family, or one core.

The option affects costs only. The program runs on any CPU: rewrites rely only on behavior that the
kernels of all families share (`docs/semantics_contract.md`; measured by `bench/semantics.py`, on
emulated cores too). `x86-64` means any x86 CPU, as if no CPU were named; `x86-64-avx512` one that
has VNNI, too.
"""

CPUS = (
    "x86-64",
    "x86-64-avx2",
    "x86-64-avx512",
    "arm64",
    "cortex-a53",
    "cortex-a55",
    "cortex-a76",
    "cortex-a710",
    "neoverse-v1",
)
