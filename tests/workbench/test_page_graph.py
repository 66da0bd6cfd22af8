"""The graph of the page, held to what Model Explorer's and netron's can (`docs/workbench.md`)."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from stepwell.inspection.viewer import to_html, to_model_explorer

from . import pages
from .browser import NEEDED

pytestmark = NEEDED
RIGHT = "[...document.querySelectorAll('#graph canvas')][1]"
SAID = "document.getElementById('graph-said').textContent"
SAVED = """(async () => {
  const made = [], real = URL.createObjectURL;
  URL.createObjectURL = (blob) => { made.push(blob); return real.call(URL, blob); };
  HTMLAnchorElement.prototype.click = function () { this.dispatchEvent(new Event('kept')); };
  [...document.querySelectorAll('#graph button')].find((b) => b.textContent === '%s').click();
  while (!made.length) await new Promise(requestAnimationFrame);
  URL.createObjectURL = real;
  delete HTMLAnchorElement.prototype.click;
  const bytes = new Uint8Array(await made[0].arrayBuffer());
  return made[0].type === 'image/png' ? [...bytes.slice(0, 24)] : new TextDecoder().decode(bytes);
})()"""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pages.write_beside(tmp_path_factory.mktemp("both") / "both.html")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "many.html"
    path.write_text(to_html(pages.layers(20_000)))
    return path


def scale(browser: Any) -> float:
    browser.settle()
    return float(browser.ask(f"{RIGHT}.dataset.scale"))


def picked(browser: Any, side: int = 1) -> list[float]:
    """Left, top, width and height of what is picked, in the canvas; nothing if it is not there."""
    browser.settle()
    held = browser.ask(f"document.querySelectorAll('#graph canvas')[{side}].dataset.picked")
    return [float(number) for number in (held or "").split()]


def middle(browser: Any) -> tuple[float, float]:
    box = browser.ask(
        f"(b => [b.x + b.width / 2, b.y + b.height / 2])({RIGHT}.getBoundingClientRect())"
    )
    return box[0], box[1]


def svg(browser: Any) -> str:
    return browser.ask(SAVED % "SVG")


def boxes(text: str) -> dict[str, str]:
    """Name of each box of an SVG → its fill."""
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    found: dict[str, str] = {}
    for group in root.iter(f"{space}g"):
        name, rect = group.find(f"{space}title"), group.find(f"{space}rect")
        assert name is not None and rect is not None
        found[name.text or ""] = rect.get("fill", "")
    return found


def test_wheel_drag_fingers_and_keys_zoom_and_pan(browser: Any, page: Path) -> None:
    browser.open(page, "#tab=graph&level=0&open=*&pick=gblocks.0")
    x, y = middle(browser)
    before = scale(browser)
    browser.wheel(x, y, -240)
    assert scale(browser) > before
    left, top, *_ = picked(browser)
    browser.drag((x, y), (x + 60, y + 40))
    assert picked(browser)[0] == pytest.approx(left + 60, abs=0.5)
    assert picked(browser)[1] == pytest.approx(top + 40, abs=0.5)
    before = scale(browser)
    browser.pinch(((x - 30, y), (x + 30, y)), ((x - 60, y), (x + 60, y)))
    assert scale(browser) == pytest.approx(2 * before, rel=0.05)
    browser.ask(f"{RIGHT}.focus()")
    browser.press("-")
    assert scale(browser) < 2 * before
    browser.press("0")
    whole = scale(browser)
    browser.press("+")
    assert scale(browser) == pytest.approx(1.3 * whole, rel=0.01)


def test_inputs_outputs_and_shapes_are_drawn(browser: Any, page: Path) -> None:
    browser.open(page, "#tab=graph&level=0&open=*")
    text = svg(browser)
    names = boxes(text)
    assert {"x, 2×8", "output 0, 2×8"} <= set(names)
    shapes = re.findall(r">(\d+×\d+)</text>", text)
    assert shapes.count("2×16") == 8, "what comes out of each `up` and gelu, in and out of modules"


def test_a_search_opens_what_it_found_and_jumps_there(browser: Any, page: Path) -> None:
    browser.open(page, "#tab=graph&level=0")
    browser.ask("document.getElementById('search').focus()")
    for letter in "gelu":
        browser.press(letter)
    browser.wait("document.getElementById('hits').value === '2 nodes'")
    browser.press("Enter")
    browser.wait(f"{SAID}.includes('node gelu,')")
    left, top, width, _ = picked(browser)
    assert width > 50 and left > 0 and top > 0
    browser.press("Enter")
    browser.wait(f"{SAID}.includes('node gelu_1,')")


@pytest.mark.parametrize(
    ("overlay", "said", "node"),
    [
        ("time", "time a call: 0.25 ms to 0.25 ms, 4 nodes", ", 0.25 ms"),
        ("work", "work: ", " ops"),
        ("bytes", "bytes written: 64 B to 128 B", "aten.gelu, 128 B"),
        ("difference", "difference from eager: ", "e-"),
        ("own:mine.json", "mine.json: 0.5 to 3, 2 nodes", "aten.gelu, 3"),
    ],
)
def test_numbers_are_laid_over_the_graph(
    browser: Any, page: Path, overlay: str, said: str, node: str
) -> None:
    browser.open(page, f"#tab=graph&level=0&open=*&over={overlay}")
    assert browser.ask("document.getElementById('legend').textContent").startswith(said)
    names = boxes(svg(browser))
    assert any(node in name for name in names), names
    if overlay.startswith("own:"):
        fills = {name.split(",")[1]: fill for name, fill in names.items() if "," in name}
        assert fills[" 0.5"] == "rgb(0, 0, 128)" and fills[" 3"] == "rgb(68, 0, 0)"


def test_a_file_of_numbers_is_taken_and_a_wrong_one_is_told(browser: Any, page: Path) -> None:
    give = """((text) => {
        const held = new DataTransfer(), input = document.getElementById('own-json');
        held.items.add(new File([text], 'run.json')); input.files = held.files;
        input.onchange(); })(%s)"""
    browser.open(page, "#tab=graph&level=0&open=*")
    browser.ask(give % json.dumps("[]"))
    legend = "document.getElementById('legend').textContent"
    browser.wait(f"{legend}.includes('no `results` in it')")
    (graph,) = json.loads(to_model_explorer(pages.program_of(pages.Model())))["graphs"]
    gelu = next(node["id"] for node in graph["nodes"] if node["label"] == "aten.gelu.default")
    data = {"model": {"forward": {"results": {gelu: {"value": 7}, "input0": {"value": 1}}}}}
    browser.ask(give % json.dumps(json.dumps(data)))
    browser.wait(f"{legend} === 'run.json: 1 to 7, 2 nodes'")


def test_two_programs_stand_side_by_side_with_what_differs(browser: Any, both: Path) -> None:
    browser.open(both, "#tab=graph&open=*")
    assert browser.ask("document.querySelectorAll('.picture:not([hidden])').length") == 2
    legend = browser.ask("document.getElementById('legend').textContent")
    assert legend.endswith(" 2 of 26 differ")
    browser.ask("document.getElementById('search').value = 'gelu_1'")
    browser.ask("document.getElementById('search').oninput()")
    browser.wait("document.getElementById('hits').value === '1 node'")
    browser.ask("document.getElementById('search').focus()")
    browser.press("Enter")
    browser.wait(f"{SAID}.includes('node gelu_1')")
    assert picked(browser, 0) and picked(browser, 1), "the same op is picked on both sides"
    browser.open(both, "#tab=levels")
    assert "2 new" in browser.ask("document.getElementById('changes').textContent")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("overlay", ["", "bytes", "difference", "own:mine.json"])
def test_what_is_saved_is_a_picture_whose_text_stands_out(
    browser: Any, page: Path, overlay: str, dark: bool
) -> None:
    browser.dark(dark)
    try:
        browser.open(page, f"#tab=graph&level=5&open=*&over={overlay}&beside=0")
        text = svg(browser)
        ElementTree.fromstring(text)
        browser.ask(f"document.querySelector('main').innerHTML = {json.dumps(text)}")
        assert browser.ask(pages.CONTRAST) == []
    finally:
        browser.dark(False)


def test_a_png_is_saved(browser: Any, page: Path) -> None:
    browser.open(page, "#tab=graph&level=0")
    header = bytes(browser.ask(SAVED % "PNG"))
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(header[16:20], "big") > 200


def test_of_twenty_thousand_nodes_only_those_in_view_are_drawn(browser: Any, many: Path) -> None:
    browser.open(many, "#tab=graph&open=*")
    browser.wait(f"{RIGHT}.dataset.drawn")
    title = "document.querySelectorAll('.picture h3')[1].textContent"
    assert browser.ask(title).startswith("program: 20,000 ops, 20,8")
    browser.ask(f"{RIGHT}.focus()")
    browser.press("0")
    smallest, most = scale(browser), 0
    for _ in range(45):
        browser.press("+")
        most = max(most, int(browser.ask(f"{RIGHT}.dataset.drawn")))
    assert scale(browser) > 1000 * smallest
    assert most < 4000, "of more than 60,000 boxes, lines and words"


def test_the_keyboard_alone_walks_opens_and_closes(browser: Any, page: Path) -> None:
    browser.open(page, "#tab=graph&level=0")
    for _ in range(60):
        browser.press("Tab")
        if browser.ask(f"document.activeElement === {RIGHT}"):
            break
    assert browser.ask(f"document.activeElement === {RIGHT}")
    browser.press("ArrowDown")
    browser.wait(f"{SAID}.startsWith('input x, 2×8')")
    browser.press("ArrowDown")
    browser.wait(f"{SAID}.startsWith('blocks, group of 10 ops, closed')")
    browser.press("Enter")
    browser.wait(f"{SAID}.startsWith('blocks, group of 10 ops, open')")
    browser.press("ArrowDown")
    browser.wait(f"{SAID}.startsWith('aten.atan')")
    browser.press("ArrowUp")
    browser.wait(f"{SAID}.startsWith('1, group of 5 ops, closed')")
    browser.press("Backspace")
    browser.wait(f"{SAID}.startsWith('blocks, group of 10 ops, closed')")
    browser.press("Enter")
    browser.press("Escape")
    browser.wait(f"{SAID} === ''")
    browser.open(page, "#tab=graph&level=0&pick=o4&open=*")
    browser.ask(f"{RIGHT}.focus()")
    browser.press("Enter")
    browser.wait("document.activeElement.id === 'graph-details'")


def test_a_click_picks_and_opens(browser: Any, page: Path) -> None:
    browser.open(page, "#tab=graph&level=0&pick=gblocks")
    left, top, width, height = picked(browser)
    x, y = browser.ask(f"(b => [b.x, b.y])({RIGHT}.getBoundingClientRect())")
    place = (x + left + width / 2, y + top + height / 2)
    browser.drag(place, place)
    browser.wait(f"{SAID}.includes('open')")
    assert "aten.linear × 4" in browser.ask("document.getElementById('graph-details').textContent")


def test_everything_that_can_be_reached_has_a_name(browser: Any, page: Path) -> None:
    reached = {"button", "link", "textbox", "searchbox", "combobox", "checkbox", "slider", "image"}
    reached |= {"application", "separator"}
    for tab in pages.TABS:
        browser.open(page, f"#tab={tab}")
        nameless = [role for role, name in browser.accessible() if role in reached and not name]
        assert nameless == [], tab
    browser.open(page, "#tab=graph&level=0")
    assert ("application", "Graph of program, 12 ops") in browser.accessible()


@pytest.mark.parametrize("width", [390, 820, 1440])
def test_flames_and_memory_are_not_cut(browser: Any, page: Path, width: int) -> None:
    browser.resize(width, 900)
    try:
        for tab in ("profile", "memory", "graph"):
            browser.open(page, f"#tab={tab}")
            ends = browser.ask(
                f"[...document.querySelectorAll('#{tab} > svg, #{tab} canvas')]"
                ".map(e => e.getBoundingClientRect()).filter(b => b.width)"
                ".map(b => [b.left, b.right])"
            )
            assert ends and all(0 <= start < end <= width for start, end in ends), tab
            letters = (
                "[...document.querySelectorAll('#memory svg text')]"
                ".map(t => parseFloat(getComputedStyle(t).fontSize))"
            )
            assert all(size >= 10 for size in browser.ask(letters))
    finally:
        browser.resize(*pages.WIDTHS[0])


def test_one_profile_has_one_time(browser: Any, page: Path) -> None:
    browser.open(page, "#tab=profile")
    assert "1.5 ms a call" in browser.ask("document.getElementById('summary').textContent")
    told = browser.ask("document.querySelector('#profile p').textContent")
    parts = [float(number) for number in re.findall(r"([\d.]+) ms", told)]
    assert parts[0] == 1.5 and sum(parts[1:]) == pytest.approx(parts[0], abs=0.002)


def test_weights_show_their_numbers(browser: Any, page: Path) -> None:
    browser.open(page, "#tab=weights&sort=each%3A3%3Ad")
    rows = "[...[...document.querySelectorAll('#weights table')].at(-1).tBodies[0].rows]"
    cells = browser.ask(f"{rows}.map(r => [...r.cells].slice(3).map(c => c.textContent))")
    assert cells[0][0] == "512" and all(cell for row in cells for cell in row)
    assert all(float(least) <= float(mean) <= float(most) for _, least, most, mean, _ in cells)


def test_memory_of_xnnpack_is_shown_by_value(browser: Any, page: Path) -> None:
    browser.open(page, "#tab=memory")
    told = browser.ask("document.getElementById('memory').textContent")
    assert "XNNPACK's workspace in forward, delegate 0" in told
    assert "fully_connected (linear) → gelu (gelu)" in told
