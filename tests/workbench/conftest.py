"""What the tests of the workbench share as fixtures."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import pages
from .browser import Browser
from .commands import Commands


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Commands:
    """Runs command lines in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    return Commands(tmp_path, capsys)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as held:
        yield held


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a model of two blocks, with all that a page can show."""
    return pages.write_two_blocks(tmp_path_factory.mktemp("pages") / "page.html")
