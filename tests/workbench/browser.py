"""Chromium over a pipe: pages are opened, keys pressed and scripts asked, as a person would.

The protocol is that of Chromium's developer tools, spoken over file descriptors 3 and 4, so that
nothing but the browser is needed.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NEEDED = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on the path; on Debian: apt-get install chromium"
)
KEYS = {
    "Backspace": 8,
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "End": 35,
    "Home": 36,
    "ArrowDown": 40,
    "ArrowUp": 38,
    "ArrowRight": 39,
}

_MOVE_PIPES = """
import fcntl, os, sys
there, back = (fcntl.fcntl(int(given), fcntl.F_DUPFD, 10) for given in sys.argv[1:3])
os.dup2(there, 3), os.dup2(back, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One headless browser with one page."""

    def __init__(self, folder: Path, width: int = 1400, height: int = 900) -> None:
        assert CHROMIUM is not None
        there, self._out = os.pipe()
        self._in, back = os.pipe()
        command = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}",
            "--hide-scrollbars", "about:blank",
        ]  # fmt: skip
        started = [sys.executable, "-c", _MOVE_PIPES, str(there), str(back), *command]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            started, pass_fds=(there, back), stdout=quiet, stderr=quiet
        )
        os.close(there)
        os.close(back)
        self._buffer, self._number = b"", 0
        (target,) = [
            t for t in self._ask("Target.getTargets")["targetInfos"] if t["type"] == "page"
        ]
        attached = {"targetId": target["targetId"], "flatten": True}
        self._session = self._ask("Target.attachToTarget", attached)["sessionId"]
        self.errors: list[str] = []
        self._ask("Runtime.enable")
        self._ask("Log.enable")
        self.resize(width, height)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def cpu_seconds(self) -> float:
        """CPU time of all processes of the browser so far (Linux)."""
        spent, parents = dict[int, float](), dict[int, int]()
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:  # It ended just now.
                continue
            process = int(stat.parent.name)
            parents[process] = int(fields[1])
            spent[process] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        within = {self._process.pid}
        while below := {p for p, parent in parents.items() if parent in within} - within:
            within |= below
        return sum(spent.get(process, 0) for process in within)

    def _ask(self, method: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": given or {}}
        if hasattr(self, "_session"):
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                read = os.read(self._in, 1 << 16)
                assert read, "the browser ended"
                self._buffer += read
            text, _, self._buffer = self._buffer.partition(b"\0")
            answer = json.loads(text)
            self._keep_error(answer)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _keep_error(self, event: dict[str, Any]) -> None:
        """Note what a page throws, or prints as an error, in `errors`."""
        told, given = event.get("method"), event.get("params", {})
        is_error = told == "Runtime.exceptionThrown" or (
            told in ("Runtime.consoleAPICalled", "Log.entryAdded")
            and "error" in (given.get("type"), given.get("entry", {}).get("level"))
        )
        if is_error:
            self.errors.append(json.dumps(given)[:2000])

    def resize(self, width: int, height: int) -> None:
        """The size of the view, in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", size)

    def dark(self, on: bool) -> None:
        """What the reader's system prefers."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        self._ask("Emulation.setEmulatedMedia", {"features": [feature]})

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a page and wait until it has drawn itself."""
        self._ask("Page.navigate", {"url": "about:blank"})
        self._ask("Page.navigate", {"url": path.as_uri() + fragment})
        # What a script does before a page is complete replaces its entry of the history.
        drawn = "document.readyState === 'complete' && document.body.dataset.ready === 'yes'"
        self.wait(f"location.protocol === 'file:' && {drawn}")

    def visit(self, address: str, drawn: str) -> None:
        """Load a page of a server and wait until an expression says that it has drawn itself."""
        self._ask("Page.navigate", {"url": "about:blank"})
        self._ask("Page.navigate", {"url": address})
        self.wait(f"location.protocol === 'http:' && {drawn}")

    def ask(self, script: str) -> Any:
        """The value of an expression in the page."""
        # Without a gesture of a user, a browser keeps fewer entries of its history.
        given = {"expression": script, "returnByValue": True, "awaitPromise": True}
        given["userGesture"] = True
        found = self._ask("Runtime.evaluate", given)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script: str) -> None:
        """Until an expression is true."""
        for _ in range(2000):
            if self.ask(f"Boolean({script})"):
                return
            time.sleep(0.02)
        raise AssertionError(f"never true: {script}")

    def settle(self) -> None:
        """Wait until what is to be drawn is drawn."""
        self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def wheel(self, x: float, y: float, by: float) -> None:
        """Turn the mouse's wheel at a place; upwards is negative."""
        where = {"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": by}
        self._ask("Input.dispatchMouseEvent", where)
        self.settle()

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press at one place, let go at another; both the same is a click."""
        button = {"button": "left", "buttons": 1, "clickCount": 1}
        for kind, (x, y) in (("Pressed", start), ("Moved", end), ("Released", end)):
            if kind != "Moved" or start != end:
                what = {"type": f"mouse{kind}", "x": x, "y": y, **button}
                self._ask("Input.dispatchMouseEvent", what)
        self.settle()

    def pinch(self, *steps: tuple[tuple[float, float], ...]) -> None:
        """Touch with fingers at the places of the first step and move them through the others."""
        for kind, step in zip(("touchStart", *("touchMove",) * len(steps)), steps, strict=False):
            points = [{"x": x, "y": y, "id": at} for at, (x, y) in enumerate(step)]
            self._ask("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        self._ask("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        self.settle()

    def accessible(self) -> list[tuple[str, str]]:
        """(role, name) of everything that a screen reader is told of."""
        nodes = self._ask("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored") and "role" in node
        ]

    def press(self, key: str, *, alt: bool = False, control: bool = False) -> None:
        """A key, by its name or its character, with others held."""
        what: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": KEYS.get(key, ord(key[0]))}
        what["modifiers"] = alt + 2 * control
        if key in KEYS:
            what["text"] = "\r" if key == "Enter" else ""
        else:
            what["text"] = key
        self._ask("Input.dispatchKeyEvent", {"type": "keyDown", **what})
        self._ask("Input.dispatchKeyEvent", {"type": "keyUp", **what, "text": ""})
        self.settle()

    def screenshot(self, path: Path) -> None:
        """The view as a PNG."""
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot")["data"]))
