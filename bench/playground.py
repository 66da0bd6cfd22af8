"""How long the playground takes for an answer: a change of a step, an edit, a rule that is typed.

    python bench/playground.py [MODEL…]

CPU seconds of a process that is warm, the least of three; what a page waits for is this and what
the browser draws.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stepwell.inspection.playground import Playground
from stepwell.loaders.models import open_model

EXAMPLES = Path(__file__).parents[1] / "examples" / "models"
MODELS = ("resnet.py:resnet8", "deit.py:deit_tiny")
RULE = """rule relu-again
    max(x, 0) is what relu is, and relu of relu is relu.
Before:
    %a = aten.relu.default(%x)
    %y = aten.relu.default(%a)
After:
    %y = %a
"""


def seconds(action: Callable[[], Any]) -> float:
    """The least CPU seconds of three runs."""
    taken: list[float] = []
    for _ in range(3):
        begun = time.process_time()
        action()
        taken.append(time.process_time() - begun)
    return min(taken)


def row(model: str) -> list[float]:
    """(a step switched off, an edit of nodes taken on, differences, a typed rule)."""
    opened = open_model(model)
    held = Playground(opened.program, opened.name, inputs=opened.inputs)
    held.warm()
    off = {"edits": [["without", "lower/lower-softmax"]]}
    left = held.lower({"at": "nodes"})["left"]
    edited = {
        "at": "nodes",
        "text_at": "nodes",
        "text": left.replace("xnnpack.gelu", "xnnpack.tanh", 1),
    }
    held.compare({})
    try:
        return [
            seconds(lambda: held.lower(off)),
            seconds(lambda: held.lower(edited)),
            seconds(lambda: held.compare(edited)),
            seconds(lambda: held.rule({}, RULE)),
        ]
    finally:
        held.close()


def main(models: Sequence[str]) -> None:
    """Print the table."""
    print("| model | a step switched off | an edit behind `nodes` | differences | a typed rule |")
    print("|---|---|---|---|---|")
    for model in models or [f"{EXAMPLES}/{name}" for name in MODELS]:
        name = model.rpartition(":")[2]
        print(
            f"| {name} | " + " | ".join(f"{taken:.2f}" for taken in row(model)) + " |", flush=True
        )


if __name__ == "__main__":
    main(sys.argv[1:])
