"""Prove typed rules in a separate process, which is killed if a proof takes too long.

python -m stepwell.inspection.playground.proofs  # JSON lines: rules in, verdicts out
"""

import contextlib
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import time
from typing import Any

from stepwell.inspection.playground.typed_rules import typed
from stepwell.ir.diagnostics import StepwellError
from stepwell.validation.rules.verdicts import prove

SECONDS = 60
"""The time limit of a proof."""
NO_SOLVER = "not proved: z3 is not installed (pip install 'stepwell[prove]')"


class Prover:
    """A client of the prover process, which returns verdicts asynchronously."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._verdicts: dict[str, str] = {}
        self._waiting: list[str] = []
        self._since = float("inf")
        """The start time of the current proof."""

    def start(self) -> None:
        """Start the process, if a solver is installed."""
        if self._process is None and importlib.util.find_spec("z3") is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stepwell.inspection.playground.proofs"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._answers.put(json.loads(line))

    def ask(self, text: str) -> None:
        """Request a proof of the only rule of a text; a repeated request keeps its verdict."""
        with self._lock:
            if text in self._verdicts or text in self._waiting:
                return
            self.start()
            if self._process is None:
                self._verdicts[text] = NO_SOLVER
                return
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps({"text": text}) + "\n")
                self._process.stdin.flush()
            self._waiting.append(text)

    def verdict(self, text: str, seconds: float = 0.0) -> str | None:
        """Return the verdict on the rule of a text; wait `seconds` for it; None if it is not
        finished.
        """
        until = time.monotonic() + seconds
        while True:
            self._take(max(until - time.monotonic(), 0.0))
            with self._lock:
                found = self._verdicts.get(text)
            if found is not None or time.monotonic() >= until:
                return found

    def _take(self, seconds: float) -> None:
        try:
            answer = self._answers.get(timeout=seconds) if seconds else self._answers.get_nowait()
        except queue.Empty:
            self._give_up()
            return
        with self._lock:
            self._since = time.monotonic() if answer["begun"] else float("inf")
            if not answer["begun"]:
                self._verdicts[answer["text"]] = answer["verdict"]
                self._waiting.remove(answer["text"])

    def _give_up(self) -> None:
        """Kill the process, with its pending requests, if a proof takes too long."""
        with self._lock:
            if time.monotonic() - self._since > SECONDS:
                late = f"open: no proof within {SECONDS} seconds"
                self._verdicts.update(dict.fromkeys(self._waiting, late))
                self._waiting.clear()
                self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process, self._since = None, float("inf")

    def close(self) -> None:
        """Stop the solver's process."""
        with self._lock:
            self._end()


def main() -> None:
    """Read rules and write verdicts until the end of the input."""
    for line in sys.stdin:
        text = json.loads(line)["text"]
        print(json.dumps({"text": text, "begun": True}), flush=True)
        try:
            (rule,) = typed(text).values()
            verdict = str(prove(rule))
        except StepwellError as error:
            verdict = f"open: {error.problems[0].fact}"
        except Exception as error:  # A failing proof gives no verdict and must not end the loop.
            verdict = f"open: {type(error).__name__}: {error}"
        print(json.dumps({"text": text, "begun": False, "verdict": verdict}), flush=True)


if __name__ == "__main__":
    main()
