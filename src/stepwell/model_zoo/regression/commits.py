"""Commits of this repository: hashes of their relevant sources, and temporary checkouts."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from stepwell.ir.diagnostics import StepwellError

SOURCES = ("ir", "dialects", "translate", "backends", "src/stepwell")
"""Folders whose content a lowering depends on."""
ROOT = Path(__file__).resolve().parents[4]
"""The checkout that this file is in."""


def git(*arguments: str) -> str:
    """Run git and return its output.

    Raises:
        StepwellError: it fails, or this is not a checkout.
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
    """The newest tag that HEAD descends from; without tags, where the version was last changed."""
    if tags := git("tag", "--merged", "HEAD", "--sort=-creatordate").splitlines():
        return tags[0]
    changed = git("log", "--format=%H", "-G", "^version = ", "HEAD", "--", "pyproject.toml")
    return changed.splitlines()[0]


def both(span: str | None) -> tuple[str, str]:
    """The commits of `BASE..HEAD`; without a base the last release, without an end HEAD."""
    base, dots, head = (span or "").partition("..")
    if base and not dots:
        raise StepwellError(f"{span!r} is no span of commits", help="say BASE..HEAD, or BASE..")
    named = (base or last_release(), head or "HEAD")
    first, second = (git("rev-parse", "--verify", f"{name}^{{commit}}") for name in named)
    return first, second


def content(commit: str) -> str:
    """Return a hash of the sources of a commit."""
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
