"""Run tasks on Dask, a limited number at a time; results arrive as they complete.

Dask schedules tasks, detects lost workers and reruns their tasks. This module submits tasks
gradually, resubmits missing tasks to a scheduler that came back, and measures time on workers that
run nothing else.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.diagnostics import StepwellError
from stepwell.model_zoo.sweep.jobs import Limits, Task, plain
from stepwell.model_zoo.sweep.worker import ended_row, run

if TYPE_CHECKING:
    from distributed import Client, Future

dask = OnDemand("dask")
distributed = OnDemand("distributed")


AHEAD = 3
"""Tasks submitted per worker: one that it runs, the others so that it never waits."""
LIVES = 3
"""Number of workers that a task may kill before it is given up."""
PATIENCE = 120.0
"""Seconds that a scheduler may be unreachable."""
QUIET = "quiet"
"""The resource of workers on which time is measured, one task at a time."""

Work = Callable[[dict[str, Any]], list[dict[str, Any]]]
Done = Callable[[Task, list[dict[str, Any]]], None]


@contextmanager
def local_cluster(workers: int) -> Generator[str]:
    """Start a scheduler and workers on this machine; yield the scheduler's address.

    Raises:
        StepwellError: Dask is not installed.
    """
    import_dask()
    settings = {
        "distributed.scheduler.allowed-failures": LIVES - 1,
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
        "distributed.admin.tick.limit": "60s",
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
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
    """Raise a `StepwellError` if Dask is not installed."""
    try:
        import distributed  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        raise StepwellError(
            "a sweep runs on Dask, which is not installed", help="pip install 'stepwell[sweep]'"
        ) from None


def run_tasks(
    address: str, tasks: Sequence[Task], limits: Limits, done: Done, work: Work = run
) -> None:
    """Run tasks on a cluster, and report each result once, in any order.

    Args:
        address: the scheduler's address. If the scheduler disappears, this function waits for it
            and resubmits the unfinished tasks; a running task then starts again.
        tasks: tasks that measure time run after all others, one at a time, on workers that are
            marked as quiet.
        limits: the limits of each job.
        done: called with each result, in this thread.
        work: the function that a worker applies to a serialized task.

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
                    f"the scheduler at {address} is unreachable: {len(left)} tasks are not done",
                    help="results so far are stored; run the same sweep again to continue",
                )


def _run(address: str, tasks: Sequence[Task], limits: Limits, done: Done, work: Work) -> bool:
    """Run tasks while the scheduler is reachable; return whether all were run."""
    gone = (
        distributed.comm.core.CommClosedError,
        distributed.client.FutureCancelledError,
        TimeoutError,
        OSError,
    )
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
            running = distributed.as_completed(hand_over(ahead), loop=client.loop)
            for future in running:
                task = doing.pop(future)
                error = future.exception() if future.status != "finished" else None
                if isinstance(error, distributed.scheduler.KilledWorker):
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
    """Connect to a scheduler that has workers; pending tasks are canceled at the end."""
    log = logging.getLogger("distributed")  # Tells of every lost connection at length.
    level = log.level
    log.setLevel(logging.CRITICAL)
    client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
        yield client
    finally:
        client.close(timeout=5)
        log.setLevel(level)


def _submitted(
    client: Client, task: Task, limits: Limits, doing: dict[Future[Any], Task], work: Work
) -> Future[Any]:
    """Submit a task to the scheduler."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values() if task.quiet else ()
    if task.quiet and not any(one.get("resources", {}).get(QUIET) for one in workers):
        raise StepwellError(
            "time is measured on quiet workers, but no worker is marked as quiet",
            help=f"start a worker with `dask worker --nthreads 1 --resources '{QUIET}=1' …`",
        )
    resources = {QUIET: 1} if task.quiet else None
    future = client.submit(work, plain(task, limits), key=task.name, pure=True, resources=resources)
    doing[future] = task
    return future


def lost(task: Task, limits: Limits) -> list[dict[str, Any]]:
    """Return the rows of a task that killed every worker."""
    asked = plain(task, limits)
    found = {"outcome": "lost", "stage": "running on a worker", "note": f"{LIVES} workers died"}
    return [
        ended_row(asked, job, key, found).to_json()
        for job, key in zip(asked["jobs"], asked["keys"], strict=True)
    ]
