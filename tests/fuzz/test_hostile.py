"""Files made to harm: refused in words, fast and in bounded memory, and nothing is written."""

import os
from pathlib import Path

import pytest
import torch
from forking import Forks

import stepwell
from stepwell.ir.platform.files import write_atomically

HOSTILE = Path(__file__).with_name("hostile.py")
MOST_SECONDS = 5.0


def test_a_hostile_file_is_refused_by_a_process_of_few_resources(
    tmp_path: Path, forks: Forks
) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    done = forks.run([HOSTILE, folder], timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
    assert len(rows) > 35
    assert {name for name, outcome, _ in rows if outcome == "read"} == set()
    assert {name: s for name, _, s in rows if float(s) > MOST_SECONDS} == {}
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]
    assert not (folder / "escaped").exists()


@pytest.mark.parametrize("name", ["m.mlir", "m.safetensors", "m.tosa"])
def test_a_link_in_the_place_of_an_output_is_replaced_and_not_followed(
    name: str, tmp_path: Path
) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "out"
    elsewhere.write_text("precious")
    folder.mkdir()
    os.symlink(elsewhere, folder / name)
    model = torch.nn.Linear(3, 2).eval()
    exported = torch.export.export(model, (torch.randn(1, 3),))
    if name == "m.tosa":
        write_atomically(folder / name, stepwell.lower(exported, "tosa-1.0+fp").to_tosa())
    else:
        stepwell.from_exported_program(exported).save(folder / "m.mlir")
    assert elsewhere.read_text() == "precious"
    assert (folder / name).is_file() and not (folder / name).is_symlink()
