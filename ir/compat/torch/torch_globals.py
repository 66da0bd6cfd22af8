"""The lock for functions that change torch's process-wide state.

Some of torch's functions change its process-wide state while they run: entering a fake mode sets a
switch (`_set_only_lift_cpu_tensors`); `torch.export.export` and `run_decompositions` disable oneDNN
and patch the kernels of composite operators and the tracer. Each restores the state that it found,
so that two concurrent calls in two threads leave the process in the state of one of them. All code
of stepwell holds this lock while it calls such a function (`tests/acceptance/test_torch_globals.py`
finds calls without it).

The lock does not cover a caller's own threads: an export next to a lowering that needs torch's
functionalization (a vmap, autocast) is two concurrent exports, which torch does not support. Hold
`stepwell.torch_alone` around your own export in that case.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

_ALONE = threading.RLock()


@contextmanager
def torch_alone() -> Generator[None]:
    """Exclude other threads of stepwell from functions that change torch's globals; reentrant."""
    with _ALONE:
        yield
