"""Serve the playground's page on the loopback address, to clients with the token of its link.

A browser that follows a link of another page has no token, and a request with another host name
(`Host`) is rejected. One action that changes the state runs at a time. Another one waits for a
limited time and is then rejected, so that no request hangs. Actions that only read do not wait.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from stepwell.inspection.playground.pipeline_rows import told
from stepwell.inspection.playground.playground import Playground
from stepwell.inspection.playground.settings import Asked
from stepwell.ir.diagnostics import ParseFailure, StepwellError
from stepwell.program import Program, from_exported_program, programs_of

HEADER = "X-Stepwell-Token"
MOST_BYTES = 1 << 31
"""The size limit of a request, which may contain a file."""
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self' http://localhost:* http://127.0.0.1:*"
)

Action = Callable[[Playground, Any], Any]
ACTIONS: Mapping[str, Action] = {
    "begin": lambda held, given: held.begin(),
    "lower": lambda held, given: held.lower(given),
    "compare": lambda held, given: held.compare(given),
    "rule": lambda held, given: held.rule(given.get("asked"), _text(given.get("text"))),
    "verdicts": lambda held, given: held.verdicts(_text(given.get("text"))),
    "link": lambda held, given: {"link": held.link(given)},
    "open": lambda held, given: held.open(_text(given.get("link"))),
    "file": lambda held, given: held.file(given),
    "artifact": lambda held, given: held.artifact(given),
}
"""The actions that a page may request; an answer is JSON, or the bytes of a file."""
READING = frozenset(("begin", "verdicts"))
"""Read-only actions."""
PATIENCE = 10.0
"""The seconds that an action waits for the running one."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of a mistake; a page that was closed before its answer is none."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class BusyError(StepwellError):
    """The server is busy with another action."""


def _text(text: Any) -> str:
    if not isinstance(text, str):
        raise ParseFailure("a text is needed")
    return text


