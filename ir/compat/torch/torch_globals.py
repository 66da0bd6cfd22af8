"""The one place where torch's globals are swapped.

Torch keeps some state once for a process, and some of its functions swap it while they run: to
enter a fake mode turns a switch (`_set_only_lift_cpu_tensors`); `torch.export.export` and
`run_decompositions` turn oneDNN off, patch the kernels of composite operators and the tracer. Each
puts back what it found, so that two at once, in two threads, leave the process as one of them had
made it for itself. Whatever of ours calls such a function holds this lock
(`tests/acceptance/test_torch_globals.py` looks for calls outside of it).

What a caller's own threads do meanwhile is theirs: an export of their own beside a lowering that
needs torch's functionalization (a vmap, autocast) is two exports at once, which torch does not
take. `stepwell.torch_alone` is there for that: hold it around an export of your own.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

_ALONE = threading.RLock()


@contextmanager
def torch_alone() -> Generator[None]:
    """No other thread of ours runs what swaps torch's globals; a thread may enter it again."""
    with _ALONE:
        yield
