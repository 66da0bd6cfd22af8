"""The page in a browser: small and wide, by keyboard, in both themes, with 5 000 ops, and back."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import stepwell
from stepwell.backends.executorch.read import read_container
from stepwell.showing import tell, to_html
from stepwell.showing.memory import memory_plans
from stepwell.showing.story import Story, replace


def _neighbour(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


browsing = _neighbour("browser")
pytestmark = pytest.mark.skipif(
    browsing.CHROMIUM is None, reason="no chromium on the path; on Debian: apt-get install chromium"
)
TABS = ("levels", "graph", "rewrites", "fates", "profile", "memory", "steps", "weights", "notes")
WIDTHS = ((1400, 900), (820, 1100), (390, 844))


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16)
        self.down = torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    """Two blocks and an op that no delegate takes."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.Sequential(Block(), Block())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(torch.atan(self.blocks(x)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def browser(folder: Path) -> Iterator[Any]:
    with browsing.Browser(folder) as held:
        yield held


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    exported = torch.export.export(Model().eval(), (torch.randn(2, 8),))
    story: Story = tell(exported, "xnnpack", title="two blocks", notes={"check": "fine"})
    assert story.lowered is not None
    plans = memory_plans(read_container(story.lowered.to_pte()))
    path = folder / "page.html"
    times = {fate.node: 0.25 for fate in story.fates[:4]}
    path.write_text(to_html(replace(story, memory=plans, times=times), "editor://{path}:{line}"))
    return path


@pytest.fixture(scope="module")
def deep(folder: Path) -> Path:
    """A chain of 5 000 ops without modules."""
    lines = ["func.func @forward(%v: tensor<4xf32>) -> tensor<4xf32> {"]
    for index in range(5000):
        kind = ("relu", "tanh", "sigmoid")[index % 3]
        source = "%v" if index == 0 else f"%n{index - 1}x"
        lines.append(
            f"%n{index}x = aten.{kind}.default({source}) : (tensor<4xf32>) -> tensor<4xf32>"
        )
    lines.append("func.return %n4999x : tensor<4xf32>\n}")
    path = folder / "deep.html"
    path.write_text(to_html(tell(stepwell.parse("\n".join(lines)), "xnnpack", title="deep")))
    return path


CONTRAST = """(() => {
  const parse = (c) => {
    const m = c.match(/[\\d.]+/g).map(Number), scale = c.startsWith("color(") ? 255 : 1;
    return [m[0] * scale, m[1] * scale, m[2] * scale, m[3] ?? 1];
  };
  const over = (a, b) => a.slice(0, 3).map((v, i) => v * a[3] + b[i] * (1 - a[3]));
  const channel = (v) => (v / 255 <= 0.03928 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) =>
    0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (e) => {  // Backgrounds are opaque or not there at all.
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] > 0) return c;
    }
    return [255, 255, 255, 1];
  };
  const bad = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n; (n = walker.nextNode()); ) {
    const e = n.parentElement, box = e.getBoundingClientRect();
    const unseen = ["script", "style", "title", "option"].includes(e.tagName.toLowerCase());
    if (!n.data.trim() || unseen || !box.width || !box.height) continue;
    const style = getComputedStyle(e), svg = e instanceof SVGElement;
    const held = ["a", "g"].includes(e.parentElement.tagName) && e.parentElement;
    const rect = svg && held && held.querySelector(":scope > rect");
    const front = parse(svg ? style.fill : style.color);
    const backs = [rect ? parse(getComputedStyle(rect).fill) : behind(e)];
    const stops = style.backgroundImage.match(/(?:rgba?|color)\\([^)]*\\)/g) || [];
    backs.push(...stops.map(parse).filter((c) => c[3] === 1));
    for (const back of backs) {
      const [a, b] = [luminance(over(front, back)), luminance(back)].sort((x, y) => y - x);
      const ratio = (a + 0.05) / (b + 0.05);
      const place = `${e.tagName}.${e.className.baseVal ?? e.className}`;
      if (ratio < 4.5) bad.add(`${ratio.toFixed(2)} ${place}: ${n.data.trim().slice(0, 40)}`);
    }
  }
  return [...bad];
})()"""
OPEN_ONE = (
    "location.hash = document.querySelector('#graph svg a[aria-label^=Open]').getAttribute('href')"
)


@pytest.mark.parametrize("size", WIDTHS, ids=[f"{w}px" for w, _ in WIDTHS])
def test_no_view_is_wider_than_the_screen(
    browser: Any, page: Path, folder: Path, size: tuple[int, int]
) -> None:
    browser.resize(*size)
    try:
        for tab in TABS:
            browser.open(page, f"#tab={tab}")
            assert browser.ask("document.documentElement.scrollWidth") <= size[0], tab
            assert browser.ask(f"!document.getElementById('{tab}').hidden"), tab
            browser.screenshot(folder / f"{tab}_{size[0]}.png")
            assert (folder / f"{tab}_{size[0]}.png").stat().st_size > 4000
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
    assert Path(__file__).name in link


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


def test_modules_of_the_graph_open_and_close(browser: Any, page: Path) -> None:
    browser.open(page, "#tab=graph&level=0")
    boxes = "document.querySelectorAll('#graph svg rect').length"
    closed = browser.ask(boxes)
    browser.ask(OPEN_ONE)
    browser.wait(f"{boxes} > {closed}")
    browser.ask("location.hash = document.querySelectorAll('#graph .filters a')[1].hash")
    browser.wait(f"{boxes} === {closed}")


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
    browser.open(deep, "#tab=graph&level=0")
    assert browser.ask("document.querySelectorAll('#graph svg rect').length") < 200
    browser.ask(OPEN_ONE)
    browser.wait("document.querySelectorAll('#graph svg rect').length > 100")
