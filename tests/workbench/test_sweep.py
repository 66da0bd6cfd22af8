"""A sweep: each job one row, whatever becomes of it, on workers that come and go.

The models are toys of a file that is written here: one is good, one hangs, one grows, one dies.
"""

import importlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepwell
from stepwell.ir.diagnostics import StepwellError
from stepwell.model_zoo.catalogue.models import find
from stepwell.model_zoo.sweep import Limits, Row, Sweep, driver
from stepwell.model_zoo.sweep.cluster import lost, run_tasks
from stepwell.model_zoo.sweep.jobs import Job, Task, Variant, plain, source_of, tasks_of
from stepwell.model_zoo.sweep.report import EITHER, either
from stepwell.model_zoo.sweep.store import Store
from stepwell.model_zoo.sweep.warm import Fork
from stepwell.model_zoo.sweep.worker import Warm, run

TOYS = """
import os, time, torch
from stepwell.ir import choices
from torch import nn

def good():
    return nn.Linear(4, 3).eval(), (torch.randn(2, 4),)

def other():
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh()).eval(), (torch.randn(2, 4),)

def places():
    class Largest(nn.Module):
        def forward(self, x):
            return x.argmax(1), x
    return Largest(), (torch.randn(4, 8),)

def heads():
    choices.CLOSE = 1e9  # Whatever this CPU's costs are, the other form is tried.
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.fused = nn.Linear(16, 32)
        def forward(self, x):
            first, second = self.fused(x).chunk(2, -1)
            return first.tanh() * second
    return Heads(), (torch.randn(2, 16),)

def another():
    class Another(nn.Module):
        def forward(self, x):
            return x.tanh() if torch.compiler.is_exporting() else x
    return Another(), (torch.randn(2, 4),)

def draws():
    class Noise(nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)
    return Noise(), (torch.randn(8, 8),)

def hangs():
    time.sleep(1000)

def dies():
    os.abort()

def grows():
    held = []
    while True:
        held.append(torch.ones(1 << 22))

def raises():
    raise ValueError("no such model")

def branches():
    class Branch(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x
    return Branch(), (torch.randn(4),)
"""
WORK = """
import os, time

def named(asked):
    time.sleep(0.2)
    jobs = zip(asked["keys"], asked["jobs"], strict=True)
    return [{"key": key, "target": job["target"], "process": os.getpid()} for key, job in jobs]
"""
"""What workers do where the cluster is what is tested: a row for each job, after a moment."""
LIMITS = Limits(seconds=4.0, memory=1 << 30)


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("toys") / "toys.py"
    file.write_text(TOYS)
    return file


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    held = Warm()
    yield held
    held.close()


def outcome(warm: Warm, toys: Path, name: str, *targets: str, limits: Limits = LIMITS) -> list[Row]:
    """What becomes of a toy on some targets."""
    entry = find(f"{toys}:{name}")
    jobs = [Job(entry.name, target) for target in targets or ("xnnpack",)]
    (task,) = tasks_of(jobs, {entry.name: entry})
    return [Row.from_json(row) for row in run(plain(task, limits), warm)]


def test_a_good_model_is_lowered_run_and_compared(warm: Warm, toys: Path) -> None:
    rows = outcome(warm, toys, "good", "xnnpack", "tosa-1.0+fp")
    assert [row.outcome for row in rows] == ["right", "right"]
    assert [row.engine for row in rows] == ["ExecuTorch", "TOSA reference model"]
    assert rows[0].delegates == 1 and not rows[0].outside
    assert rows[0].size and rows[0].arena and rows[0].lower_seconds
    assert all(row.error is not None and row.bound and row.error <= row.bound for row in rows)


def test_close_choices_are_measured_on_quiet_workers(warm: Warm, toys: Path) -> None:
    entry = find(f"{toys}:heads")
    (task,) = tasks_of([Job(entry.name, "xnnpack", tune=True)], {entry.name: entry})
    assert task.quiet
    (row,) = [Row.from_json(row) for row in run(plain(task, LIMITS), warm)]
    assert row.outcome == "right" and row.latency_ms
    assert row.tuned is not None and len(row.tuned["measured"]) == 1


