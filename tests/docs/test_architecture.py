"""docs/architecture.md names what exists, where it says."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| [^|]+ \| ([\w/]+\.py) \| (`[^|]+`) \|$", PAGE, re.M)


def defined(path: Path) -> set[str]:
    """The names that a file defines at its top."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in tree.body if isinstance(node, kinds)}


def test_every_walk_has_its_steps() -> None:
    assert len(ROWS) == sum(line.count(".py | `") for line in PAGE.splitlines()) > 30


@pytest.mark.parametrize(("file", "names"), ROWS, ids=[f"{file} {names}" for file, names in ROWS])
def test_a_step_is_in_its_file(file: str, names: str) -> None:
    assert set(re.findall(r"`(\w+)`", names)) <= defined(ROOT / file)
