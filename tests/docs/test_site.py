"""The pages that are written from the code leave nothing out, and the site builds."""

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import stepwell
from stepwell.dialects import PACKAGES
from stepwell.pipelines.pass_pipeline.named_passes import step_classes

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


def part(name: str) -> ModuleType:
    return importlib.import_module(f"reference.{name}")


@cache
def pages_of(name: str) -> dict[str, str]:
    return part(name).pages()


def headings(text: str) -> set[str]:
    return set(re.findall(r"^## (.+)$", text, re.M))


def test_every_pass_has_a_section_with_its_before_and_after() -> None:
    pages = pages_of("passes")
    sections = {
        section.partition("\n")[0]: section
        for path, text in pages.items()
        if path.startswith("reference/passes/")
        for section in text.split("\n## ")[1:]
    }
    assert set(sections) == set(step_classes())
    shown = [name for name, text in sections.items() if "Before:" in text and "After:" in text]
    assert len(shown) / len(sections) > 0.95
    assert all("Results " in text for text in sections.values())


def test_every_op_of_every_dialect_has_a_section_or_a_row() -> None:
    ops = part("ops")
    pages = pages_of("ops")
    for name, dialect in ops.dialects().items():
        text = pages[f"reference/ops/{name}.md"]
        for cls in dialect.operations:
            if cls.name.startswith(f"{name}."):
                assert f"## {cls.name}\n" in text, cls.name
    assert set(ops.dialects()) == {*PACKAGES, "stepwell"}
    assert "`aten.scaled_dot_product_attention.default`" in pages["reference/ops/aten.md"]


def test_every_public_name_and_every_command_is_in_the_reference() -> None:
    api = part("api").pages()["reference/api.md"]
    for name in stepwell.__all__:
        value = getattr(stepwell, name)
        assert f".{getattr(value, '__qualname__', name)}\n" in api, name
    commands = part("commands").pages()["reference/cli.md"]
    assert {"stepwell lower", "stepwell opt", "stepwell show"} <= headings(commands)


def test_every_generated_page_stands_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text()
    made = [path for name in ("passes", "ops", "examples") for path in pages_of(name)]
    assert [path for path in made if f"{path}\n" not in menu] == []


def test_bars_are_drawn_of_every_row_of_a_table() -> None:
    figures = part("figures")
    assert figures.latency().count("<rect") > 4 * 19
    assert "wav2vec2" in figures.op_counts() + figures.speed()


@pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("mkdocstrings") is None,
    reason="needs the extra: pip install 'stepwell[docs]'",
)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Offline: nothing that a page loads stands on another server."""
    told = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    ran = subprocess.run(
        told,
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|link)\b[^>]*?\b(?:src|href)=\"(https?:[^\"]+)", text)
        assert not [url for url in loaded if "canonical" not in url], f"{page.name}: {loaded[:2]}"


def test_every_test_that_the_table_of_stumbles_names_is_there() -> None:
    rows = (ROOT / "docs/stumbles.md").read_text().split("|---|---|---|\n")[1].splitlines()
    file = ""
    for row in rows:
        named = re.findall(r"`(?:(tests/[\w/.]+)|…)(?:::)?(test_\w+)?`", row.split(" | ")[-1])
        for path, test in named:
            file = path or file
            text = (ROOT / file).read_text(encoding="utf-8")
            assert not test or f"def {test}(" in text, f"{file}::{test}"
