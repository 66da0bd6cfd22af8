"""Compile TOSA to the payload of ExecuTorch's Ethos-U backend, by Vela in a separate process.

The payload is a sequence of blocks (`arm_vela.py` of the ExecuTorch wheel): a header of 32 bytes
(name, length, whether the data is stored elsewhere), then the data padded to 16 bytes.
"""

import csv
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.dialects.ethosu import VelaConfig
from stepwell.ir.diagnostics import ParseFailure, StepwellError, UnsupportedError

BACKEND = "EthosUBackend"
OWN_FILE = "Arm/vela.ini"
"""Vela's own file of configurations, by the name that Vela resolves."""
FAMILIES: Mapping[str, tuple[str, str, tuple[int, ...]]] = {
    "ethos-u55": ("Ethos_U55_High_End_Embedded", "Shared_Sram", (32, 64, 128, 256)),
    "ethos-u65": ("Ethos_U65_High_End", "Dedicated_Sram_384KB", (256, 512)),
    "ethos-u85": ("Ethos_U85_SYS_DRAM_Mid", "Sram_Only", (128, 256, 512, 1024, 2048)),
}
"""System, memory mode (as in ExecuTorch's own flow) and MACs of each family."""

ACCELERATORS = tuple(f"{name}-{macs}" for name, (_, _, sizes) in FAMILIES.items() for macs in sizes)
"""Names of accelerators; each is also a target."""
_HEADER = struct.Struct("<16sIB11s")
_ALIGNMENT = 16
_PORT = struct.Struct("<9i")


@dataclass(frozen=True)
class Estimate:
    """Vela's estimate of a delegate's cost: cycles, memory, multiplications."""

    cycles: int
    sram: int
    """Bytes of SRAM."""
    flash: int
    """Bytes of flash or DRAM off the chip."""
    macs: int
    """Multiplications and additions."""
    on_chip: int = 0
    """Bytes of memory for constants on the chip (`Sram_Only`)."""
    clock: float = 0.0
    """The clock of the cycles, in Hz."""
    system_config: str = ""
    memory_mode: str = ""

    def __str__(self) -> str:
        places = ("SRAM", self.sram), ("flash or DRAM", self.flash), ("on the chip", self.on_chip)
        held = [f"{self.cycles} cycles at {self.clock / 1e6:g} MHz"]
        held += [f"{name} {size} B" for name, size in places if size]
        return f"{', '.join(held)} ({self.system_config}, {self.memory_mode})"


@dataclass(frozen=True)
class Compiled:
    """A delegate's payload and its estimate."""

    payload: bytes
    estimate: Estimate


def is_installed() -> bool:
    """Whether Vela is installed."""
    return find_spec("ethosu") is not None


def default_config(accelerator: str) -> VelaConfig:
    """Return the board that ExecuTorch's flow assumes for an accelerator."""
    system, memory, _ = FAMILIES[accelerator.rpartition("-")[0]]
    return VelaConfig(system, memory)


def compiler_flags(accelerator: str, config: VelaConfig, file: str) -> list[str]:
    """Return Vela's flags, in the order of ExecuTorch's `EthosUCompileSpec`."""
    return [
        f"--accelerator-config={accelerator}",
        f"--config={file}",
        "--output-format=raw",
        f"--system-config={config.system_config}",
        f"--memory-mode={config.memory_mode}",
    ]


@lru_cache(maxsize=32)
def compile_tosa(data: bytes, accelerator: str, config: VelaConfig | None = None) -> Compiled:
    """Compile a TOSA flatbuffer for a board; recent results are cached.

    Raises:
        StepwellError: Vela is not installed, or the accelerator is unknown.
        UnsupportedError: Vela refuses the graph; the message is Vela's.
    """
    if accelerator not in ACCELERATORS:
        raise StepwellError(
            f"accelerator {accelerator!r} is unknown", help="known are " + ", ".join(ACCELERATORS)
        )
    if not is_installed():
        raise StepwellError("Vela is not installed", help="pip install 'stepwell[ethos-u]'")
    config = config or default_config(accelerator)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.tosa"
        path.write_bytes(data)
        board = Path(folder) / "board.ini"
        if config.settings:
            board.write_text(config.settings)
        flags = compiler_flags(accelerator, config, str(board) if config.settings else OWN_FILE)
        command = [sys.executable, "-m", "ethosu.vela", *flags, f"--output-dir={folder}/made"]
        command.append(str(path))
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        made = Path(folder) / "made"
        archive = made / "out_vela.npz"
        if done.returncode or not archive.exists():
            raise UnsupportedError(
                f"Vela refuses the delegate for {accelerator}: {_complaint(done)}",
                help="the model's other targets, tosa-1.0+int and cortex-m*, may accept it",
            )
        with np.load(archive, allow_pickle=False) as arrays:
            payload = b"".join(_block(name, held) for name, held in _blocks(arrays))
        return Compiled(payload, _estimate(made))


