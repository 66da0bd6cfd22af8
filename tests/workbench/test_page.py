"""The page in a browser: small and wide, by keyboard, in both themes, with 5 000 ops, and back."""

from pathlib import Path
from typing import Any

import pytest

from stepwell.inspection.viewer import tell, to_html

from . import pages
from .browser import NEEDED
from .pages import CONTRAST, TABS, WIDTHS

pytestmark = NEEDED


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deep") / "deep.html"
    path.write_text(to_html(tell(pages.chain(5000), "xnnpack", title="deep")))
    return path


@pytest.mark.parametrize("size", WIDTHS, ids=[f"{w}px" for w, _ in WIDTHS])
def test_no_view_is_wider_than_the_screen(
    browser: Any, page: Path, tmp_path: Path, size: tuple[int, int]
) -> None:
    browser.resize(*size)
    try:
        for tab in TABS:
            browser.open(page, f"#tab={tab}")
            assert browser.ask("document.documentElement.scrollWidth") <= size[0], tab
            assert browser.ask(f"!document.getElementById('{tab}').hidden"), tab
            browser.screenshot(tmp_path / f"{tab}.png")
            assert (tmp_path / f"{tab}.png").stat().st_size > 4000
    finally:
        browser.resize(*WIDTHS[0])


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(browser: Any, page: Path, dark: bool) -> None:
    browser.dark(dark)
    try:
        browser.open(page, "#levels/linear")
        assert browser.ask(CONTRAST) == [], "levels"
        for tab in TABS[1:]:
            browser.open(page, f"#tab={tab}")
            assert browser.ask(CONTRAST) == [], tab
    finally:
        browser.dark(False)


def test_a_contrast_that_is_too_low_is_found(browser: Any, page: Path) -> None:
    browser.open(page, "#tab=steps")
    browser.ask("document.querySelector('h2').style.color = '#999'")
    assert any("H2" in line for line in browser.ask(CONTRAST))


def test_every_op_is_a_link_that_the_keyboard_reaches(browser: Any, page: Path) -> None:
    browser.open(page)
    for _ in range(60):
        browser.press("Tab")
        if browser.ask("Boolean(document.activeElement.closest('#pane-left .op'))"):
            break
    held = "document.activeElement"
    assert browser.ask(f"{held}.tagName") == "A" and "op=" in browser.ask(f"{held}.href")
    browser.press("Home")
    reached = []
    for _ in range(40):
        reached.append(int(browser.ask(f"{held}.dataset.row")))
        browser.press("ArrowDown")
    ops = browser.ask("[...document.querySelectorAll('#pane-left a.op')].map(a => +a.dataset.row)")
    assert set(ops) <= set(reached), "every line that is an op was walked over"
    browser.press("Home")
    browser.press("ArrowDown")
    browser.press("Enter")
    browser.wait("document.querySelector('#pane-left .op.picked')")
    assert "in the model" in browser.ask("document.getElementById('details').textContent")
    before = browser.ask("document.querySelector('#pane-left .op.picked').dataset.row")
    browser.press("ArrowDown")
    browser.press("Enter")
    browser.wait(f"document.querySelector('#pane-left .op.picked').dataset.row !== '{before}'")


def test_back_and_a_shared_link_restore_the_view(browser: Any, page: Path) -> None:
    browser.open(page, "#tab=fates")
    browser.ask("document.querySelectorAll('#fates th button')[2].click()")
    browser.wait("location.hash.includes('sort=')")
    ops = "[...document.querySelectorAll('#fates tbody tr')].map(r => r.cells[2].textContent)"
    ordered = browser.ask(ops)
    assert ordered == sorted(ordered)
    browser.ask("location.hash = document.querySelectorAll('#fates .filters a')[1].hash")
    browser.wait("location.hash.includes('kind=')")
    filtered, shared = browser.ask(ops), browser.ask("location.hash")
    assert 0 < len(filtered) < len(ordered)
    browser.ask("location.hash = document.querySelector('#fates td a').hash")
    browser.wait("document.querySelector('.op.picked')")
    picked = browser.ask("document.querySelector('.op.picked').textContent")
    op = browser.ask("location.hash")
    browser.ask("history.back()")
    browser.wait("!document.getElementById('fates').hidden")
    assert browser.ask("location.hash") == shared and browser.ask(ops) == filtered
    browser.ask("history.back()")
    browser.wait("!location.hash.includes('kind=')")
    assert browser.ask(ops) == ordered
    browser.open(page, shared)
    assert browser.ask(ops) == filtered
    browser.open(page, op)
    assert browser.ask("document.querySelector('.op.picked').textContent") == picked
    browser.open(page, "#tab=steps&q=lower")
    assert browser.ask("document.getElementById('search').value") == "lower"
    assert "match the search" in browser.ask("document.getElementById('steps').textContent")


def test_the_source_line_stands_beside_the_op_and_leads_to_the_editor(
    browser: Any, page: Path
) -> None:
    browser.open(page, "#levels/gelu")
    assert "gelu(self.up" in browser.ask("document.querySelector('.source .here').textContent")
    link = browser.ask("[...document.querySelectorAll('#details a')].map(a => a.href)"
                       ".find(h => h.startsWith('editor:'))")  # fmt: skip
    assert "pages.py:" in link


def test_each_rewrite_is_stepped_through(browser: Any, page: Path) -> None:
    browser.open(page, "#tab=rewrites")
    title = "document.querySelector('#rewrites h2').textContent"
    assert browser.ask(title).startswith("1 of ")
    browser.press(".")
    browser.wait(f"{title}.startsWith('2 of ')")
    assert browser.ask("document.querySelectorAll('#rewrites .piece.come').length") > 0
    assert browser.ask("document.querySelectorAll('#rewrites svg rect').length") > 1
    browser.ask("history.back()")
    browser.wait(f"{title}.startsWith('1 of ')")


def test_the_panes_are_resized_by_keyboard_and_long_lines_wrap(browser: Any, page: Path) -> None:
    browser.open(page)
    width = "document.getElementById('pane-left').clientWidth"
    before = browser.ask(width)
    browser.ask("document.querySelector('.divider').focus()")
    browser.press("ArrowRight")
    assert browser.ask(width) > before
    browser.ask("document.getElementById('wrap').click()")
    wide = "document.getElementById('pane-left').scrollWidth"
    assert browser.ask(wide) <= browser.ask(width) + 1, "nothing is cut at the right"
    overlap = """(() => { const rows = [...document.querySelectorAll('#pane-left .op')]
        .map(e => e.getBoundingClientRect()).sort((a, b) => a.top - b.top);
        return rows.some((r, i) => i && r.top < rows[i - 1].bottom - 1); })()"""
    assert browser.ask(overlap) is False


def test_five_thousand_ops_are_counted_not_cut_and_drawn_only_where_seen(
    browser: Any, deep: Path
) -> None:
    browser.open(deep)
    assert browser.ask("document.querySelectorAll('.op').length") < 400
    browser.ask("document.getElementById('pane-left').scrollTop = 50000")
    browser.wait(
        "[...document.querySelectorAll('#pane-left .op')].some(e => +e.dataset.row > 2500)"
    )
    assert browser.ask("document.querySelectorAll('.op').length") < 400
    browser.open(deep, "#tab=fates")
    rows = "document.querySelectorAll('#fates tbody tr').length"
    assert browser.ask(rows) == 500
    assert "500 of 5,000 rows are drawn" in browser.ask(
        "document.getElementById('fates').textContent"
    )
    browser.ask("[...document.querySelectorAll('#fates p button')].at(-1).click()")
    assert browser.ask(rows) == 5000