def test_integers_are_compared_as_wide_as_the_model_gives_them(warm: Warm, toys: Path) -> None:
    (row,) = outcome(warm, toys, "places", "tosa-1.0+fp+int")
    assert (row.outcome, row.note) == ("right", "")


def test_integer_programs_take_the_models_floats_as_their_integers(warm: Warm, toys: Path) -> None:
    entry = find(f"{toys}:good")
    job = Job(entry.name, "tosa-1.0+int", variant=Variant(quantize="int8-tosa"))
    (task,) = tasks_of([job], {entry.name: entry})
    (row,) = [Row.from_json(row) for row in run(plain(task, LIMITS), warm)]
    assert (row.outcome, row.engine, row.note) == ("right", "TOSA reference model", "")
    assert row.error is not None and row.bound and row.error <= row.bound


@pytest.mark.parametrize(
    ("said", "is_beyond"),
    [
        ("aten.rand.default: TOSA draws no random numbers", True),
        ("input tensors: TOSA has no empty tensors, and this one has the shape [0]", True),
        ("output 0: TOSA has no empty tensors, and this one has the shape [0]", True),
        ("aten.cat.default: TOSA has no empty tensors", False),
        ("aten.sort.default: the ExecuTorch runtime has no kernel for it, and PyTorch computes it "
         "by no others that have one", True),
        ("aten.msort.default: the ExecuTorch runtime has no kernel for it, nor for what PyTorch "
         "computes it by: aten.sort.default has no kernel and no decomposition", True),
        ("aten.diagonal_scatter.default: the ExecuTorch runtime has no kernel for it, nor for what "
         "PyTorch computes it by: the decomposition writes in place (prims.copy_to.default)",
         False),
    ],
)  # fmt: skip
def test_a_refusal_counts_as_the_targets_where_no_other_program_would_do(
    said: str, is_beyond: bool
) -> None:
    row = Row("k", "m", "t", outcome="refused", reasons=[("sym.size: it has no lowering", 1),
                                                         (said, 1)])  # fmt: skip
    assert row.is_beyond == is_beyond


@pytest.mark.parametrize(
    ("name", "expected", "said"),
    [
        ("hangs", "out of time", "ended after 4 s"),
        ("dies", "crashed", "SIGABRT"),
        ("grows", "out of memory", ""),
        ("raises", "not made", "no such model"),
        ("branches", "not exported", "data-dependent"),
    ],
)
def test_what_a_job_ends_with_is_a_row_for_each_target(
    warm: Warm, toys: Path, name: str, expected: str, said: str
) -> None:
    rows = outcome(warm, toys, name, "xnnpack", "tosa-1.0+fp")
    assert [row.outcome for row in rows] == [expected, expected]
    assert all(said in row.note for row in rows)


def test_what_draws_random_numbers_is_not_compared(warm: Warm, toys: Path) -> None:
    (row,) = outcome(warm, toys, "draws")
    assert row.outcome in ("not compared", "refused")
    assert row.outcome == "refused" or "random" in row.note


def test_what_export_makes_of_a_model_is_not_held_against_a_target(warm: Warm, toys: Path) -> None:
    (row,) = outcome(warm, toys, "another")
    assert row.outcome == "not compared" and row.error and "torch.export" in row.note


