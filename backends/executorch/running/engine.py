"""Import ExecuTorch's runtime without its export and lowering code.

`executorch.runtime` asks the package `executorch.exir` for the class of one warning, and that
package imports all export and lowering code, which takes seconds and is not needed to run a
program.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from stepwell.ir.platform.process_settings import quiet_imports

if TYPE_CHECKING:
    from executorch.runtime import Runtime

_FLOW = "executorch.exir"
RUNTIME_LOCK = threading.RLock()
"""Held by whoever loads or runs a program.

The runtime logs through Python's `sys.stderr`, which lets go of the GIL while the thread holds a
mutex of XNNPACK's; a second thread would enter with the GIL, and wait for that mutex for ever.
Calls of the runtime keep the GIL, so that one at a time is no slower.
"""


def runtime() -> Runtime:
    """Return ExecuTorch's runtime, of which a process has one."""
    with quiet_imports(), RUNTIME_LOCK, _without_flow():
        loaded = importlib.import_module("executorch.runtime")
    return loaded.Runtime.get()


@contextmanager
def _without_flow() -> Generator[None]:
    """Replace the package `executorch.exir` by an empty one while the runtime is imported.

    With several threads, the whole package is imported, because another thread may be importing it.
    """
    found = importlib.util.find_spec("executorch")
    has_others = threading.active_count() > 1
    if "executorch.runtime" in sys.modules or _FLOW in sys.modules or has_others or found is None:
        yield
        return
    bare = ModuleType(_FLOW)
    bare.__path__ = [f"{place}/exir" for place in found.submodule_search_locations or ()]
    sys.modules[_FLOW] = bare
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(f"{_FLOW}.")[0] in ("", _FLOW)]:
            del sys.modules[name]
        vars(importlib.import_module("executorch")).pop("exir", None)
