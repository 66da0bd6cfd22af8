"""Every block of code in README and docs runs, page by page, in the order in which it is read.

A page's Python shares one namespace and one folder; a block with a title is written there first.
What a reader need not see stands in a comment in front, `<!-- before: … -->`, and runs too. Shell
lines: those of `stepwell` run in a process of their own (with `-m slow`, in one that has imported
nothing); of `python FILE`, `make`, `pytest` and `pip` it is asked that what they
name is there. `<!-- slow: why -->` leaves running to `tools/doc_commands.py`,
`<!-- absent: why -->` to nobody; arguments are read all the same. `<!-- needs: MODULE -->` skips a
block where an extra is absent. `text` is for reading; a `diff` is tried by `test_walkthroughs.py`,
`kotlin` and `swift` by `test_apps.py`.
"""

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forking import Forks

import stepwell
from stepwell.cli import main

ROOT = Path(__file__).resolve().parents[2]
DOCS = (*ROOT.glob("docs/*.md"), *ROOT.glob("docs/deploy/*.md"))
PAGES = sorted((*ROOT.glob("*.md"), *DOCS), key=lambda path: path.relative_to(ROOT))
LANGUAGES = {"python", "sh", "mlir", "text", "diff", "kotlin", "swift"}
ELSEWHERE = {"dask", "gradle", "swift", "qemu-system-arm", "cd"}
"""Commands of others, on other machines."""
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>before|slow|absent|needs): (?P<about>.*?)\s*-->"
    r'|```(?P<language>\w*)(?: title="(?P<title>[\w.]+)")?\n(?P<body>.*?)^```$)',
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """A fenced block, or a hidden one, with what stands in front of it."""

    line: int
    language: str
    body: str
    title: str | None = None
    slow: bool = False
    needs: str | None = None
    absent: str | None = None


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    slow, needs, absent = False, None, None
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 2
        if found["mark"] == "before":
            yield Block(line, "python", found["about"].partition("\n")[2], slow=slow)
        elif found["mark"] == "slow":
            assert found["about"], f"{page.name}:{line}: slow, without a reason"
            slow = True
        elif found["mark"] == "absent":
            slow, absent = True, found["about"]
            assert absent, f"{page.name}:{line}: absent, without a reason"
        elif found["mark"] == "needs":
            needs = found["about"]
        else:
            title = found["title"]
            yield Block(line, found["language"], found["body"], title, slow, needs, absent)
            slow, needs, absent = False, None, None


def places() -> list[Any]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES]


@pytest.mark.parametrize("page", places())
def test_a_block_says_what_it_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{page.name}:{block.line}: {block.language!r}"
    prose = BLOCK.sub("", text)
    assert "```" not in prose, "a fence that is not closed, or inside a list"
    indented = re.findall(r"\n\n {4}\S.*", prose)
    assert not indented, f"an indented block says no language: {indented[0].strip()}"


WITH_BLOCKS = [place for place in places() if any(blocks(place.values[0]))]
WITH_COMMANDS = [
    place
    for place in WITH_BLOCKS
    if any(
        block.language == "sh" and not block.slow and re.search("^stepwell ", block.body, re.M)
        for block in blocks(place.values[0])
    )
]


