"""Tasks on Dask: as many under way as the workers have hands, each result as it comes.

Dask does what a scheduler does: it places tasks, notices workers that are gone and runs what they
had again. What is left to do here: not to hand over everything at once, to ask a scheduler that
came back again for what is still missing, and to measure time where nothing else runs.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stepwell.ir.diagnostics import StepwellError
from stepwell.model_zoo.sweep.jobs import Limits, Task
from stepwell.model_zoo.sweep.wire import plain
from stepwell.model_zoo.sweep.worker import run

if TYPE_CHECKING:
    from distributed import Client, Future

AHEAD = 3
"""Tasks handed over for each worker: one it runs, the others so that it never waits."""
LIVES = 3
"""Workers that a task may take with it before it is given up."""
PATIENCE = 120.0
"""Seconds that a scheduler may be away."""
QUIET = "quiet"
"""The resource of workers on which time is measured, one task at a time."""

Work = Callable[[dict[str, Any]], list[dict[str, Any]]]
Done = Callable[[Task, list[dict[str, Any]]], None]


@contextmanager
def local_cluster(workers: int) -> Generator[str]:
    """A scheduler and workers of this machine for a while; the scheduler's address.

    Raises:
        StepwellError: Dask is not installed.
    """
    import_dask()
    from dask import config  # pyright: ignore[reportPrivateImportUsage]
    from distributed import LocalCluster

    settings = {
        "distributed.scheduler.allowed-failures": LIVES - 1,
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
        "distributed.admin.tick.limit": "60s",
    }
    with (
        config.set(settings),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=None,
            dashboard_address="127.0.0.1:0",
            resources={QUIET: 1},
            silence_logs=logging.CRITICAL,
        ) as cluster,
    ):
        yield str(cluster.scheduler_address)  # pyright: ignore[reportAttributeAccessIssue]


def import_dask() -> None:
    """Raise a StepwellError if Dask is not there."""
    try:
        import distributed  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        raise StepwellError(
            "a sweep runs on Dask, which is not installed", help="pip install 'stepwell[sweep]'"
        ) from None


def run_tasks(
    address: str, tasks: Sequence[Task], limits: Limits, done: Done, work: Work = run
) -> None:
    """Run tasks on a cluster, and tell of each as it is done, in any order, once.

    Args:
        address: of the scheduler. If it goes away it is waited for, and asked again for what was
            not done; a task that was under way then runs anew.
        tasks: those that measure time run after all others, one at a time, where workers are
            marked as quiet.
        limits: of each job.
        done: called in this thread.
        work: what a worker does with a task made plain.

    Raises:
        StepwellError: no scheduler answers, or none of its workers is marked as quiet.
    """
    import_dask()
    for group in ([t for t in tasks if not t.quiet], [t for t in tasks if t.quiet]):
        left = {task.name: task for task in group}

        def tell(task: Task, rows: list[dict[str, Any]], left: dict[str, Task] = left) -> None:
            if left.pop(task.name, None) is not None:
                done(task, rows)

        since = time.monotonic()
        while left:
            before = len(left)
            if _run(address, list(left.values()), limits, tell, work):
                break
            if len(left) < before:
                since = time.monotonic()
            if time.monotonic() - since > PATIENCE:
                raise StepwellError(
                    f"the scheduler at {address} is gone: {len(left)} tasks are not done",
                    help="what is done is kept; the same sweep goes on from there",
                )


def _run(address: str, tasks: Sequence[Task], limits: Limits, done: Done, work: Work) -> bool:
    """Run tasks as long as the scheduler is there; whether all were."""
    from distributed import as_completed
    from distributed.client import FutureCancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    gone = (CommClosedError, FutureCancelledError, TimeoutError, OSError)
    try:
        with connected(address) as client:
            waiting = iter(tasks)
            doing: dict[Future[Any], Task] = {}

            def hand_over(count: int) -> list[Future[Any]]:
                return [
                    _submitted(client, task, limits, doing, work)
                    for task in itertools.islice(waiting, count)
                ]

            hands = AHEAD * max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
            ahead = 1 if tasks[0].quiet else hands
            running = as_completed(hand_over(ahead), loop=client.loop)
            for future in running:
                task = doing.pop(future)
                error = future.exception() if future.status != "finished" else None
                if isinstance(error, KilledWorker):
                    done(task, lost(task, limits))
                elif error is not None:
                    raise error
                else:
                    done(task, future.result())
                for following in hand_over(1):
                    running.add(following)
    except gone:
        return False
    return True


@contextmanager
def connected(address: str) -> Generator[Client]:
    """A client of a scheduler that has workers; what it still wants is cancelled at the end."""
    from distributed import Client

    log = logging.getLogger("distributed")  # Tells of every lost connection at length.
    level = log.level
    log.setLevel(logging.CRITICAL)
    client = Client(address, timeout=PATIENCE, set_as_default=False)
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
        yield client
    finally:
        client.close(timeout=5)
        log.setLevel(level)


def _submitted(
    client: Client, task: Task, limits: Limits, doing: dict[Future[Any], Task], work: Work
) -> Future[Any]:
    """Hand a task over to the scheduler."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values() if task.quiet else ()
    if task.quiet and not any(one.get("resources", {}).get(QUIET) for one in workers):
        raise StepwellError(
            "time is measured on quiet workers, and none is marked so",
            help=f"start one with `dask worker --nthreads 1 --resources '{QUIET}=1' …`",
        )
    resources = {QUIET: 1} if task.quiet else None
    future = client.submit(work, plain(task, limits), key=task.name, pure=True, resources=resources)
    doing[future] = task
    return future


def lost(task: Task, limits: Limits) -> list[dict[str, Any]]:
    """The rows of a task that took every worker with it."""
    from stepwell.model_zoo.sweep.worker import ended_row

    asked = plain(task, limits)
    found = {"outcome": "lost", "stage": "running on a worker", "note": f"{LIVES} workers died"}
    return [
        ended_row(asked, job, key, found).to_json()
        for job, key in zip(asked["jobs"], asked["keys"], strict=True)
    ]
