"""The playground's page in a browser: by mouse and by keyboard, wide and at 390 px."""

import importlib.util
import socket
import struct
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest

import stepwell
from stepwell.cli.commands.play import FIRST
from stepwell.inspection.playground import Playground, Playing
from stepwell.inspection.playground.settings import Asked

from .browser import NEEDED
from .pages import CONTRAST

pytestmark = NEEDED
RULE = """rule relu-to-silu
    Not the same.
Before:
    %y = aten.relu.default(%x)
After:
    %y = aten.silu.default(%x)
"""
IDLE = "document.body && document.body.dataset.ready === 'yes' && document.body.dataset.busy === ''"


@pytest.fixture(scope="module")
def playing() -> Iterator[Playing]:
    with Playing(Playground(stepwell.parse(FIRST), "first")) as held:
        yield held


@pytest.fixture
def page(browser: Any, playing: Playing) -> Any:
    browser.resize(1400, 900)
    playing.held.asked = Asked()
    browser.visit(playing.link, IDLE)
    return browser


def text(page: Any, name: str) -> str:
    return page.ask(f"document.getElementById('{name}').textContent")


def do(page: Any, script: str) -> None:
    page.ask(f"{{ {script}; 0 }}")
    page.wait(IDLE)


def fill(page: Any, name: str, value: str) -> None:
    script = f"document.getElementById('{name}').value = {value!r}"
    page.ask(f"{script}; document.getElementById('{name}').dispatchEvent(new Event('input'))")


def test_the_program_is_edited_and_goes_on_from_there(page: Any) -> None:
    assert "1 delegate, 0 ops outside" in text(page, "summary")
    do(page, "document.getElementById('at').value = 'nodes'; "
             "document.getElementById('at').onchange()")  # fmt: skip
    left = page.ask("document.getElementById('text').value")
    assert "xnnpack.add" in left and "xnnpack.delegate" not in left
    fill(page, "text", left.replace("xnnpack.add", "xnnpack.subtract"))
    page.ask("document.getElementById('text').focus()")
    page.press("Enter", control=True)
    page.wait(IDLE)
    assert (
        "xnnpack.subtract" in text(page, "view") and text(page, "edit-note") == "edited after nodes"
    )
    do(page, "document.getElementById('tab-outputs').click()")
    assert "The first op that differs by these changes: add." in text(page, "view")
    fill(page, "text", left.replace("xnnpack.add", "xnnpack.adds"))
    do(page, "document.getElementById('take').click()")
    assert "xnnpack.adds" in text(page, "problems")
    selected = "document.getElementById('text').value.substring("
    selected += "document.getElementById('text').selectionStart, text.selectionEnd)"
    assert "adds" in page.ask(selected.replace("text.sel", "document.getElementById('text').sel"))


def test_steps_are_walked_switched_and_moved_by_keyboard(page: Any) -> None:
    page.ask("document.querySelector('#steps [tabindex=\"0\"]').focus()")
    for _ in range(3):
        page.press("ArrowDown")
    path = "document.activeElement.dataset.path"
    assert page.ask(path) == "/type-quantization"
    page.press(" ")
    page.wait(IDLE)
    assert "off" in page.ask("document.activeElement.className")
    page.press(" ")
    page.wait(IDLE)
    assert "off" not in page.ask("document.activeElement.className").split()
    page.press("ArrowUp", alt=True)
    page.wait(IDLE)
    order = "[...document.querySelectorAll('#steps .step')].slice(0, 5).map(e => e.dataset.path)"
    assert page.ask(order)[2:4] == ["/type-quantization", "/widen-floats"]
    page.press("Enter")
    assert page.ask("document.querySelectorAll('#steps .part').length") > 3
    page.press("r")
    assert page.ask("document.activeElement.id") == "replace-with"
    fill(page, "replace-with", "no-such-step")
    page.press("Enter")
    page.wait(IDLE)
    assert "pass 'no-such-step' is unknown" in text(page, "problems")


def test_a_typed_rule_is_judged_and_applied_within_the_page(page: Any) -> None:
    fill(page, "rules", RULE)
    page.ask("document.getElementById('rules').focus()")
    page.press("Enter", control=True)
    page.wait(IDLE)
    found = text(page, "found")
    assert "1 wrong" in found and "applied 1×" in found and "aten.silu.default" in found
    assert page.ask("document.querySelector('#steps .own').dataset.path") == "/relu-to-silu"
    assert "xnnpack.sigmoid" in text(page, "view")
    do(page, "document.getElementById('link').click()")
    shared = page.ask("document.getElementById('shared').value")
    do(page, "document.getElementById('own').click()")
    assert "xnnpack.sigmoid" not in text(page, "view")
    do(page, f"location.hash = '{shared.partition('#')[2]}'")
    page.wait("document.querySelector('#steps .own')")
    page.wait(IDLE)
    assert "xnnpack.sigmoid" in text(page, "view")
    assert page.ask("document.getElementById('rules').value") == RULE
    fill(page, "rules", RULE.replace("silu", "silus"))
    do(page, "document.getElementById('apply').click()")
    assert "aten.silus.default" in text(page, "problems")


