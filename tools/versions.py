"""Run the quick suite on other versions of stepwell's dependencies, and check what resolves
together with it.

    python tools/versions.py --folder .venv-versions --table docs/versions.md
    python tools/versions.py --python python3.12 --executorch 1.5.1 --xdsl 0.74.0
    python tools/versions.py --resolve --table docs/versions.md    # by uv, nothing is installed

pip creates one environment for each Python and torch from the configured index. ExecuTorch and xDSL
change within it, and stepwell is installed as a wheel. With --folder the environments and rows are
kept: measured combinations are not measured again (except with --again), and a run in another
place, for example a chroot with another Python, adds its rows. A missing interpreter becomes a row
that says so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
EXECUTORCH = ("1.4.1", "1.5.1")
XDSL = ("0.73.0", "0.74.0", "0.75.0")
TORCH = ("2.13.0",)
TOOLS = (
    "pytest>=9",
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "tosa-tools>=2026.5",
    "ml_dtypes>=0.5",
)
PARTITIONER = "tests/workbench/test_partitioner.py::test_"
FLOW = f"{PARTITIONER}the_flow_has_the_delegates_of_lower_and_the_numbers_of_the_model"
RECIPE = "a_recipe_gives_one_delegate_and_the_numbers_of_executorchs"
ARTIFACT = "test_the_text_of_every_stage_gives_the_artifact_of_the_direct_way"
TEXTS = f"tests/levels/test_stages.py::{ARTIFACT}"
KERNELS = "tests/executorch/test_models.py::test_a_model_on_kernels_alone_gives_what_pytorch_gives"
LOADED = "tests/workbench/test_short_ways.py::test_"
SUITE = (
    "tests/test_private_names.py::test_a_private_name_is_where_its_adapter_says",
    "tests/test_dependencies.py::test_xnnpack_needs_the_packages_of_no_other_target",
    *(f"{KERNELS}[{one}]" for one in ("gpt2:gpt2_2layers", "control_flow:cond_model")),
    *(f"{FLOW}[{one}]" for one in ("attention", "words", "two outputs", "kernels between")),
    f"{PARTITIONER}a_flow_that_decomposes_first_is_refused",
    f"tests/workbench/test_recipes.py::test_{RECIPE}[FP32]",
    *(f"{TEXTS}[quantized:cnn_per_tensor-{one}]" for one in ("xnnpack", "tosa-1.0+int")),
    f"{LOADED}a_file_of_any_kind_is_loaded_by_its_path",
    f"{LOADED}bytes_and_open_files_are_loaded_by_what_they_begin_with",
    f"{LOADED}a_bundled_program_is_loaded",
    f"{LOADED}a_model_is_quantized_on_all_its_data",
)
"""Half a minute of CPU: every private name; XNNPACK alone, programs on the runtime, the stock flow
with stepwell's partitioner and a recipe; Cortex-M, TOSA and files of every kind.
"""
BESIDE = (
    *(
        f"executorch{extra}=={version}"
        for version in EXECUTORCH
        for extra in ("", "[ethos-u]", "[vgf]", "[openvino]")
    ),
    "executorch==1.5.1 optimum-executorch",
    "executorch==1.5.1 torchao==0.17.0",
    "executorch==1.5.1 torchao==0.18.0",
    "executorch==1.5.1 torch==2.12.1",
    "executorch==1.5.1 torch==2.13.0",
    "executorch==1.5.1 torch==2.14.1",
    "executorch==1.5.1 torch==2.15.0",
)
"""Packages that users have and combine with stepwell."""


@dataclass(frozen=True)
class Row:
    """The suite's result for one combination; `seconds` are CPU seconds."""

    python: str
    executorch: str
    torch: str
    xdsl: str
    said: str
    failed: tuple[str, ...] = ()
    seconds: float = 0
    commit: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """The combination."""
        return self.python, self.executorch, self.torch, self.xdsl

    @property
    def was_run(self) -> bool:
        """Whether tests ran."""
        return "passed" in self.said

    def __str__(self) -> str:
        fails = "; ".join(f"`{name}`" for name in self.failed)
        seconds = f"{self.seconds:.0f}" if self.seconds else ""
        return f"| {' | '.join((*self.key, self.said, fails, seconds))} |"


