"""Lower a fixed set of programs with two commits, each once, and compare the results."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import write_atomically
from stepwell.ir.platform.systems import needs_fork
from stepwell.ir.renderers import Shown
from stepwell.model_zoo.catalogue.models import Entry, select
from stepwell.model_zoo.sweep.jobs import digest, source_of, version_of
from stepwell.plugins.plugins import registry
from stepwell.translate.importer.export_call import export

Tell = Callable[[str, int, int], None]

MODELS = ("examples/*", "quantized/*")
"""Default models: those that every checkout has."""
TARGETS = ("xnnpack", "tosa-1.0+fp")
"""Targets of programs that are not quantized for a specific one."""
CHILD = Path(__file__).resolve().with_name("child.py")
"""The script that lowers them with a commit's stepwell; it is run, not imported."""


@dataclass(frozen=True)
class Pair:
    """The results of one program on one target for both commits."""

    name: str
    target: str
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def same(self) -> bool:
        """Whether IR and bytes are equal, or both commits fail with the same message."""
        keys = ("ir", "sha", "fails")
        return all(self.before.get(key) == self.after.get(key) for key in keys)

    @property
    def ops(self) -> dict[str, int]:
        """Return, for each kind of op, how many more or fewer of them the new program has."""
        had, has = self.before.get("ops", {}), self.after.get("ops", {})
        changed = {name: has.get(name, 0) - had.get(name, 0) for name in {**had, **has}}
        return {name: count for name, count in sorted(changed.items()) if count}


@dataclass(frozen=True)
class Replay(Shown):
    """The results of two commits for the same programs.

    Attributes:
        base, head: the commits.
        pairs: every program on every target.
    """

    base: str
    head: str
    pairs: tuple[Pair, ...]

    @property
    def changed(self) -> tuple[Pair, ...]:
        """Return the pairs whose IR, bytes or failure differ."""
        return tuple(pair for pair in self.pairs if not pair.same)

    def __str__(self) -> str:
        return self.render("text")


def replay(
    span: str | None = None,
    models: Sequence[str] = MODELS,
    targets: Sequence[str] = (),
    *,
    cache: Path | None = None,
    workers: int = 2,
    tell: Tell | None = None,
) -> Replay:
    """Lower models with two commits.

    Args:
        span: `BASE..HEAD`; the base is the last release by default.
        models: the models of the zoo, as for `stepwell.sweep`.
        targets: as for `stepwell.lower`; by default `TARGETS`, and a program's quantization target.
        cache: the folder of exported programs and figures, which are named by content.
        workers: the number of parallel processes.
        tell: called with the current action.

    Raises:
        StepwellError: the working directory is not in a checkout, or a name is unknown.
    """
    needs_fork("a replay")
    base, head = commits_of(span)
    place = cache or default_cache()
    say = tell or _silent
    entries = select(models)
    programs = exported(entries, place / "programs", say)
    asked = [
        (entry.name, target)
        for entry in entries
        if entry.name in programs
        for target in targets or ((entry.target,) if entry.target else TARGETS)
    ]
    found = {
        commit: figures(commit, programs, asked, place / "figures", workers, say)
        for commit in dict.fromkeys((base, head))
    }
    pairs = [Pair(*key, found[base][key], found[head][key]) for key in asked]
    return Replay(base, head, tuple(pairs))


