"""What the tests of the workbench share as fixtures."""

from pathlib import Path

import pytest

from .commands import Commands


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Commands:
    """Runs command lines in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    return Commands(tmp_path, capsys)
