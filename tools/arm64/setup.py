"""Install ExecuTorch's runtime for Arm64, an emulator and the runner into a folder: `make arm64`.

    python tools/arm64/setup.py            once; a second call finds everything and does nothing
    python tools/arm64/setup.py --anew     from the start

Nothing is installed in the system and no root is needed: Debian's packages are fetched by apt with
a state of its own and unpacked; the runtime is the aarch64 wheel of the installed executorch. If a
part is not available, the folder says so (`missing.txt`), the exit status is 0, and tests that need
a core are skipped with that reason.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from stepwell.backends.executorch.running.arm64 import CORES, FIRST, MADE, folder, version

HERE = Path(__file__).parent
PACKAGES = ("qemu-user", "g++-aarch64-linux-gnu")
OWN = re.compile(r"Package: (qemu-user|.*-(aarch64-linux-gnu|arm64-cross))\b")
"""The packages that are unpacked even if dpkg's status lists them as installed."""
NOT_NEEDED = re.compile(r"lib(asan|tsan|ubsan|hwasan|lsan|itm|gomp)\d")
LIBRARIES = ("executorch", "executorch_backend_xnnpack", "executorch_kernels_optimized",
             "executorch_kernels_quantized", "executorch_threadpool")  # fmt: skip
CUSTOM = "executorch/extension/llm/custom_ops/libcustom_ops_aot_lib.so"
TORCH = ("libtorch_cpu.so", "libtorch.so", "libc10.so", "_C.cpython-311-aarch64-linux-gnu.so")


