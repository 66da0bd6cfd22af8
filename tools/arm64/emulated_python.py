"""Python for Arm64 with ONNX Runtime and LiteRT, in addition to the result of `make arm64`.

    python tools/arm64/emulated_python.py

This unpacks Debian's Python 3.11 for arm64, the libraries that it loads, and the runtimes' aarch64
wheels: half a minute, 250 MB, once. Emulated, it runs like any other program; `bench/arm_peers.py`
uses it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from setup import MissingError, apt_get, run

from stepwell.backends.executorch.running import arm64

PACKAGES = ("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libexpat1",
            "zlib1g", "libffi8", "libbz2-1.0", "liblzma5", "libssl3", "libuuid1", "libstdc++6",
            "libgcc-s1", "libc6")  # fmt: skip
WHEELS = ("onnxruntime", "ai-edge-litert", "flatbuffers", "protobuf", "packaging", "tqdm",
          "typing_extensions", "backports.strenum", "numpy")  # fmt: skip
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_17_aarch64")
CPUINFO = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(open('/proc/cpuinfo').read())"


def root() -> Path:
    """Return its folder, within the folder of `make arm64`."""
    return arm64.folder() / "python"


def command(core: str, counts: Path | None = None) -> list[str]:
    """Return the command that starts it on a core; with instruction counts written to a file."""
    variables = {"PYTHONPATH": str(root() / "site"), "OMP_NUM_THREADS": "1"}
    program = [str(root() / "usr" / "bin" / "python3.11"), "-B"]
    return arm64.emulated(core, root(), variables, program, counts)


def make() -> None:
    """Install everything there.

    Raises:
        MissingError: a part is not available.
    """
    here = root()
    shutil.rmtree(here, ignore_errors=True)
    packages = here / "packages"
    packages.mkdir(parents=True)
    apt = [*apt_get(here / "apt"), "-oAPT::Architecture=arm64", "-oAPT::Architectures=arm64"]
    run(*apt, "update", "-qq")
    run(*apt, "download", "-qq", *(f"{name}:arm64" for name in PACKAGES), cwd=packages)
    for file in packages.glob("*.deb"):
        run("dpkg", "-x", file, here)
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:"]
    run(*pip, *platforms, "--python-version", "3.11", "--target", here / "site", *WHEELS)
    # The older emulator, which counts, shows this machine's processors, but runtimes look for an
    # Arm's.
    (here / "proc").mkdir(exist_ok=True)
    subprocess.run([*command("cortex-a76"), "-c", CPUINFO, here / "cpuinfo"], check=True)
    (here / "cpuinfo").rename(here / "proc" / "cpuinfo")
    for used in ("packages", "apt"):
        shutil.rmtree(here / used)


def main() -> int:
    """Create what is missing; report the state in a line."""
    if why := arm64.missing(counting=True):
        print(f"not set up: {why}")
        return 0
    if not (root() / "proc" / "cpuinfo").exists():
        try:
            make()
        except MissingError as missing:
            print(f"Python for Arm64 cannot be set up: {missing}")
            return 1
    print(f"Python for Arm64 is in {root()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