def default_cache() -> Path:
    """Return the folder of `replay` in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "stepwell" / "replay"


def exported(entries: Sequence[Entry], place: Path, say: Tell) -> dict[str, Path]:
    """Return each model as a `.pt2`, exported or cached; models that torch rejects are skipped."""
    from stepwell.model_zoo.sweep.measuring import seed

    place.mkdir(parents=True, exist_ok=True)
    paths: dict[str, Path] = {}
    for number, entry in enumerate(entries):
        key = digest(source_of(entry), version_of("torch"))[:24]
        file = place / f"{key}.pt2"
        refused = file.with_suffix(".refused")
        if not file.exists() and not refused.exists():
            say(f"export {entry.name}", number, len(entries))
            seed()
            beside = file.with_suffix(f".{os.getpid()}.pt2")
            try:
                made = entry.make()
                program = made.program
                if program is None:
                    assert made.module is not None
                    program = export(made.module, made.inputs, dynamic_shapes=made.dynamic)
                torch.export.save(program, beside)
                beside.replace(file)
            except Exception as error:  # A model that torch cannot export is not replayed.
                beside.unlink(missing_ok=True)
                write_atomically(refused, str(error).encode())
        if file.exists():
            paths[entry.name] = file
    return paths


def figures(
    commit: str,
    programs: dict[str, Path],
    asked: Sequence[tuple[str, str]],
    place: Path,
    workers: int,
    say: Tell,
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the results of a commit for programs, from the cache or by running a checkout."""
    place.mkdir(parents=True, exist_ok=True)
    versions = [version_of(name) for name in ("torch", "executorch", "xdsl", "tosa-tools")]
    versions += registry().identity()
    made_of = digest(content(commit), *versions, CHILD.read_bytes())
    files = {
        (name, target): place / f"{digest(made_of, programs[name].stem, target)[:24]}.json"
        for name, target in asked
    }
    missing = [key for key, file in files.items() if not file.exists()]
    if missing:
        jobs = [
            {"name": name, "target": target, "file": str(programs[name])}
            for name, target in missing
        ]
        with checked_out(commit) as tree:
            for done, row in enumerate(run(tree, jobs, workers), 1):
                say(f"lower by {commit[:10]}", done, len(jobs))
                file = files[row["name"], row["target"]]
                write_atomically(file, json.dumps(row).encode())
    return {key: json.loads(file.read_text()) for key, file in files.items()}


def run(tree: Path, asked: Sequence[dict[str, str]], workers: int) -> list[dict[str, Any]]:
    """Lower programs with the stepwell of a checkout, in parallel processes.

    Raises:
        StepwellError: the checkout's stepwell cannot be imported.
    """
    path = os.pathsep.join(filter(None, (str(tree / "src"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(CHILD), str(tree)]
    parts = [list(asked[start::workers]) for start in range(workers)]
    processes = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment, cwd=tree,
        )
        for part in parts
        if part
    ]  # fmt: skip
    for process, part in zip(processes, parts, strict=False):
        assert process.stdin is not None
        process.stdin.write(json.dumps(part))
        process.stdin.close()
        process.stdin = None
    rows: list[dict[str, Any]] = []
    for process in processes:
        said, errors = process.communicate()
        rows += [json.loads(line) for line in said.splitlines()]
        if process.returncode:
            last = (errors.strip().splitlines() or ["no reason"])[-1]
            raise StepwellError(f"stepwell in the checkout {tree} does not run: {last}")
    return rows


def _silent(what: str, number: int, of: int) -> None:
    """Ignore progress messages (the default)."""


SOURCES = ("ir", "dialects", "translate", "backends", "src/stepwell")
"""Folders whose content a lowering depends on."""
ROOT = Path(__file__).resolve().parents[4]
"""The checkout that this file is in."""


def git(*arguments: str) -> str:
    """Run git and return its output.

    Raises:
        StepwellError: git fails, or the working directory is not in a checkout.
    """
    try:
        run = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise StepwellError("replay needs git, which is not installed") from None
    if run.returncode:
        said = (run.stderr.strip().splitlines() or ["no reason"])[-1]
        raise StepwellError(f"git {arguments[0]}: {said}", help="replay BASE..HEAD in a checkout")
    return run.stdout.strip()


def last_release() -> str:
    """Return the newest tag before HEAD; without tags, the commit that last changed the version."""
    if tags := git("tag", "--merged", "HEAD", "--sort=-creatordate").splitlines():
        return tags[0]
    changed = git("log", "--format=%H", "-G", "^version = ", "HEAD", "--", "pyproject.toml")
    return changed.splitlines()[0]


def commits_of(span: str | None) -> tuple[str, str]:
    """Return the commits of `BASE..HEAD`; by default BASE is the last release, and HEAD is HEAD."""
    base, dots, head = (span or "").partition("..")
    if base and not dots:
        raise StepwellError(
            f"{span!r} is not a range of commits", help="write BASE..HEAD, or BASE.."
        )
    named = (base or last_release(), head or "HEAD")
    first, second = (git("rev-parse", "--verify", f"{name}^{{commit}}") for name in named)
    return first, second


def content(commit: str) -> str:
    """Return a hash of a commit's sources."""
    trees = [git("rev-parse", f"{commit}:{folder}") for folder in SOURCES]
    return "-".join(tree[:12] for tree in trees)


@contextmanager
def checked_out(commit: str) -> Generator[Path]:
    """Check a commit out into a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="stepwell-replay-") as folder:
        place = Path(folder) / "tree"
        git("worktree", "add", "--detach", "--force", str(place), commit)
        try:
            yield place
        finally:
            git("worktree", "remove", "--force", str(place))