def test_a_target_that_ends_the_process_takes_no_other_with_it(
    toys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    class Dying(Warm):
        def ask(self, asked_: dict[str, Any]) -> dict[str, Any]:
            names = [job["target"] for job in asked_["jobs"]]
            asked.append(names)
            rows = [Row(key, "m", "t", outcome="right").to_json() for key in asked_["keys"]]
            if "b" not in names:
                return {"rows": rows, "outcome": "", "stage": "", "note": ""}
            at = names.index("b")
            return {"rows": rows[:at], "outcome": "crashed", "stage": "lowering to b", "note": "!"}

    entry = find(f"{toys}:good")
    (task,) = tasks_of([Job(entry.name, name) for name in "abc"], {entry.name: entry})
    rows = run(plain(task, LIMITS), Dying())
    assert asked == [["a", "b", "c"], ["c"]]
    assert [row["outcome"] for row in rows] == ["right", "crashed", "right"]


def test_waiting_for_a_processor_is_no_time_used() -> None:
    code = "print(flush=True)\nwhile True: pass"
    stopped = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert stopped.stdout is not None
        stopped.stdout.readline()  # It does not sleep any more.
        fork = Fork(stopped.pid, 0, None, 0)  # type: ignore[arg-type]
        fork.look(0.0)
        fork.look(1000.0)
        assert fork.used < 100.0
    finally:
        stopped.kill()
        stopped.communicate()


def test_a_key_hangs_on_the_model_its_source_and_everything_asked(
    toys: Path, tmp_path: Path
) -> None:
    entry = find(f"{toys}:good")
    jobs = [
        Job(entry.name, "xnnpack"),
        Job(entry.name, "tosa-1.0+fp"),
        Job(entry.name, "xnnpack", (("numerics", "finite"),)),
        Job(entry.name, "xnnpack", variant=Variant(symbolic=True)),
        Job(entry.name, "xnnpack", stock=True),
    ]
    source = source_of(entry)
    assert len({job.key(source) for job in jobs}) == len(jobs)
    assert jobs[0].key(source) == Job(entry.name, "xnnpack").key(source)
    changed = tmp_path / "toys.py"
    changed.write_text(TOYS + "\n# changed\n")
    assert source_of(find(f"{changed}:good")) != source


def test_a_store_keeps_a_row_a_key_and_finds_the_newest(tmp_path: Path) -> None:
    with Store(tmp_path / "rows.sqlite") as store:
        store.put([Row("a", "m", "t", outcome="refused"), Row("b", "n", "t")])
        store.put([Row("a", "m", "t", outcome="right")])
        assert len(store) == 2
        assert store.get(["a", "c"])["a"].outcome == "right"
        time.sleep(0.01)
        store.put([Row("newer", "m", "t", outcome="wrong")])
        assert [(row.key, row.outcome) for row in store.latest()] == [
            ("newer", "wrong"),
            ("b", "lost"),
        ]


def test_what_is_no_store_is_refused_in_words(tmp_path: Path) -> None:
    file = tmp_path / "rows.sqlite"
    file.write_bytes(b"not a database at all, " * 100)
    with pytest.raises(StepwellError, match="cannot be used as a store"):
        Store(file)


pytest.importorskip("distributed", reason="the extra 'sweep' is not installed")


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


class Cluster:
    """A scheduler and its workers, processes of their own that a test may end."""

    def __init__(self, folder: Path) -> None:
        paths = (str(folder), os.environ.get("PYTHONPATH", ""))
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler = self.started("dask_scheduler", "--port", str(self.port))
        self.workers = [self.worker()]

    def started(self, module: str, *given: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{module}", "--no-dashboard", *given]
        return subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=self.environment,
        )

    def worker(self) -> subprocess.Popen[bytes]:
        return self.started("dask_worker", self.address, "--nthreads", "1", "--no-nanny",
                            "--memory-limit", "0")  # fmt: skip

    def end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            self.end(process)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    (tmp_path / "work_of_workers.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    held = Cluster(tmp_path)
    yield held
    held.close()


def tasks(toys: Path, count: int, **more: Any) -> list[Task]:
    """So many tasks of two jobs each."""
    entry = find(f"{toys}:good")
    return [
        Task(
            (Job(entry.name, "a", **more), Job(entry.name, "b", **more)), (f"a{i}", f"b{i}"), entry
        )
        for i in range(count)
    ]


def test_a_worker_and_the_scheduler_are_killed_and_every_job_has_its_rows_once(
    cluster: Cluster, toys: Path
) -> None:
    """The second task that is done costs the worker its life, the fourth the scheduler."""
    named = importlib.import_module("work_of_workers").named
    came: list[dict[str, Any]] = []

    def done(task: Task, rows: list[dict[str, Any]]) -> None:
        came.extend(rows)
        if len(came) == 4:
            cluster.workers.append(cluster.worker())
            cluster.end(cluster.workers[0])
        elif len(came) == 8:
            cluster.close()
            cluster.scheduler = cluster.started("dask_scheduler", "--port", str(cluster.port))
            cluster.workers.append(cluster.worker())

    run_tasks(cluster.address, tasks(toys, 10), LIMITS, done, named)
    assert sorted(row["key"] for row in came) == sorted(
        f"{of}{i}" for of in "ab" for i in range(10)
    )
    assert len({row["process"] for row in came}) == 3


def test_a_task_that_takes_every_worker_with_it_is_given_up(toys: Path) -> None:
    (task,) = tasks(toys, 1)
    rows = [Row.from_json(row) for row in lost(task, LIMITS)]
    assert [(row.key, row.outcome) for row in rows] == [("a0", "lost"), ("b0", "lost")]


def test_time_is_measured_on_quiet_workers_only(cluster: Cluster, toys: Path) -> None:
    named = importlib.import_module("work_of_workers").named
    with pytest.raises(StepwellError, match="no worker is marked as quiet"):
        run_tasks(cluster.address, tasks(toys, 1, latency=True), LIMITS, lambda *_: None, named)


def test_what_a_store_has_is_not_computed_again(toys: Path, tmp_path: Path) -> None:
    store, model = tmp_path / "rows.sqlite", f"{toys}:good"
    key = Job(model, "xnnpack").key(source_of(find(model)))
    with Store(store) as base:
        base.put([Row(key, model, "xnnpack", outcome="right")])
    found = stepwell.sweep(model, "xnnpack", store=store, scheduler="tcp://127.0.0.1:1")
    assert found.computed == 0 and [row.outcome for row in found.rows] == ["right"]


def test_the_same_again_lists_no_models(
    toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "toys.py"
    file.write_text(TOYS)
    store, model = tmp_path / "rows.sqlite", f"{file}:good"
    with Store(store) as base:
        for options in ((), (("numerics", "finite"),)):
            key = Job(model, "xnnpack", options).key(source_of(find(model)))
            base.put([Row(key, model, "xnnpack", dict(options), outcome="right")])
    listed: list[Any] = []
    listing = driver.select
    monkeypatch.setattr(driver, "select", lambda names: listed.append(names) or listing(names))

    def asked(**options: Any) -> list[str]:
        found = stepwell.sweep(model, "xnnpack", store=store, options=options)
        assert found.computed == 0
        return [row.outcome for row in found.rows]

    assert [asked(), asked(), asked(numerics="finite")] == [["right"]] * 3
    assert len(listed) == 2
    file.write_text(TOYS + "\n# changed\n")
    with pytest.raises(AssertionError, match="what changed is computed"):
        monkeypatch.setattr(driver, "run_jobs", computes)
        asked()


def computes(*_: Any) -> Sweep:
    raise AssertionError("what changed is computed")


def test_a_model_counts_as_tosas_where_one_of_its_profiles_takes_it() -> None:
    floats, both = EITHER
    rows = [
        Row("1", "zoo/a", floats, outcome="right"),
        Row("2", "zoo/b", floats, outcome="refused", reasons=[("i32 needs the profile int", 1)]),
        Row("3", "zoo/b", both, outcome="right"),
        Row("4", "zoo/c", both, outcome="refused", reasons=[("it has no lowering", 1)]),
    ]
    assert sorted((row.model, row.outcome) for row in either(rows)) == [
        ("zoo/a", "right"), ("zoo/b", "right"), ("zoo/c", "refused"),
    ]  # fmt: skip


def test_a_table_names_what_must_not_be() -> None:
    wrong = Row("k", "toy/net", "xnnpack", outcome="crashed", stage="export", note="SIGSEGV\nlast")
    found = Sweep((Row("j", "toy/other", "xnnpack", outcome="right"), wrong), 2)
    assert not found.ok
    assert "crashed: toy/net on xnnpack (as it is): export: SIGSEGV" in str(found)
