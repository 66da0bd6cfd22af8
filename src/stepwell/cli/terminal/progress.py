"""Progress on a terminal, of what takes longer than two seconds; nothing where output is piped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

PATIENCE = 2.0
"""Seconds after which progress is shown."""


@contextmanager
def counting(title: str, form: str) -> Generator[Callable[..., None]]:
    """A line that says how far something has come.

    Args:
        title: what is being done.
        form: the text behind it, formatted with what the yielded function is told by keyword.
    """
    with _Bar(title) as bar:

        def tell(**said: Any) -> None:
            bar.say(f"{title}: {form.format(**said)}")

        yield tell


@contextmanager
def stepping(title: str) -> Generator[Callable[[str, int, int], None]]:
    """A bar; the yielded function is told (what is being done, its number, how many there are)."""
    with _Bar(title) as bar:
        yield lambda what, number, of: bar.say(f"{title}: {what}", number, of)


@contextmanager
def waiting(title: str) -> Generator[None]:
    """A line that moves while something takes its time and says nothing by itself."""
    with _Bar(title) as bar:
        timer = threading.Timer(PATIENCE, lambda: bar.say(title))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


class _Bar:
    """A bar of rich's that appears late, on a terminal alone."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.started = time.monotonic()
        self.shown = cast(Any, None)
        self.task = cast(Any, None)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *error: object) -> None:
        if self.shown is not None:
            self.shown.stop()

    def say(self, text: str, number: int = 0, of: int | None = None) -> None:
        """Show where things stand."""
        is_late = time.monotonic() - self.started >= PATIENCE
        if self.shown is None and not (is_late and self._start()):
            return
        assert self.shown is not None
        self.shown.update(self.task, description=text, completed=number, total=of)

    def _start(self) -> bool:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        if not console.is_terminal:
            self.started = float("inf")  # Not asked again.
            return False
        columns = (TextColumn("{task.description:48}"), BarColumn(), TimeElapsedColumn())
        self.shown = Progress(*columns, console=console, transient=True)
        self.task = self.shown.add_task(self.title, total=None)
        self.shown.start()
        return True
