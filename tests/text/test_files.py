"""Files are written whole or not at all, whatever comes in between."""

import os
from pathlib import Path
from typing import Any

import pytest

from stepwell.cli.main import main
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import write_atomically


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, MemoryError, OSError, TypeError])
@pytest.mark.parametrize("moment", ["while it is written", "when it is put in place"])
def test_nothing_is_left_beside_a_file_that_was_not_written(
    raised: type[BaseException], moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(b"before")

    def stop(*_: Any) -> Any:
        raise raised()

    if moment == "when it is put in place":
        monkeypatch.setattr(os, "replace", stop)
    else:
        opened = Path.open

        def opens(*args: Any) -> Any:
            opened(*args).close()
            stop()

        monkeypatch.setattr(Path, "open", opens)
    with pytest.raises(StepwellError if raised is OSError else raised):
        write_atomically(path, b"after")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["model.pte"] and path.read_bytes() == b"before"


def test_a_file_is_as_readable_as_any_other(tmp_path: Path) -> None:
    write_atomically(tmp_path / "ours", b"one", memoryview(b"two"))
    (tmp_path / "another").write_bytes(b"")
    assert (tmp_path / "ours").read_bytes() == b"onetwo"
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_where_no_file_can_be_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "inner", tmp_path / "missing" / "inner", tmp_path):
        with pytest.raises(StepwellError, match="cannot write"):
            write_atomically(place, b"")
    assert os.listdir(tmp_path) == ["file"]


def test_an_interrupted_command_ends_as_a_shell_expects(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("raise KeyboardInterrupt\n")
    assert main(["explain", f"{tmp_path}/model.py:made"]) == 130
