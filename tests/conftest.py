"""What every test starts from: one thread, one seed, and reproducible random examples."""

import gc
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
import torch._export.utils
from forking import Forks
from hypothesis import settings

# Two workers share the machine. ExecuTorch reads the thread count when its first delegate loads.
torch.set_num_threads(1)

# A worker holds millions of objects, most of them for good: each is looked through once.
gc.set_threshold(2000, 20, 25)


def keep(phase: str, collected: dict[str, int]) -> None:
    """What outlived a whole collection is looked through in none to come."""
    if phase == "stop" and collected["generation"] == 2:
        gc.freeze()


gc.callbacks.append(keep)

# A mistake of a step costs a user one op, and is an error here.
os.environ["STEPWELL_FAILURES"] = "raise"

settings.register_profile("test", deadline=None, derandomize=True, database=None)
EXAMPLES = int(os.environ.get("SOAK_EXAMPLES", "10000"))
"""Random programs of each kind in `make soak`."""
settings.register_profile("soak", deadline=None, max_examples=EXAMPLES)
settings.load_profile("test")


def pytest_runtest_setup() -> None:
    """Make a test's random tensors the same in every run and order.

    `torch.manual_seed` formats its stack for each kind of device that is not there.
    """
    torch.default_generator.manual_seed(0)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What a test switches off with `logging.disable` is on again for the next.

    torchao keeps every graph whose device it was asked for, and torch's tracer asks all classes of
    living graphs whether they are changed, twice an export: they go with the file that made them.
    """
    if logging.root.manager.disable:  # Every logger forgets what it knows.
        logging.disable(logging.NOTSET)
    is_last = nextitem is None or nextitem.path != item.path
    if is_last and (torchao := sys.modules.get("torchao.utils")):
        torchao._assert_and_get_unique_device.cache_clear()


def materialize_what_is_new(materialize: Callable[[], None]) -> Callable[[], None]:
    """torch looks every composite operator up for each of 30 namespaces, at each decomposition."""
    known: list[tuple[int, ...]] = []

    def once() -> None:
        registered = (torch.library._impls, torch.library._defs, torch.ops.loaded_libraries)
        if (count := tuple(map(len, registered))) not in known[-1:]:
            materialize()
            known.append(count)

    return once


torch._export.utils._materialize_cpp_cia_ops = materialize_what_is_new(
    torch._export.utils._materialize_cpp_cia_ops
)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Runs command lines in processes that need not import everything again."""
    server = Forks()
    yield server
    server.close()


@pytest.fixture
def forked(forks: Forks, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs Python in a process of its own runs a fork."""
    monkeypatch.setattr(subprocess, "run", forks.in_place_of(subprocess.run))


def pytest_unconfigure() -> None:
    """Let pytest look through what is left once, and not five times."""
    gc.collect()
    gc.freeze()