def ran(*command: str | Path, seconds: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command and return its output; status 124 and a sentence on a timeout."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    words = [str(word) for word in command]
    try:
        return subprocess.run(
            words, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, "", f"not done after {seconds} s")


def why(text: str) -> str:
    """Extract the last error of pip or Python."""
    lines = [line for line in text.splitlines() if line.strip() and "is ignored: it is" not in line]
    conflicts = [line.strip() for line in lines if " depends on " in line or " requested " in line]
    return "; ".join(dict.fromkeys(conflicts)) or (lines[-1].strip() if lines else "")


def wheel(folder: Path) -> Path:
    """Build the wheel, as users get it."""
    built = ran(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT)
    if built.returncode:
        raise SystemExit(f"no wheel: {why(built.stderr)}")
    return next(folder.glob("stepwell-*.whl"))


def interpreter(python: str) -> str | None:
    """Find a working interpreter on the PATH, or one of pyenv's, which may not be on it."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for path in (shutil.which(python), *pyenv.glob(f"versions/*/bin/{python}")):
        if path and not ran(path, "--version").returncode:
            return str(path)
    return None


def environment(python: str, torch: str, folder: Path) -> Path | str:
    """Return the interpreter of an environment with a torch; a sentence if it cannot be created."""
    place = folder / f"{Path(python).name}-torch-{torch}"
    inside = place / "bin" / "python"
    if not inside.exists():
        found = interpreter(python)
        if found is None:
            return "not on this machine"
        made = ran(found, "-m", "venv", place)
        if made.returncode:
            return why(made.stderr)
    installed = ran(inside, "-m", "pip", "install", "-q", "--no-compile", f"torch=={torch}")
    return inside if not installed.returncode else why(installed.stderr)


def row(python: str, executorch: str, torch: str, xdsl: str, folder: Path, ours: Path) -> Row:
    """Run one combination."""
    inside = environment(python, torch, folder)
    if isinstance(inside, str):
        return Row(python, executorch, torch, xdsl, inside)
    wanted = (f"torch=={torch}", f"executorch=={executorch}", f"xdsl=={xdsl}")
    for words in ((ours, *wanted, *TOOLS), ("--force-reinstall", "--no-deps", ours)):
        installed = ran(inside, "-m", "pip", "install", "-q", "--no-compile", *words)
        if installed.returncode:
            return Row(python, executorch, torch, xdsl, why(installed.stderr))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    quiet = ("-q", "-p", "no:cacheprovider", "--tb=no")
    tests = ran(inside, "-m", "pytest", *quiet, *SUITE, seconds=3600)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    failed = re.findall(r"^(?:FAILED|ERROR) (?:\S+/)?(\S+?)(?: |$)", tests.stdout, re.M)
    said = re.sub(r" in [\d.]+s.*|, \d+ warnings?|=", "", why(tests.stdout)).strip()
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    commit = ran("git", "rev-parse", "--short", "HEAD").stdout.strip()
    said = said or why(tests.stderr)
    return Row(python, executorch, torch, xdsl, said, tuple(failed), seconds, commit)


def resolution(wanted: Sequence[str], pythons: Sequence[str]) -> str:
    """Return `resolves`, or for which Pythons the resolution fails, and why."""
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    said = dict[str, list[str]]()
    for python in (name.removeprefix("python") for name in pythons):
        with tempfile.NamedTemporaryFile("w", suffix=".in") as asked:
            print(*wanted, sep="\n", file=asked, flush=True)
            words = ("pip", "compile", "-q", "--no-progress", "--python-version", python)
            tried = ran(uv, *words, asked.name, seconds=600)
        words = re.sub(r"[\s│]+", " ", tried.stderr)
        cause = re.search(r"Because (.*?)(?:, we can conclude| and you require|$)", words)
        reason = cause[1] if cause else words.strip()
        said.setdefault("resolves" if not tried.returncode else reason, []).append(python)
    if len(said) == 1:
        return next(iter(said))
    return "; ".join(f"{', '.join(where)}: {word}" for word, where in said.items())


def resolve(pythons: Sequence[str], ours: Path) -> Iterator[str]:
    """Yield the resolver's result for stepwell with each of `BESIDE`; nothing is installed."""
    for beside in BESIDE:
        alone = resolution(beside.split(), pythons)
        both = resolution([f"stepwell @ {ours.as_uri()}", *beside.split()], pythons)
        line = f"| `{beside}` | {alone} | {both} |"
        print(line, flush=True)
        yield line


def between(page: Path, mark: str, lines: Sequence[str]) -> None:
    """Write lines between a page's markers."""
    before, start, rest = page.read_text(encoding="utf-8").partition(f"<!-- {mark} -->\n")
    after = rest.partition(f"<!-- /{mark} -->")[2]
    assert start, f"{page} has no <!-- {mark} -->"
    text = "\n".join(lines)
    page.write_text(f"{before}{start}{text}\n<!-- /{mark} -->{after}", encoding="utf-8")


def read(kept: Path) -> dict[tuple[str, ...], Row]:
    """Read the rows of earlier runs."""
    held = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else []
    rows = [Row(**{**one, "failed": tuple(one["failed"])}) for one in held]
    return {one.key: one for one in rows}


def main(arguments: Sequence[str] | None = None) -> int:
    """Create the requested environments and print a row for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name, all_of_them in (
        ("python", PYTHONS), ("executorch", EXECUTORCH), ("torch", TORCH), ("xdsl", XDSL)
    ):  # fmt: skip
        parser.add_argument(f"--{name}", action="append", help=", ".join(all_of_them))
    parser.add_argument("--folder", type=Path, help="keep environments and rows here")
    parser.add_argument(
        "--again", action="store_true", help="measure combinations again that have a row"
    )
    parser.add_argument("--table", type=Path, help="a page with the markers of the table")
    parser.add_argument(
        "--resolve", action="store_true", help="check what resolves together with each extra"
    )
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        ours = wheel(Path(temporary))
        if given.resolve:
            lines = list(resolve(given.python or PYTHONS, ours))
            if given.table:
                head = ["| asked for | alone | with stepwell |", "|---|---|---|"]
                between(given.table, "resolutions", [*head, *lines])
            return int(
                any("| resolves |" in line and "| resolves | r" not in line for line in lines)
            )
        folder: Path = (given.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / "rows.json"
        rows, tries = read(kept), list[Row]()
        for key in product(
            given.python or PYTHONS,
            given.executorch or EXECUTORCH,
            given.torch or TORCH,
            given.xdsl or XDSL,
        ):
            tried = rows.get(key)
            if given.again or tried is None or not tried.was_run:
                tried = row(*key, folder, ours)
                rows = read(kept)  # Another run may have added rows.
                if tried.was_run or key not in rows:
                    rows[key] = tried
                    kept.write_text(json.dumps([asdict(one) for one in rows.values()], indent=1))
            print(tried, flush=True)
            tries.append(tried)
    if given.table:
        titles = "Python, ExecuTorch, torch, xDSL, quick suite, fails, seconds of CPU".split(", ")
        head = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
        between(given.table, "versions", [*head, *(str(rows[key]) for key in sorted(rows))])
    return int(any(one.failed or not one.was_run for one in (*rows.values(), *tries)))


if __name__ == "__main__":
    sys.exit(main())