@pytest.mark.parametrize("size", [(1400, 900), (820, 1100), (390, 844)])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_and_reads(page: Any, tmp_path: Path, size: tuple[int, int], dark: bool) -> None:
    page.resize(*size)
    page.dark(dark)
    try:
        for tab in ("text", "ops", "outputs", "report"):
            do(page, f"document.getElementById('tab-{tab}').click()")
            assert page.ask("document.documentElement.scrollWidth") <= size[0], tab
            assert page.ask(CONTRAST) == [], tab
        page.screenshot(tmp_path / "page.png")
    finally:
        page.dark(False)


@pytest.mark.skipif(
    importlib.util.find_spec("marimo") is None,
    reason="needs the extra: pip install 'stepwell[notebook]'",
)
def test_a_notebook_shows_the_page(
    browser: Any, playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    import marimo

    class Notebook(BaseHTTPRequestHandler):
        """A page of another port with what marimo makes of the playground in it."""

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f"<!doctype html><body>{marimo.as_html(playing).text}".encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is said of requests."""

    asked, lowered = playing.ask, Event()

    def ask(action: str, given: Any) -> Any:
        answer = asked(action, given)
        if action == "lower":
            lowered.set()
        return answer

    monkeypatch.setattr(playing, "ask", ask)
    with ThreadingHTTPServer(("127.0.0.1", 0), Notebook) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        browser.visit(
            f"http://127.0.0.1:{server.server_address[1]}/", "document.querySelector('iframe')"
        )
        assert lowered.wait(60), "the frame's script ran and asked for its program's way down"
        server.shutdown()


def off(path: str) -> str:
    """A script that presses the button of a step that switches it off."""
    return f"document.querySelector('[data-path=\"{path}\"] button').click()"


def test_clicks_and_keys_while_outputs_are_compared_are_done(
    page: Any, playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare, go_on = playing.held.compare, Event()

    def slow(*given: Any) -> Any:
        go_on.wait(60)
        return compare(*given)

    monkeypatch.setattr(playing.held, "compare", slow)
    steps = ("/transforms", "/widen-floats", "/share-types")
    page.ask(off(steps[0]))
    page.wait("document.getElementById('summary').textContent.includes('comparing outputs')")
    page.ask(f"{off(steps[1])}; {off(steps[2])}")
    page.wait("document.querySelectorAll('#steps .step.off').length === 3")
    page.ask("document.querySelector('#steps [data-path=\"/normalize\"] .what').click()")
    page.press(" ")
    page.wait("document.querySelectorAll('#steps .step.off').length === 4")
    assert "comparing outputs" in text(page, "summary")
    go_on.set()
    page.wait(IDLE)
    assert "from eager" in text(page, "summary") and "comparing" not in text(page, "summary")
    page.ask("for (let at = 0; at < 4; at++) document.getElementById('undo').click(); 0")
    page.wait(IDLE)
    page.wait("document.querySelectorAll('#steps .step.off').length === 0")


@pytest.mark.parametrize("width", [1440, 820])
def test_names_and_results_are_seen_at_900_pixels(page: Any, width: int) -> None:
    page.resize(width, 900)
    names = "[...document.querySelectorAll('#steps .what')].map((e) => e.offsetHeight)"
    assert max(page.ask(names)) < 40, "a name takes two lines at most"
    fill(page, "rules", RULE)
    do(page, "document.getElementById('apply').click()")
    for seen in ("#found .verdict", "#view .listing"):
        box = f"document.querySelector('{seen}').getBoundingClientRect()"
        assert page.ask(f"{box}.top") < 860, seen
        assert page.ask(f"document.elementFromPoint({box}.x + 9, {box}.y + 9)"
                        f".closest('{seen}') !== null"), seen  # fmt: skip
    do(page, "document.getElementById('own').click()")


def test_no_number_is_red_where_no_op_differs(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target's own steps move a part of an op to a neighbor: these ops are expected to differ."""
    change = "const usual = window.fetch; window.fetch = async (action, given) => { "
    change += "const answer = await usual(action, given); if (action !== 'compare') return answer; "
    change += "const made = await answer.json(); const [one] = Object.values(made.nodes); "
    change += "one.most = one.size; "
    change += "return Response.json(made); }; 0"
    page.ask(change)
    do(page, "document.getElementById('own').click()")
    do(page, "document.getElementById('tab-outputs').click()")
    assert "No op differs by these changes" in text(page, "view")
    assert page.ask("document.querySelectorAll('#view .far').length") == 0
    do(page, off("/transforms"))
    assert page.ask("document.querySelectorAll('#view .far').length") == 0
    do(page, "document.getElementById('own').click()")


def test_closed_page_leaves_no_traceback(
    playing: Playing, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = Event()

    def slow(action: str, given: Any) -> Any:
        client.close()
        ended.wait(0.3)
        return {"text": "x" * 10_000_000}  # More than a socket takes at once.

    monkeypatch.setattr(playing, "ask", slow)
    client = socket.create_connection(("127.0.0.1", playing.port))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request = f"POST /begin HTTP/1.1\r\nHost: 127.0.0.1:{playing.port}\r\n"
    request += f"X-Stepwell-Token: {playing.token}\r\nContent-Length: 2\r\n\r\n{{}}"
    client.sendall(request.encode())
    for _ in range(100):
        ended.wait(0.02)
        if not any("process_request_thread" in held.name for held in enumerate_threads()):
            break
    assert capfd.readouterr().err == ""
