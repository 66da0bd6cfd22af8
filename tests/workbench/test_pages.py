"""All pages in one design: on a phone, a tablet and a desk, dark and light, by keyboard."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import stepwell
from stepwell.cli.commands.play import FIRST
from stepwell.inspection.playground import Playground, Playing
from stepwell.quantization.sensitivity.attribution import Attribution, Share
from stepwell.quantization.sensitivity.metrics import Tally
from stepwell.quantization.sensitivity.result import Accuracy
from stepwell.quantization.sensitivity.stages import Stage

from . import pages
from .browser import NEEDED

pytestmark = NEEDED
PAGES = ("check", "accuracy", "show", "play")


def tally(*differences: float) -> Tally:
    held = Tally()
    held.add(torch.tensor(differences))
    return held


def measured() -> Accuracy:
    """An accuracy with points that lose, that gain, and one with a long name."""
    shares = {
        name: Share(name, 0.1, tally(*alone), tally(*freed))
        for name, alone, freed in (
            ("layers.0.attention.output.dense.weight.of.a.long.name", (0.5, 0.7), (0.4, 0.5)),
            ("head", (-0.2, -0.1), (-0.3, 0.1)),
        )
    }
    stages = tuple(Stage(name, tally(0.1), tally(0.0), (0.5, 0.9), 2) for name in ("model", "c"))
    causes = {"head": "its inputs have outliers: the largest is 40 times the usual one"}
    return Accuracy("c", "int8", stages, Attribution(tally(0.5, 0.6), shares=shares), causes)


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The address of each page."""
    folder = tmp_path_factory.mktemp("pages")
    program = pages.program_of(pages.Model())
    (folder / "check.html").write_text(stepwell.check(program, "xnnpack", artifact=False).to_html())
    (folder / "accuracy.html").write_text(measured().to_html())
    pages.write_two_blocks(folder / "show.html")
    with Playing(Playground(stepwell.parse(FIRST), "first")) as playing:
        files = {name: (folder / f"{name}.html").as_uri() for name in PAGES[:3]}
        yield {**files, "play": playing.link}


@pytest.fixture(params=PAGES)
def opened(browser: Any, links: dict[str, str], request: pytest.FixtureRequest) -> Iterator[Any]:
    del browser.errors[:]
    link = links[request.param]
    if link.startswith("http"):
        browser.visit(link, "document.body && document.body.dataset.busy === ''")
    else:
        browser.open(Path(link.removeprefix("file://")))
    yield browser
    browser.dark(False)
    browser.resize(*pages.WIDTHS[0])


def test_page_fits_reads_and_prints_no_error(opened: Any) -> None:
    for width, height in pages.WIDTHS:
        opened.resize(width, height)
        for dark in (False, True):
            opened.dark(dark)
            opened.settle()
            assert opened.ask("document.documentElement.scrollWidth") <= width, width
            assert opened.ask(pages.CONTRAST) == [], (width, dark)
            ground = "getComputedStyle(document.body).backgroundColor"
            expected = "rgb(20, 24, 31)" if dark else "rgb(255, 255, 255)"
            assert opened.ask(ground) == expected
    assert opened.errors == []


def test_keyboard_reaches_what_a_mouse_does(opened: Any) -> None:
    marked = (
        "[...document.querySelectorAll('a[href], button, input, select, textarea')]"
        ".some((e) => e.offsetParent && !e.disabled && e.tabIndex >= 0)"
    )
    opened.ask("document.activeElement.blur()")
    opened.press("Tab")
    assert opened.ask("document.activeElement !== document.body") == opened.ask(marked)


def test_error_of_a_page_is_found(browser: Any, tmp_path: Path) -> None:
    del browser.errors[:]
    page = tmp_path / "wrong.html"
    page.write_text("<body data-ready=yes><script>setTimeout(() => missing())</script>")
    browser.open(page)
    browser.settle()
    assert any("missing" in line for line in browser.errors)


def test_accuracy_shows_losses_gains_and_errors_at_a_readable_size(
    browser: Any, links: dict[str, str]
) -> None:
    browser.resize(390, 844)
    browser.open(Path(links["accuracy"].removeprefix("file://")))
    size = "Math.min(...[...document.querySelectorAll('svg text')].map((e) => "
    size += "e.getBoundingClientRect().height))"
    assert browser.ask(size) >= 11
    bars = "[...document.querySelectorAll('svg rect[height=\"10\"]')].map((e) => e.getBBox())"
    told = browser.ask(f"({bars}).map((b) => [b.x, b.x + b.width])")
    zero = browser.ask("document.querySelector('svg .zero').getBBox().x")
    assert all(end - begin > 2 for begin, end in told)
    signs = [begin >= zero - 0.5 for begin, _ in told]  # freed, alone; freed, alone
    assert signs == [True, True, False, False]
    errors = "[...document.querySelectorAll('svg .error')].map((e) => e.getBBox().width)"
    assert all(width > 1 for width in browser.ask(errors))
    cut = "[...document.querySelectorAll('svg text')].filter((e) => "
    cut += "e.getBoundingClientRect().right > innerWidth).length"
    assert browser.ask(cut) == 0
