"""Serialization of tasks between the sweep, its workers and their forks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from stepwell.model_zoo.sweep.jobs import Job, Limits, Task, Variant


def plain(task: Task, limits: Limits) -> dict[str, Any]:
    """Serialize a task for a worker."""
    return {
        "model": task.entry.name,
        "module": task.entry.module,
        "jobs": [asdict(job) for job in task.jobs],
        "keys": list(task.keys),
        "seconds": limits.seconds,
        "memory": limits.memory,
    }


def jobs_of(given: Sequence[dict[str, Any]]) -> tuple[Job, ...]:
    """Deserialize jobs."""
    jobs: list[Job] = []
    for one in given:
        options = tuple((name, value) for name, value in one["options"])
        variant = Variant(**one["variant"])
        asked = {name: one[name] for name in ("latency", "stock", "tune")}
        job = Job(one["model"], one["target"], options, variant, **asked)
        jobs.append(job)
    return tuple(jobs)
