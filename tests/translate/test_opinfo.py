"""PyTorch's OpInfo database through the IR and back: nothing differs but what the table says."""

from pathlib import Path

import pytest
from forking import Forks

ROOT = Path(__file__).resolve().parents[2]
SHARDS = 16


def table(text: str) -> dict[str, str]:
    """Operator → why it is not equal, from a table that the sweep wrote."""
    rows = text.split("| operator | why not |\n|---|---|\n")[1].splitlines()
    cells = (row.strip("| ").partition(" | ") for row in rows if row.startswith("| "))
    return {name: reason for name, _, reason in cells}


def sweep(forks: Forks, folder: Path, *options: str) -> str:
    """The table of a sweep, run in a process of its own."""
    written = folder / "table.md"
    ran = forks.run([ROOT / "bench/opinfo.py", "--table", written, *options], cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    return written.read_text()


def test_every_exception_of_the_table_has_a_true_reason() -> None:
    known = table((ROOT / "docs/opinfo.md").read_text())
    assert known and all(r.startswith(("refused: ", "not compared: ")) for r in known.values())


def test_a_sample_of_operators_comes_back_equal(tmp_path: Path, forks: Forks) -> None:
    found = sweep(forks, tmp_path, "--only", r"^(addcmul|cumsum|nn\.functional\.gelu)$")
    assert "| equal | 3 |" in found and not table(found)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_operator_differs_that_the_table_does_not_name(
    shard: int, tmp_path: Path, forks: Forks
) -> None:
    known = table((ROOT / "docs/opinfo.md").read_text())
    found = table(sweep(forks, tmp_path, "--shard", f"{shard}/{SHARDS}"))
    assert {name: reason for name, reason in found.items() if known.get(name) != reason} == {}