@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_the_blocks_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: Forks
) -> None:
    run_page(page, tmp_path, monkeypatch, forks)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_each_command_of_a_page_runs_in_a_process_of_its_own(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_page(page, tmp_path, monkeypatch)


def run_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: Forks | None = None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.title:  # A test that ran before may have imported its own model.py.
            sys.modules.pop(Path(block.title).stem, None)
    kept = set(sys.modules)
    try:
        for block in blocks(page):
            run(block, page, namespace, forks)
    finally:
        for name in set(sys.modules) - kept:  # mlp.py of this folder is not that of another.
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def run(block: Block, page: Path, namespace: dict[str, Any], forks: Forks | None = None) -> None:
    if block.needs and importlib.util.find_spec(block.needs) is None:
        return
    if block.language == "python":
        if block.title:
            Path(block.title).write_text(block.body)
        if not block.slow:
            code = "\n" * (block.line - 1) + block.body
            exec(compile(code, str(page), "exec"), namespace)
    elif block.language == "sh":
        lines = [shlex.split(line, comments=True) for line in block.body.splitlines()]
        for words in (words for words in lines if "|" in words and not block.slow):
            piped(words)
            del words[words.index("|") :]
        commands = [words[1:] for words in lines if words[:1] == ["stepwell"] and not block.slow]
        for words in commands:
            in_a_process(words, forks)
        for words in filter(None, lines):
            asked(words, block)
    elif block.language == "mlir":
        if block.title:
            Path(block.title).write_text(block.body)
        program = stepwell.parse(block.body)
        assert str(stepwell.parse(str(program))) == str(program)


def piped(words: list[str]) -> None:
    """A line with a pipe ends with 0."""
    ran = subprocess.run(shell(words), capture_output=True, text=True)
    assert ran.returncode == 0, f"{words} fails: {ran.stderr}"


def shell(words: list[str]) -> list[str]:
    """A line with a pipe as a command, which stops where a part fails and finds our programs."""
    line = " ".join(word if word == "|" else shlex.quote(word) for word in words)
    here = shlex.quote(str(Path(sys.executable).parent))
    return ["bash", "-o", "pipefail", "-c", f"PATH={here}:$PATH; {line}"]


def in_a_process(words: list[str], forks: Forks | None) -> None:
    """A command of stepwell ends with 0: in a fork, or in a process that has imported nothing."""
    command = ["-m", "stepwell", *words]
    if forks is not None:
        ran = forks.run(command)
    else:
        ran = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, check=False
        )
    assert ran.returncode == 0, f"{words} fails: {ran.stderr}"


def asked(words: list[str], block: Block) -> None:
    """Whether what a line of a shell block names is there."""
    command, *arguments = words
    if command == "stepwell" and arguments[0] == "opt":
        pass  # xDSL's driver parses its arguments.
    elif command == "stepwell":
        main._parser().parse_args(arguments)  # Ends the process if it does not take them.
        _is_there([a.partition(":")[0] for a in arguments if a.startswith("examples/")])
    elif command in ("python", "pytest"):
        named = [a for a in arguments if "/" in a and not a.endswith("/") and "*" not in a]
        _is_there(named)
        text = (ROOT / named[0]).read_text(encoding="utf-8") if command == "python" else ""
        flags = [a for a in arguments if a.startswith("-")] if command == "python" else []
        assert all(f'"{flag}"' in text for flag in flags), (words, flags)
    elif command == "cmake":
        _is_there([a for a in arguments if a.startswith("examples/")])
    elif command == "make":
        targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M)
        assert arguments[0] in targets, words
    elif command == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for extra in re.findall(r"\[([\w,-]+)\]", " ".join(arguments)):
            assert set(extra.split(",")) <= set(project["optional-dependencies"]), words
    elif command not in ELSEWHERE:
        raise AssertionError(f"line {block.line}: no test knows {command}")


def _is_there(names: list[str]) -> None:
    assert all((ROOT / name).exists() for name in names), names


def test_every_page_is_in_the_site_and_every_link_within_it_leads_somewhere() -> None:
    """What `make docs` checks of all pages, of those at hand, without mkdocs."""
    for page in DOCS:
        prose = BLOCK.sub("", page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)#\s]+)", prose):
            generated = target.startswith(("reference/", "tutorials/", "figures/", "http"))
            assert generated or (page.parent / target).exists(), f"{page.name}: {target}"
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in DOCS:
        assert f": {page.relative_to(ROOT / 'docs')}\n" in listed, (
            f"{page.name} is not in mkdocs.yml"
        )


def test_tabs_of_the_site_fit_a_screen_of_1440_pixels() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    tabs = re.findall(r"^  - ([^:\n]+):", nav, re.M)
    width = sum(8 * len(tab) + 24 for tab in tabs)  # Letters of 0.7 rem, and a margin.
    assert len(tabs) > 5 and width < 1440, (width, tabs)