class MissingError(Exception):
    """A part that is not available here, and why."""


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output.

    Raises:
        MissingError: it fails, or does not exist.
    """
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise MissingError(f"there is no {command[0]} here") from None
    if done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise MissingError(f"{Path(command[0]).name} failed: {output[-1]}")
    return done.stdout


def fetch_runtime(into: Path) -> None:
    """Fetch the aarch64 wheel of the installed executorch: libraries and headers."""
    version = importlib.metadata.version("executorch").partition("+")[0]
    where = ["--platform", "manylinux_2_28_aarch64", "--only-binary=:all:", "--python-version"]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *where]
    run(*pip, "3.11", f"executorch=={version}", "-d", into)
    wheel = next(into.glob("executorch-*.whl"))
    with zipfile.ZipFile(wheel) as held:
        names = [name for name in held.namelist() if _is_wanted(name)]
        held.extractall(into, names)
    wheel.unlink()
    (into / "lib").mkdir()
    for path in (*into.glob("executorch/lib/*.so"), into / CUSTOM):
        path.rename(into / "lib" / path.name)


def _is_wanted(name: str) -> bool:
    return name.startswith("executorch/include/") or (
        (name.startswith("executorch/lib/") and name.endswith(".so")) or name == CUSTOM
    )


def fetch_packages(into: Path) -> str | None:
    """Fetch and unpack the emulator and the cross compiler; newer emulators if there are backports.

    Returns why there are no newer ones.
    """
    apt = apt_get(into / "apt")
    run(*apt, "update", "-qq")
    listed = run(*apt, "install", "-qq", "-y", "--no-install-recommends", "--print-uris", *PACKAGES)
    files = [line.split()[1] for line in listed.splitlines() if line.startswith("'")]
    names = [file.partition("_")[0] for file in files]
    names = [name for name in names if not NOT_NEEDED.match(name)]
    packages = into / "packages"
    packages.mkdir()
    run(*apt, "download", "-qq", *names, cwd=packages)
    for file in packages.glob("*.deb"):
        run("dpkg", "-x", file, into / "debian")
        file.unlink()
    newer = f"qemu-user/{_codename()}-backports"
    try:
        run(*apt, "download", "-qq", newer, cwd=packages)
    except MissingError as missing:
        return str(missing)
    for file in packages.glob("*.deb"):
        run("dpkg", "-x", file, into / "newer")
    return None


def apt_get(state: Path) -> list[str]:
    """Return an apt-get command with this machine's sources and backports of them, and a state of
    its own.
    """
    (state / "lists" / "partial").mkdir(parents=True)
    (state / "cache" / "archives" / "partial").mkdir(parents=True)
    sources = state / "sources"
    sources.mkdir()
    system = Path("/etc/apt/sources.list.d/debian.sources")
    if system.exists():
        text = system.read_text()
        code = _codename()
        shutil.copy(system, sources)
        first = text.partition("\n\n")[0]
        (sources / "backports.sources").write_text(
            re.sub(r"(?m)^Suites:.*$", f"Suites: {code}-backports", first) + "\n"
        )
        parts = sources
    else:
        parts = Path("/etc/apt/sources.list.d")
    system_status = Path("/var/lib/dpkg/status")
    if not system_status.exists():
        raise MissingError("this is not Debian, whose packages are needed")
    # Packages that this machine has installed would otherwise not be listed.
    packages = system_status.read_text().split("\n\n")
    status = state / "status"
    status.write_text("\n\n".join(text for text in packages if not OWN.match(text)))
    main = "/dev/null" if system.exists() else "/etc/apt/sources.list"
    options = {
        "Dir::State": state,
        "Dir::State::lists": state / "lists",
        "Dir::State::status": status,
        "Dir::Cache": state / "cache",
        "Dir::Etc::sourcelist": main,
        "Dir::Etc::sourceparts": parts,
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "1",
    }
    return ["apt-get", *(f"-o{name}={value}" for name, value in options.items())]


def _codename() -> str:
    release = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    found = re.search(r"^VERSION_CODENAME=(.*)$", release, re.M)
    return found[1].strip('"') if found else "stable"


def build(into: Path) -> None:
    """Build the runner, the torch stub for the custom operators, and the tools' wrappers."""
    debian = into / "debian"
    (into / "root").symlink_to("debian/usr/aarch64-linux-gnu")
    compiler = _wrapper(into / "g++", debian, "aarch64-linux-gnu-g++")
    _wrapper(into / "objdump", debian, "aarch64-linux-gnu-objdump")
    runtime = into / "executorch" / "include"
    run(
        *(compiler, f"--sysroot={debian}", "-std=c++17", "-O1", "-w", HERE / "runner.cpp"),
        *("-o", into / "runner", f"-I{runtime}", "-DC10_USING_CUSTOM_GENERATED_MACROS"),
        f"-I{runtime}/executorch/runtime/core/portable_type/c10",
        *(f"-L{into / 'lib'}", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN/lib"),
        *(f"-l{name}" for name in LIBRARIES),
        "-ldl",
    )
    _stand_in_for_torch(into, compiler)
    write_first(into / FIRST)


def write_first(path: Path) -> None:
    """Write a first program: a layer, a convolution, a softmax and a kernel of the runtime."""
    import torch
    from torch import nn

    import stepwell

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.convolution = nn.Linear(16, 16), nn.Conv2d(3, 8, 3)

        def forward(
            self, rows: torch.Tensor, image: torch.Tensor, integers: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            return self.layer(rows).softmax(-1), self.convolution(image).relu(), integers + 1

    inputs = torch.zeros(2, 16), torch.zeros(1, 3, 6, 6), torch.zeros(2, 2, dtype=torch.int64)
    path.write_bytes(stepwell.lower(torch.export.export(Parts(), inputs), "xnnpack").to_pte())


def _stand_in_for_torch(into: Path, compiler: Path) -> None:
    """Build a stub library with torch's symbols that the custom operators' library needs.

    That library registers its kernels with ExecuTorch's runtime and with torch. Only the first is
    useful here, and the second would require torch for aarch64, 427 MB. Every function returns the
    address of zeros; memory for a result that the caller passes in register x8 is filled with
    zeros.
    """
    tool = _wrapper(into / "nm", into / "debian", "aarch64-linux-gnu-nm")
    root = into / "root" / "lib"
    system = [root / name for name in ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1")]
    custom = into / "lib" / Path(CUSTOM).name
    others = [path for path in (into / "lib").glob("*.so") if path != custom]
    known = _symbols(run(tool, "-D", "--defined-only", *others, *system))
    wanted = _symbols(run(tool, "-D", "--undefined-only", custom), kind="U") - known
    schema = 120  # sizeof(c10::FunctionSchema), as that library allocates it
    sizes = {"make_function_schema": schema, "parseSchema": schema, "OptionalType3get": 16}
    lines = [".bss", ".balign 16", "zeros: .skip 4096", ".text"]
    for symbol in sorted(name for name in wanted if name.startswith(("_Z", "_ZN"))):
        is_data = symbol.endswith("_singletonE")
        lines += [f".globl {symbol}", f".type {symbol}, {'%object' if is_data else '%function'}"]
        if is_data:
            lines += [".data", f"{symbol}: .skip 256", f".size {symbol}, 256", ".text"]
            continue
        size = next((size for part, size in sizes.items() if part in symbol), 0)
        lines.append(f"{symbol}:")
        lines += [f"    str xzr, [x8, #{at}]" for at in range(0, size, 8)]
        lines += ["    adrp x0, zeros", "    add x0, x0, :lo12:zeros", "    ret"]
    source = into / "torch.s"
    source.write_text("\n".join(lines) + "\n")
    run(compiler, "-shared", "-nostdlib", source, "-o", into / "lib" / TORCH[0])
    for name in TORCH[1:]:
        (into / "lib" / name).symlink_to(TORCH[0])


def _symbols(listed: str, kind: str | None = None) -> set[str]:
    """Parse the names in the output of `nm`."""
    words = [line.split() for line in listed.splitlines()]
    return {w[-1].partition("@")[0] for w in words if len(w) > 1 and (kind is None or kind in w)}


def _wrapper(path: Path, debian: Path, tool: str) -> Path:
    """Write a script that starts one of the unpacked programs with its libraries."""
    places = [str(place) for place in debian.glob("usr/lib/*-linux-gnu") if place.is_dir()]
    path.write_text(
        f"#!/bin/sh\nPATH={shlex.quote(str(debian / 'usr/bin'))}:$PATH "
        f"LD_LIBRARY_PATH={shlex.quote(os.pathsep.join(places))} "
        f'exec {shlex.quote(str(debian / "usr/bin" / tool))} "$@"\n'
    )
    path.chmod(0o755)
    return path


def find_emulators(into: Path) -> str:
    """Find an emulator for each core; with the plug-in, if this machine has a compiler.

    Returns what is missing.
    """
    emulators = into / "emulators"
    emulators.mkdir()
    debian = _wrapper(emulators / "debian", into / "debian", "qemu-aarch64")
    newer = into / "newer" / "usr" / "bin" / "qemu-aarch64"
    lacking: list[str] = []
    cores: list[str] = []
    for core in CORES:
        knows = next((e for e in (newer, debian) if e.exists() and core in _cores(e)), None)
        if knows is None:
            lacking.append(core)
            continue
        cores.append(core)
        (emulators / core).symlink_to(knows)
    (into / "cores.txt").write_text(" ".join(cores))
    (emulators / "counting").symlink_to(debian)
    plugin = into / "count.so"
    try:
        run("cc", "-O2", "-shared", "-fPIC", HERE / "count.c", "-o", plugin)
        start = ("-L", into / "root", "-plugin", f"{plugin},to=/dev/null", into / "runner")
        run(emulators / "counting", *start)
    except MissingError as missing:
        plugin.unlink(missing_ok=True)
        lacking.append(f"counts of instructions: {missing}")
    return f" without {', '.join(lacking)}" if lacking else ""


def _cores(emulator: Path) -> list[str]:
    """List the cores that an emulator supports; its exit status is an error even on success."""
    listed = subprocess.run([emulator, "-cpu", "help"], capture_output=True, text=True, check=False)
    return listed.stdout.split()


def make(into: Path) -> str:
    """Create everything in an empty folder, and return a line about it."""
    if sys.platform != "linux" or not shutil.which("dpkg"):
        raise MissingError("Debian's packages are needed, and this is not Debian")
    fetch_runtime(into)
    why = fetch_packages(into)
    build(into)
    lacking = find_emulators(into)
    shutil.rmtree(into / "apt")
    for path in into.glob("*/usr/bin/qemu-*"):
        if path.name != "qemu-aarch64":
            path.unlink()  # Emulators of other machines.
    return lacking + (f" ({why})" if why and lacking else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Create what is missing; report the state in a line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--anew", action="store_true", help="create everything from scratch")
    options = parser.parse_args(arguments)
    here = folder()
    made = here / MADE
    if not options.anew and made.exists() and made.read_text() == version():
        print(f"Arm64 is in {here}: {(here / 'cores.txt').read_text()}")
        return 0
    started = time.perf_counter()
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    try:
        lacking = make(here)
    except MissingError as missing:
        (here / "missing.txt").write_text(str(missing))
        print(f"Arm64 cannot be set up: {missing}")
        return 0
    made.write_text(version())
    cores = (here / "cores.txt").read_text()
    print(f"Arm64 is in {here} after {time.perf_counter() - started:.0f} s: {cores}{lacking}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
