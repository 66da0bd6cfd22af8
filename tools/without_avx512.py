"""Run a Python command as on a CPU with AVX2 and without AVX-512, at full speed.

    python tools/without_avx512.py --keep FOLDER [--packages PATH] -- bench/peers.py --keep FILES …

ExecuTorch's XNNPACK, ONNX Runtime and OpenVINO have no switch: they ask the CPU by its instruction
`cpuid`. This tool copies their packages to a folder, replaces each `cpuid` of their libraries by an
illegal instruction, and preloads a handler that answers without AVX-512, its extensions, GFNI and
AMX. PyTorch's oneDNN, ATen and MKL have switches, which it sets. Kernels for AVX2 then run on the
machine's own cores: ratios between them are those of a Zen 3 or Haswell within what caches and
widths of ports make (`docs/xnnpack.md` compares both). It needs gcc and objdump, on Linux x86-64.

`--packages` is a folder with further packages (`pip install --target`), such as the peers.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ("executorch", "torch", "onnxruntime", "openvino")
SWITCHED = ("libtorch_cpu.so", "gpu_plugin", "npu_plugin")
"""Libraries that obey a switch, or are not used."""
SWITCHES = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-AVX512CD",
}
CPUID, ILLEGAL = b"\x0f\xa2", b"\x0f\x0b"
FOUND = re.compile(r"^\s*([0-9a-f]+):\tcpuid", re.MULTILINE)
SEGMENT = re.compile(r"LOAD\s+0x(\w+)\s+0x(\w+)\s+0x\w+\s+0x(\w+)")
HANDLER = r"""
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <string.h>
#include <stdlib.h>
#include <ucontext.h>

static void answer(int signal_number, siginfo_t *info, void *raw) {
    greg_t *g = ((ucontext_t *)raw)->uc_mcontext.gregs;
    const unsigned char *at = (const unsigned char *)g[REG_RIP];
    unsigned leaf = (unsigned)g[REG_RAX], part = (unsigned)g[REG_RCX], a, b, c, d;
    if (at[0] != 0x0f || at[1] != 0x0b) abort();
    __cpuid_count(leaf, part, a, b, c, d);
    if (leaf == 7 && part == 0) {
        b &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28);
        b &= ~(1u << 30 | 1u << 31);
        c &= ~(1u << 1 | 1u << 6 | 1u << 8 | 1u << 11 | 1u << 12 | 1u << 14);
        d &= ~(1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25);
    } else if (leaf == 7) {
        a = b = c = d = 0;
    }
    g[REG_RAX] = a; g[REG_RBX] = b; g[REG_RCX] = c; g[REG_RDX] = d;
    g[REG_RIP] += 2;
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = answer;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGILL, &action, 0);
}
"""


def masked(library: Path) -> int:
    """Replace each `cpuid` of a library; return how many there were."""
    content = library.read_bytes()
    if CPUID not in content or any(name in library.name for name in SWITCHED):
        return 0
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", library], capture_output=True, text=True, check=True
    ).stdout
    headers = subprocess.run(
        ["readelf", "-lW", library], capture_output=True, text=True, check=True
    ).stdout
    segments = [tuple(int(x, 16) for x in found) for found in SEGMENT.findall(headers)]
    changed, count = bytearray(content), 0
    for address in (int(found, 16) for found in FOUND.findall(listing)):
        offset, start = next((o, v) for o, v, size in segments if v <= address < v + size)
        at = address - start + offset
        assert changed[at : at + 2] == CPUID
        changed[at : at + 2] = ILLEGAL
        count += 1
    if count:
        library.unlink()  # The copy is a hard link.
        library.write_bytes(changed)
        library.chmod(0o755)
    return count


def prepare(folder: Path, extra: list[str]) -> None:
    """Copy the packages to a folder, without `cpuid`."""
    for name in PACKAGES:
        places = [Path(path) / name for path in extra]
        found = importlib.util.find_spec(name)
        places += map(Path, found.submodule_search_locations or ()) if found else ()
        source = next((path for path in places if path.is_dir()), None)
        if source is None:
            continue
        shutil.copytree(source, folder / name, copy_function=_link, symlinks=True)
        libraries = [path for path in (folder / name).rglob("*.so*") if not path.is_symlink()]
        for library in libraries:
            if count := masked(library):
                print(f"{library.relative_to(folder)}: {count} replaced", file=sys.stderr)


def _link(source: str, target: str) -> None:
    """Link a file, or copy it where a folder is on another disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def main() -> int:
    """Prepare the folder if it is not there, and run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keep", type=Path, required=True, help="folder for the changed packages")
    parser.add_argument("--packages", action="append", default=[], help="a folder with packages")
    parser.add_argument("command", nargs="+", help="arguments for Python")
    options = parser.parse_args()
    if platform.machine() not in ("x86_64", "AMD64") or sys.platform != "linux":
        parser.error("this masks features of x86-64 on Linux")
    handler = options.keep / "handler.so"
    if not handler.exists():
        shutil.rmtree(options.keep, ignore_errors=True)
        options.keep.mkdir(parents=True)
        prepare(options.keep, options.packages)
        subprocess.run(
            ["gcc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", handler],
            input=HANDLER,
            text=True,
            check=True,
        )
    paths = [str(options.keep.resolve()), *options.packages, os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        **SWITCHES,
        "LD_PRELOAD": str(handler.resolve()),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    return subprocess.run(
        [sys.executable, *options.command], env=environment, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
