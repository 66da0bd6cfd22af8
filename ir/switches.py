"""Switches of the process, turned for a while and exactly as before afterwards.

Python and torch keep some state once for a whole process. A lowering that turned such a switch by
itself would leave it turned when a second one, in another thread, put back what it had found. What
has to be turned at all is turned here: switches that only the first turns and the last turns back,
and filters that look at one thread and are taken away one by one.
"""

from __future__ import annotations

import gc
import logging
import re
import threading
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager

_LOCK = threading.Lock()
_COLLECTION = {"holders": 0, "was on": 0}


@contextmanager
def without_collection() -> Generator[None]:
    """Cyclic garbage waits until the last block is left: scanning what grows costs a third more."""
    with _LOCK:
        if not _COLLECTION["holders"]:
            _COLLECTION["was on"] = gc.isenabled()
            gc.disable()
        _COLLECTION["holders"] += 1
    try:
        yield
    finally:
        with _LOCK:
            _COLLECTION["holders"] -= 1
            if not _COLLECTION["holders"] and _COLLECTION["was on"]:
                gc.enable()


class _NotFrom(logging.Filter):
    """Drops what one thread logs."""

    def __init__(self, thread: int) -> None:
        super().__init__()
        self.thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self.thread


@contextmanager
def without_logs(loggers: Sequence[logging.Logger]) -> Generator[None]:
    """What this thread tells these loggers is dropped; other threads are heard."""
    silence = _NotFrom(threading.get_ident())
    for logger in loggers:
        logger.addFilter(silence)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(silence)


@contextmanager
def without_warnings(message: str, category: type[Warning] = Warning) -> Generator[None]:
    """Warnings whose text starts with a pattern are ignored, in the whole process meanwhile."""
    ignored = ("ignore", re.compile(message, re.IGNORECASE), category, None, 0)
    with _LOCK:
        warnings.filters.insert(0, ignored)  # pyright: ignore
    try:
        yield
    finally:
        with _LOCK:
            for at, held in enumerate(warnings.filters):
                if held is ignored:
                    del warnings.filters[at]  # pyright: ignore
                    break
