"""The Ethos-U accelerators that Vela compiles for."""

from __future__ import annotations

from collections.abc import Mapping

FAMILIES: Mapping[str, tuple[str, str, tuple[int, ...]]] = {
    "ethos-u55": ("Ethos_U55_High_End_Embedded", "Shared_Sram", (32, 64, 128, 256)),
    "ethos-u65": ("Ethos_U65_High_End", "Dedicated_Sram_384KB", (256, 512)),
    "ethos-u85": ("Ethos_U85_SYS_DRAM_Mid", "Sram_Only", (128, 256, 512, 1024, 2048)),
}
"""System, memory mode (as in ExecuTorch's own flow) and MACs of each family."""

ACCELERATORS = tuple(f"{name}-{macs}" for name, (_, _, sizes) in FAMILIES.items() for macs in sizes)
"""Names of accelerators; each is also a target."""