def _complaint(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    told = [line for line in lines if "rror" in line or "could not" in line]
    return " ".join((told or lines or ["no word"])[-2:])


def _blocks(arrays: Any) -> Iterator[tuple[str, bytes]]:
    yield "vela_bin_stream", b""
    yield "cmd_data", arrays["cmd_data"].tobytes()
    yield "weight_data", arrays["weight_data"].tobytes()
    yield "scratch_size", struct.pack("<I", int(arrays["scratch_shape"][0]))
    for side in ("input", "output"):
        shapes = arrays[f"{side}_shape"]
        ports = [
            _PORT.pack(
                *(int(size) for size in shape),
                *(
                    _int32(arrays[f"{side}_{what}"][i])
                    for what in ("elem_size", "offset", "region")
                ),
            )
            for i, shape in enumerate(shapes)
        ]
        yield f"{side}s", struct.pack("<i", len(shapes)) + b"".join(ports)
    yield "vela_end_stream", b""


def _int32(value: Any) -> int:
    """Convert a number of any NumPy type; the largest unsigned one becomes −1."""
    return int(np.asarray(value).astype(np.int64))


def _block(name: str, data: bytes) -> bytes:
    header = _HEADER.pack(name.encode()[:15], len(data), 0, bytes(11))
    # An empty block is followed by 16 bytes of padding, as the runtime's reader expects.
    return header + data + bytes(_ALIGNMENT - 1 - (len(data) - 1) % _ALIGNMENT)


def _estimate(folder: Path) -> Estimate:
    found = next(iter(sorted(folder.glob("*summary*.csv"))), None)
    if found is None:
        return Estimate(0, 0, 0, 0)
    with found.open() as file:
        row = next(csv.DictReader(file))

    def number(*names: str) -> float:
        return next((float(row[name]) for name in names if row.get(name)), 0.0)

    kilobytes = 1024
    return Estimate(
        cycles=round(number("cycles_total")),
        sram=round(number("sram_memory_used") * kilobytes),
        flash=round(
            (number("off_chip_flash_memory_used") + number("dram_memory_used")) * kilobytes
        ),
        macs=round(number("nn_macs")),
        on_chip=round(number("on_chip_flash_memory_used") * kilobytes),
        clock=number("core_clock"),
        system_config=row.get("system_config", ""),
        memory_mode=row.get("memory_mode", ""),
    )


@dataclass(frozen=True)
class Port:
    """One input or output of a delegate: six sizes, bytes of an element, its offset."""

    sizes: tuple[int, ...]
    element: int
    offset: int
    region: int


@dataclass(frozen=True)
class CommandStream:
    """The parsed payload of an Ethos-U delegate."""

    commands: bytes
    weights: bytes
    scratch: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def read_stream(payload: bytes) -> CommandStream:
    """Read the blocks of a payload.

    Raises:
        ParseFailure: the bytes are not a payload, or a block is missing.
    """
    blocks: dict[str, bytes] = {}
    at = 0
    while at + _HEADER.size <= len(payload):
        raw, length, _, _ = _HEADER.unpack_from(payload, at)
        name = raw.rstrip(b"\0").decode("latin-1")
        at += _HEADER.size
        if at + length > len(payload):
            raise ParseFailure(f"block {name} of an Ethos-U delegate ends after its payload")
        blocks[name] = bytes(payload[at : at + length])
        at += length + _ALIGNMENT - 1 - (length - 1) % _ALIGNMENT
        if name == "vela_end_stream":
            break
    wanted = ("vela_bin_stream", "cmd_data", "weight_data", "scratch_size", "inputs", "outputs")
    if missing := [name for name in wanted if name not in blocks]:
        raise ParseFailure(f"an Ethos-U delegate lacks the blocks {', '.join(missing)}")
    try:
        (scratch,) = struct.unpack("<I", blocks["scratch_size"])
        return CommandStream(
            blocks["cmd_data"],
            blocks["weight_data"],
            scratch,
            _ports(blocks["inputs"]),
            _ports(blocks["outputs"]),
        )
    except struct.error as error:
        raise ParseFailure(f"a block of an Ethos-U delegate is damaged: {error}") from None


def _ports(data: bytes) -> tuple[Port, ...]:
    (count,) = struct.unpack_from("<i", data)
    ports: list[Port] = []
    for index in range(count):
        numbers = _PORT.unpack_from(data, 4 + index * _PORT.size)
        ports.append(Port(numbers[:6], *numbers[6:]))
    return tuple(ports)
