"""Temporary changes of process-wide settings, with reference counts.

Some settings of Python and torch are process-wide. If lowerings in two threads changed and restored
such a setting independently, the second would restore the value that the first had set. Therefore
only this module makes such changes: settings that the first block changes and the last block
restores, and filters for one thread, which are removed one by one.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import re
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import IO, TextIO

_LOCK = threading.Lock()
_COLLECTION = {"holders": 0, "was on": 0}


@contextmanager
def without_collection(*, lives_on: bool = False) -> Generator[None]:
    """Disable the garbage collector until the last such block ends, because scanning the growing
    heap costs a third more.

    Args:
        lives_on: whether the objects that the block creates are kept: they are then moved to the
            oldest generation, which is not scanned at the end.
    """
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
                if lives_on and not gc.get_freeze_count():
                    gc.freeze()
                    gc.unfreeze()  # Moves all objects into the oldest generation.
                gc.enable()


class _NotFrom(logging.Filter):
    """A filter that drops the records that one thread logs."""

    def __init__(self, thread: int) -> None:
        super().__init__()
        self.thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self.thread


@contextmanager
def without_logs(loggers: Sequence[logging.Logger]) -> Generator[None]:
    """Drop the records that this thread logs to some loggers; other threads are unaffected."""
    silence = _NotFrom(threading.get_ident())
    for logger in loggers:
        logger.addFilter(silence)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(silence)


class _Heard(logging.Filter):
    """A filter that passes one thread's records to a listener, and drops those below the previous
    level.
    """

    def __init__(self, level: int, listener: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self.thread, self.level, self.listener = threading.get_ident(), level, listener

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread == self.thread:
            self.listener(record)
        return record.levelno >= self.level


@contextmanager
def hearing(
    logger: logging.Logger, level: int, listener: Callable[[logging.LogRecord], None]
) -> Generator[None]:
    """Call a listener for each record of at least a level that this thread logs.

    One block at a time is allowed: hold `stepwell.torch_alone`.
    """
    before, seen = logger.level, logger.getEffectiveLevel()
    heard = _Heard(seen, listener)
    logger.addFilter(heard)
    logger.setLevel(min(level, seen))
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeFilter(heard)


@contextmanager
def without_warnings(message: str, category: type[Warning] = Warning) -> Generator[None]:
    """Ignore warnings whose text starts with a pattern, in the whole process."""
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


_LEVELS: dict[str, list[int]] = {}
"""Logger → [number of blocks that silence it, its original level]."""


@contextmanager
def quiet_loggers(*names: str) -> Generator[None]:
    """Let loggers and their children report only errors until the last such block ends."""
    with _LOCK:
        for name in names:
            held = _LEVELS.setdefault(name, [0, logging.getLogger(name).level])
            held[0] += 1
            logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    finally:
        with _LOCK:
            for name in names:
                held = _LEVELS[name]
                held[0] -= 1
                if not held[0]:
                    logging.getLogger(name).setLevel(held[1])
                    del _LEVELS[name]


@contextmanager
def quiet_imports() -> Generator[None]:
    """Silence messages of torchao and torch's pytrees at import, which do not concern a model."""
    message = "`isinstance.treespec, LeafSpec.` is deprecated"
    with quiet_loggers("torchao", "torch.utils._pytree"), without_warnings(message):
        yield


_NATIVE = {"holders": 0, "saved": -1}
_FILES: list[IO[bytes]] = []


@contextmanager
def without_native_lines(unwanted: Callable[[bytes], bool]) -> Generator[None]:
    """Drop unwanted lines that native code writes to the process's standard error.

    The file descriptor is redirected to a file until the last such block ends; then the other
    lines, of any thread, are written to the original descriptor. Keep the block short.
    """
    with _LOCK:
        if not _NATIVE["holders"]:
            sys.stderr.flush()
            file = tempfile.TemporaryFile()  # noqa: SIM115 closed where the last block is left
            _NATIVE["saved"] = os.dup(2)
            os.dup2(file.fileno(), 2)
            _FILES.append(file)
        _NATIVE["holders"] += 1
    try:
        yield
    finally:
        with _LOCK:
            _NATIVE["holders"] -= 1
            if not _NATIVE["holders"]:
                sys.stderr.flush()
                os.dup2(_NATIVE["saved"], 2)
                os.close(_NATIVE["saved"])
                with _FILES.pop() as file:
                    file.seek(0)
                    kept = [line for line in file if not unwanted(line)]
                if kept:
                    os.write(2, b"".join(kept))


class _OfOthers(io.StringIO):
    """A stream that captures one thread's writes; other threads write to the original stream."""

    def __init__(self, usual: TextIO) -> None:
        super().__init__()
        self.usual = usual
        self.thread = threading.get_ident()

    def write(self, text: str) -> int:
        if threading.get_ident() == self.thread:
            return super().write(text)
        return self.usual.write(text)


@contextmanager
def kept_stderr() -> Generator[io.StringIO]:
    """Capture what this thread's Python code writes to standard error."""
    usual = sys.stderr
    kept = _OfOthers(usual)
    sys.stderr = kept
    try:
        yield kept
    finally:
        if sys.stderr is kept:
            sys.stderr = usual
