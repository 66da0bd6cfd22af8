"""A process that judges one program after another: an abort costs one start."""

import json
import os
import resource
import sys

MEMORY = 12 * 2**30
"""Bytes of address space: what wants more raises instead of taking the machine along."""

CPU_SECONDS = 60
"""What one program may compute for, whatever else the machine does."""


def main() -> None:
    """Answer each line of JSON with one."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What runtimes print goes elsewhere.
    os.environ["STEPWELL_FAILURES"] = "raise"  # No mistake of a step is to be overlooked.
    import torch

    torch.set_num_threads(1)
    from . import drawing, profiles, source, verdicts

    def say(answer: dict[str, object]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    for line in sys.stdin:
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + CPU_SECONDS, -1))
        asked = json.loads(line)
        lane = asked["lane"]
        if "program" in asked:
            program = source.Program.of_json(asked["program"])
        else:
            program = drawing.draw(asked["seed"], profiles.lane_of(lane).profile)
        if asked.get("describe"):
            say({"program": program.as_json(), "text": program.text})
        else:
            say(verdicts.judge(program, lane, lambda: say({"phase": "exported"})).as_json())


if __name__ == "__main__":
    main()