class Playing:
    """A playground with its server; closing it stops the server.

    In a notebook it shows the page.
    """

    def __init__(self, held: Playground, port: int = 0) -> None:
        """Create the server of a playground.

        Args:
            held: the playground to serve.
            port: the port on the loopback address; 0: any free port.

        Raises:
            StepwellError: the port is taken.
        """
        self.held = held
        self.token = secrets.token_urlsafe(18)
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"playing": self})
        try:
            self._server = _Server(("127.0.0.1", port), handler)
        except OSError as error:
            raise StepwellError(
                f"port {port} cannot be served: {error.strerror}",
                help="--port 0 chooses a free port",
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        threading.Thread(target=self._warm, daemon=True).start()

    def _warm(self) -> None:
        """Start the processes, so that the first rule need not wait for them."""
        with self._lock:
            self.held.warm()

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return self._server.server_address[1]

    @property
    def link(self) -> str:
        """Return the address of the page, with its token."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    def ask(self, action: str, given: Any) -> Any:
        """Run an action; actions that change the state do not run concurrently.

        Raises:
            BusyError: another action runs for too long.
            StepwellError: the action fails.
        """
        if action == "compare":  # It takes seconds, and other actions need not wait for it.
            with self._alone():
                lowered = self.held.lowered(given)
            return self.held.compare(given, lowered)
        with contextlib.nullcontext() if action in READING else self._alone():
            return ACTIONS[action](self.held, given)

    def open(self, data: bytes) -> Any:
        """Replace the current program by the content of a file."""
        with self._alone():
            return self.held.open(data)

    @contextlib.contextmanager
    def _alone(self) -> Generator[None]:
        if not self._lock.acquire(timeout=PATIENCE):
            raise BusyError("another action is running", help="ask again when it has ended")
        try:
            yield
        finally:
            self._lock.release()

    def wait(self) -> None:
        """Serve until the server is closed."""
        self._thread.join()

    def close(self) -> None:
        """Stop the server and its processes."""
        self._server.shutdown()
        self._server.server_close()
        self.held.close()

    def __enter__(self) -> Playing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        style = "width:100%;height:80vh;border:0"
        return f'<iframe src="{self.link}" title="stepwell play" style="{style}"></iframe>'


def play(program: Any, target: str = "xnnpack", *, name: str = "program", port: int = 0) -> Playing:
    """Serve a playground of a program on this machine.

    Args:
        program: the program, as for `stepwell.lower`.
        target: the initial target.
        name: the name to show.
        port: the port on the loopback address; 0: any free port.

    Raises:
        StepwellError: the port is taken.
    """
    programs = programs_of(program)
    source = programs if isinstance(programs, Program) else from_exported_program(programs)
    return Playing(Playground(source, name, Asked(target)), port)


def page(nonce: str) -> str:
    """Return the page with its style and scripts."""
    here = files("stepwell.inspection.playground")
    shown = files("stepwell.inspection.viewer")
    style = (shown / "page.css").read_text("utf-8") + (here / "play.css").read_text("utf-8")
    text = (here / "play.html").read_text("utf-8")
    for mark, part in (
        ("/*STYLE*/", style),
        ("/*SCRIPT*/", (here / "play.js").read_text("utf-8")),
        ("NONCE", nonce),
    ):
        text = text.replace(mark, part)
    return text


class _Handler(BaseHTTPRequestHandler):
    """A handler of the requests of one page."""

    playing: Playing
    server_version = "stepwell"
    sys_version = ""
    timeout = 60

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""

    def do_GET(self) -> None:
        """Answer a GET request with the page."""
        address = urlsplit(self.path)
        given = parse_qs(address.query).get("token", [""])[0]
        if not self._is_local():
            self._send(403, b"this server answers to its own address alone", "text/plain")
        elif address.path != "/":
            self._send(404, b"there is one page here", "text/plain")
        elif not self._knows(given):
            self._send(403, b"take the link that stepwell play printed", "text/plain")
        else:
            nonce = secrets.token_urlsafe(12)
            policy = _POLICY.format(nonce=nonce)
            self._send(200, page(nonce).encode(), "text/html; charset=utf-8", policy)

    def do_POST(self) -> None:
        """Answer a POST request by running an action of the playground."""
        action = urlsplit(self.path).path.removeprefix("/")
        size = self.headers.get("Content-Length", "")
        if not self._is_local() or not self._knows(self.headers.get(HEADER, "")):
            self._send(403, b"the token is missing", "text/plain")
            self.close_connection = True
        elif not size.isdecimal() or int(size) > MOST_BYTES:
            self._send(413, b"too long", "text/plain")
        elif action != "upload" and action not in ACTIONS:
            self._send(404, b"there is no such action", "text/plain")
        else:
            self._answer(action, self.rfile.read(int(size)))

    def _answer(self, action: str, body: bytes) -> None:
        try:
            if action == "upload":
                found = self.playing.open(body)
            else:
                given = json.loads(body)
                if not isinstance(given, dict):
                    return self._json(400, {"problems": [{"fact": "the request is no object"}]})
                found = self.playing.ask(action, given)
        except StepwellError as error:
            status = 503 if isinstance(error, BusyError) else 422
            return self._json(status, {"problems": told(error)})
        except (ValueError, RecursionError):
            return self._json(400, {"problems": [{"fact": "the request is no JSON"}]})
        except Exception as error:
            traceback.print_exc()
            fact = f"{type(error).__name__}: {error}"
            help = "a mistake of stepwell's own: the terminal shows where"
            return self._json(500, {"problems": [{"fact": fact, "help": help}]})
        if isinstance(found, bytes):
            return self._send(200, found, "application/octet-stream")
        return self._json(200, found)

    def _is_local(self) -> bool:
        """Whether the request's host is the loopback address itself, not a name that resolves to
        it.
        """
        host = self.headers.get("Host", "")
        origin = self.headers.get("Origin")
        known = [f"{name}:{self.playing.port}" for name in ("127.0.0.1", "localhost")]
        return host in known and origin in (None, *(f"http://{name}" for name in known))

    def _knows(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.playing.token.encode())

    def _json(self, status: int, value: Any) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(
        self, status: int, data: bytes, kind: str, policy: str = "default-src 'none'"
    ) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(data))),
            ("Content-Security-Policy", policy),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
