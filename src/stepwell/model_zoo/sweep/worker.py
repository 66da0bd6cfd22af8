"""Run tasks on a worker, each in a fork of a warm process, which may crash."""

import atexit
import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

from stepwell.ir.diagnostics import StepwellError
from stepwell.model_zoo.catalogue.models import find
from stepwell.model_zoo.sweep.jobs import Task, jobs_of
from stepwell.model_zoo.sweep.rows import Row


class Warm:
    """The warm process of this worker (`stepwell.model_zoo.sweep.warm`), started on demand."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        atexit.register(self.close)

    def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a task, even if the warm process died."""
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        code = process.wait()
        self._process = None
        return {"rows": [], "outcome": "crashed", "stage": "importing the library",
                "note": f"the warm process ended with {code}"}  # fmt: skip

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-m", "stepwell.model_zoo.sweep.warm"]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True, env=environment,
            )  # fmt: skip
        return self._process

    def close(self) -> None:
        """End the warm process, which ends its fork."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process = None


WARM = Warm()
"""One a worker, whose tasks come one after the other."""


def run(asked: dict[str, Any], warm: Warm = WARM) -> list[dict[str, Any]]:
    """Run a task and return a row for each of its jobs.

    A job that kills its process gets a row with that outcome, and the following jobs are retried.
    """
    rows: list[dict[str, Any]] = []
    left = dict(asked)
    while left["jobs"]:
        found = warm.ask(left)
        rows += found["rows"]
        done = len(found["rows"])
        jobs, keys = left["jobs"][done:], left["keys"][done:]
        if not jobs:
            break
        if not found["outcome"]:
            found |= {"outcome": "crashed", "note": "the process ended without a row"}
        shared = not is_of_a_target(found["stage"])
        ended = len(jobs) if shared else 1
        rows += [ended_row(left, jobs[i], keys[i], found).to_json() for i in range(ended)]
        left |= {"jobs": jobs[ended:], "keys": keys[ended:]}
    return rows


def is_of_a_target(stage: str) -> bool:
    """Whether a stage belongs to a single target, not to the part that all targets share."""
    return stage.startswith(("lowering to", "running on", "timing on", "ExecuTorch"))


def ended_row(asked: dict[str, Any], job: dict[str, Any], key: str, found: dict[str, Any]) -> Row:
    """Return the row of a job that killed its process."""
    from stepwell.model_zoo.sweep.measuring import row_of

    (one,) = jobs_of([job])
    reason = (f"{found['outcome']} while {found['stage']}", 1)
    try:
        row = row_of(Task((one,), (key,), find(asked["model"])), 0)
    except StepwellError:
        row = Row(key, one.model, one.target)
    return replace(
        row,
        outcome=found["outcome"],
        stage=found["stage"],
        note=found["note"],
        reasons=[reason],
    )
