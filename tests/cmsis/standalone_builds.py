"""Building and running generated C: here under sanitizers, on emulated boards and cores."""

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stepwell.backends.cortex_m import c
from stepwell.backends.cortex_m.c.standalone import Sources
from stepwell.dialects.cmsis.target import CORES

STRICT = (
    "-std=c99 -Wall -Wextra -Werror -Wconversion -Wshadow -Wpedantic -Wstrict-prototypes".split()
)
SANITIZED = "-O1 -g -fsanitize=undefined,address -fno-sanitize-recover=all".split()
HAS_GCC = shutil.which("gcc") is not None
HAS_BOARDS = all(map(shutil.which, ("arm-none-eabi-gcc", "qemu-system-arm")))
HAS_RV32 = all(map(shutil.which, ("riscv64-unknown-elf-gcc", "qemu-riscv32")))
HAS_XTENSA = all(map(shutil.which, ("xtensa-lx106-elf-gcc", "qemu-xtensa")))
HAS_RVV = shutil.which("qemu-riscv32") and importlib.util.find_spec("ziglang")
HAS_WASM = all(importlib.util.find_spec(name) for name in ("ziglang", "wasmtime"))

BOARDS = {
    "cortex-m0plus": "mps2-an385",
    "cortex-m4": "mps2-an386",
    "cortex-m7": "mps2-an500",
    "cortex-m55": "mps3-an547",
}
"""CPU → the board of qemu that has it; each starts at address 0 with its vector table.

None has a Cortex-M0+ with the memory that a net takes: its code runs on a Cortex-M3, which has all
of its instructions.
"""
_STARTUP = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
extern uint32_t stack_top;
extern void initialise_monitor_handles(void);
int main(void);
void reset(void);
void _init(void);
void _fini(void);
void _init(void) { }
void _fini(void) { }
void reset(void)
{
    extern uint32_t bss_start, bss_end;
    for (volatile uint32_t *to = &bss_start; to < &bss_end; to++) { *to = 0; }
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* floating point on */
    __asm__ volatile("dsb; isb");
    initialise_monitor_handles();
    if (!freopen("input", "rb", stdin) || !freopen("output", "wb", stdout)) { exit(9); }
    exit(main());
}
__attribute__((section(".vectors"), used))
static const void *const vectors[2] = {&stack_top, (const void *)reset};
"""
"""Runs the program's own `main` on a file, by semihosting."""
_LINK = """
MEMORY {{
  FLASH : ORIGIN = {flash}, LENGTH = {flash_size}
  RAM : ORIGIN = {ram}, LENGTH = {ram_size}
}}
SECTIONS {{
  .text : {{ KEEP(*(.vectors)) *(.text*) *(.rodata*) }} > FLASH
  .ARM.exidx : {{ *(.ARM.exidx*) }} > FLASH
  .data : {{ *(.data*) }} > RAM
  .bss : {{ bss_start = .; *(.bss*) *(COMMON) . = ALIGN(8); bss_end = .; end = .; }} > RAM
  stack_top = ORIGIN(RAM) + LENGTH(RAM);
}}
"""
"""Data is in RAM from the start: qemu puts it there."""
_PLACES = {
    "cortex-m4": {"flash": "0", "flash_size": "4M", "ram": "0x20000000", "ram_size": "4M"},
    "cortex-m55": {"flash": "0", "flash_size": "512K", "ram": "0x21000000", "ram_size": "2M"},
}
_PLACES["cortex-m0plus"] = _PLACES["cortex-m7"] = _PLACES["cortex-m4"]


