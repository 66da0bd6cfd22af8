"""Show progress on a terminal for tasks longer than two seconds; nothing if output is piped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

from stepwell.ir.compat.torch.lazy_imports import OnDemand

rich_console = OnDemand("rich.console")
rich_progress = OnDemand("rich.progress")


PATIENCE = 2.0
"""Seconds after which progress is shown."""


@contextmanager
def counting(title: str, form: str) -> Generator[Callable[..., None]]:
    """Show a line with the progress of a task.

    Args:
        title: the task.
        form: the format of the text after the title, for the keyword arguments of the yielded
            function.
    """
    with _Bar(title) as bar:

        def tell(**said: Any) -> None:
            bar.say(f"{title}: {form.format(**said)}")

        yield tell


@contextmanager
def stepping(title: str) -> Generator[Callable[[str, int, int], None]]:
    """Show a progress bar, updated by the yielded function (current item, its number, total)."""
    with _Bar(title) as bar:
        yield lambda what, number, of: bar.say(f"{title}: {what}", number, of)


@contextmanager
def waiting(title: str) -> Generator[None]:
    """Show an animated line during a task that does not report progress."""
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
    """A progress bar of rich that appears with a delay, on a terminal only."""

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
        """Show the current progress in the bar."""
        is_late = time.monotonic() - self.started >= PATIENCE
        if self.shown is None and not (is_late and self._start()):
            return
        assert self.shown is not None
        self.shown.update(self.task, description=text, completed=number, total=of)

    def _start(self) -> bool:
        console = rich_console.Console(stderr=True)
        if not console.is_terminal:
            self.started = float("inf")  # The check is not repeated.
            return False
        columns = (
            rich_progress.TextColumn("{task.description:48}"),
            rich_progress.BarColumn(),
            rich_progress.TimeElapsedColumn(),
        )
        self.shown = rich_progress.Progress(*columns, console=console, transient=True)
        self.task = self.shown.add_task(self.title, total=None)
        self.shown.start()
        return True
