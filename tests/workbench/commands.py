"""Command lines in a folder of their own; a line fails if it ends with another exit status."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stepwell.cli.main import main


class Commands:
    """Runs command lines in a folder, and writes the files that they name."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys

    def __call__(self, line: str | Sequence[str], status: int = 0) -> Any:
        """What a command says (`out`, `err`)."""
        self._capsys.readouterr()
        found = main(line.split() if isinstance(line, str) else list(line))
        said = self._capsys.readouterr()
        assert found == status, f"{line} ends with {found}: {said.err}"
        return said

    def write(self, name: str, text: str) -> str:
        """A file of the folder; gives its name."""
        (self.folder / name).write_text(text)
        return name

    def read(self, name: str) -> str:
        """The text of a file that was written."""
        return (self.folder / name).read_text()

    def json(self, name: str) -> Any:
        """What a file holds as JSON."""
        return json.loads(self.read(name))