def run_on_host(
    sources: Sources,
    folder: Path,
    inputs: Sequence[Tensor],
    library: Sequence[str | Path] = (),
    *,
    compiler: str = "gcc",
    method: str | None = None,
) -> bytes:
    """What the program writes for inputs as they lie in memory, built strictly and sanitized."""
    sources.save(folder)
    names = [name for name in sources.files if name.endswith(".c")]
    strict = STRICT if compiler == "gcc" else ["-std=c++20", "-x", "c++", *STRICT[1:-1]]
    command = [compiler, *strict, *SANITIZED, *names, *library, "-o", "program", "-lm"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    given = b"".join(in_memory(x).numpy().tobytes() for x in inputs)
    program = [folder / "program", *([] if method is None else [method])]
    done = subprocess.run(program, input=given, capture_output=True, check=True)
    return done.stdout


def own_cmsis_nn(folder: Path) -> list[str | Path]:
    """What links a program with CMSIS-NN's functions over the portable kernels."""
    folder.mkdir(exist_ok=True)
    beside, made = Path(__file__).with_name("cmsis_nn"), folder / "cmsis_nn.o"
    sources = Path(c.__file__).parent
    includes = ["-I", beside, "-I", sources]
    command = ["gcc", "-std=c99", *SANITIZED, *includes, "-c", beside / "over_portable_kernels.c"]
    done = subprocess.run([*command, "-o", made], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ["-isystem", beside, made]


def built_cmsis_nn() -> list[str | Path]:
    """What links a program with the CMSIS-NN that the environment names, built for this machine."""
    where = Path(os.environ["CMSIS_NN"])
    return ["-isystem", where / "Include", where / "libcmsis-nn.a"]


def in_memory(value: Tensor) -> Tensor:
    """Elements in the order in which they lie."""
    order = sorted(range(value.dim()), key=lambda axis: (-value.stride(axis), axis))
    return value.permute(order).contiguous()


def equals(value: Tensor, data: bytes) -> bool:
    """Whether bytes are those of a tensor in memory."""
    return torch.equal(
        torch.frombuffer(bytearray(data), dtype=value.dtype), in_memory(value).flatten()
    )


def sizes_on(cpu: str, sources: Sources, folder: Path) -> dict[str, int]:
    """Bytes of code, constants, RAM and the stack of the four deepest functions."""
    sources.save(folder)
    compile_for(cpu, ["model.c", "-c", "-fstack-usage"], folder)
    command = ["arm-none-eabi-size", "-A", "model.o"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    section = {
        m[1]: int(m[2]) for m in re.finditer(r"^(\.\w+\S*)\s+(\d+)", done.stdout, re.MULTILINE)
    }
    stack = [int(line.split("\t")[1]) for line in (folder / "model.su").read_text().splitlines()]
    code = sum(size for name, size in section.items() if name.startswith(".text"))
    flash = sum(size for name, size in section.items() if name.startswith(".rodata"))
    ram = sum(size for name, size in section.items() if name.startswith((".bss", ".data")))
    return {"code": code, "constants": flash, "ram": ram, "stack": sum(sorted(stack)[-4:])}


def compile_for(cpu: str, arguments: Sequence[str], folder: Path) -> None:
    """Run the cross compiler."""
    flags = [*CORES[cpu].flags, "-O2", "-ffreestanding", *STRICT[1:5], "-std=gnu99"]
    command = ["arm-none-eabi-gcc", *flags, *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)


def run_on_files(
    cpu: str,
    sources: Sources,
    folder: Path,
    inputs: Sequence[Tensor],
    *,
    cxx: bool = False,
    library: Sequence[str | Path] = (),
    flags: Sequence[str] = (),
    emulator: Sequence[str] = (),
) -> bytes:
    """What the program's `main`, built strictly for a CPU, writes on the board for inputs.

    Args:
        cpu: a key of `BOARDS`.
        sources: the program.
        folder: where it is built.
        inputs: of one call after the other.
        cxx: whether it is built as C++.
        library: what is linked with it.
        flags: further flags of the compiler.
        emulator: further flags of qemu.
    """
    sources.save(folder)
    (folder / "startup.c").write_text(_STARTUP)
    (folder / "link.ld").write_text(_LINK.format(**_PLACES[cpu]))
    (folder / "input").write_bytes(b"".join(in_memory(x).numpy().tobytes() for x in inputs))
    machine = [*CORES[cpu].flags, "-O2", "-ffunction-sections"]
    as_cxx = ["-std=c++20", "-fno-exceptions", "-x", "c++", *STRICT[1:-1]]
    strict = as_cxx if cxx else STRICT
    names = [name for name in sources.files if name.endswith(".c")]
    compiler = "arm-none-eabi-g++" if cxx else "arm-none-eabi-gcc"
    own = [*machine, *strict, *flags, "-c"]

    def run(*command: object) -> None:
        given = list(map(str, command))
        subprocess.run(given, cwd=folder, check=True, capture_output=True, text=True)

    for name in names:
        run(compiler, *own, name, "-o", f"{name}.o")
    run("arm-none-eabi-gcc", *machine, "-c", "startup.c", "-o", "startup.o")
    objects = [*(f"{name}.o" for name in names), "startup.o"]
    start = ["--specs=rdimon.specs", "-nostartfiles", "-Wl,--gc-sections", "-T", "link.ld"]
    run("arm-none-eabi-gcc", *machine, *start, *objects, *library, "-lm", "-o", "image")
    quiet = "-display none -serial none -monitor none -semihosting -kernel image".split()
    board = ["qemu-system-arm", "-M", BOARDS[cpu], *quiet, *emulator]
    subprocess.run(board, cwd=folder, check=True, capture_output=True, timeout=600)
    return (folder / "output").read_bytes()


# -- other cores ----------------------------------------------------------------------------------

_QEMU = {
    "c-rv32imc": "qemu-riscv32 -cpu rv32,a=false,f=false,d=false".split(),
    "c-rv32imafc": "qemu-riscv32 -cpu rv32,d=false".split(),
    "c-rv32gcv": "qemu-riscv32 -cpu rv32,v=true,vlen=128,vext_spec=v1.0".split(),
    "c-xtensa": "qemu-xtensa -cpu lx106".split(),
}
"""Target → qemu with a core without the extensions that it lacks."""
_PICOLIBC = {
    "c-rv32imc": ["riscv64-unknown-elf-gcc", "--specs=picolibc.specs"],
    "c-rv32imafc": ["riscv64-unknown-elf-gcc", "--specs=picolibc.specs"],
    "c-xtensa": [
        "xtensa-lx106-elf-gcc",
        "--specs=/usr/lib/xtensa-lx106-elf/picolibc.specs",
        "-mtext-section-literals",
    ],
}
"""Target → the compiler with its C library. The Xtensa one has no functions of floats."""


def run_on_core(
    cpu: str,
    sources: Sources,
    folder: Path,
    inputs: Sequence[Tensor],
    *,
    flags: Sequence[str] = (),
    library: Sequence[str | Path] = (),
    emulator: Sequence[str] = (),
    cxx: bool = False,
) -> bytes:
    """What a program, built strictly for a core, writes for inputs as they lie in memory.

    Args:
        cpu: a key of `BOARDS`, or a target `c-…`.
        sources: the program.
        folder: where it is built.
        inputs: of one call after the other.
        flags: further flags of the compiler.
        library: what is linked with it.
        emulator: further flags of qemu.
        cxx: whether it is built as C++, on a board.
    """
    if cpu in BOARDS:
        return run_on_files(
            cpu, sources, folder, inputs, cxx=cxx, library=library, flags=flags, emulator=emulator
        )
    sources.save(folder)
    given = b"".join(in_memory(x).numpy().tobytes() for x in inputs)
    names = [name for name in sources.files if name.endswith(".c")]
    machine = [*CORES[cpu].flags, "-O2", "-ffp-contract=off"]
    strict = [*STRICT, *flags]

    def run(*command: object) -> None:
        told = list(map(str, command))
        subprocess.run(told, cwd=folder, check=True, capture_output=True, text=True)

    zig = [sys.executable, "-m", "ziglang", "cc"]
    if "wasm" in cpu:
        run(*zig, *machine, "-s", *strict, *names, *library, "-o", "program.wasm")
        return _run_wasm(folder, given)
    if cpu == "c-rv32gcv":  # zig names a core otherwise than Clang.
        named = ["-target", "riscv32-linux-musl", "-mcpu=generic_rv32+m+a+f+d+c+v", "-static"]
        run(*zig, *named, *machine[2:], *strict, *names, *library, "-lm", "-o", "program")
    else:
        places = "__flash=0x10000 __flash_size=16M __ram=0x2000000 __ram_size=16M".split()
        memory = [f"-Wl,--defsym={place}" for place in places]
        compiler = [*_PICOLIBC[cpu], *machine]
        run(*compiler, "-c", Path(__file__).with_name("linux_start.c"), "-o", "start.o")
        objects = ["-nostartfiles", *memory, "start.o", *names, *library, "-lm"]
        run(*compiler, *strict, *objects, "-o", "program")
    command = [*_QEMU[cpu], *emulator, folder / "program"]
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout


def _run_wasm(folder: Path, given: bytes) -> bytes:
    wasmtime: Any = importlib.import_module("wasmtime")
    (folder / "input").write_bytes(given)
    engine = wasmtime.Engine()
    store, files, linker = wasmtime.Store(engine), wasmtime.WasiConfig(), wasmtime.Linker(engine)
    files.stdin_file, files.stdout_file = str(folder / "input"), str(folder / "output")
    store.set_wasi(files)
    linker.define_wasi()
    module = wasmtime.Module.from_file(engine, str(folder / "program.wasm"))
    try:
        linker.instantiate(store, module).exports(store)["_start"](store)
    except wasmtime.ExitTrap as end:
        assert end.code == 0, f"the program returns {end.code}"
    return (folder / "output").read_bytes()
