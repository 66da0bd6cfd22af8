"""The child process of `run_alone`: runs the trials of a folder from a given number on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from stepwell.backends.executorch.running.engine import runtime


def main(folder: Path, first: int) -> None:
    """Run trials in order; each writes its answer before the next begins."""
    torch.set_num_threads(1)
    program = runtime().load_program(folder / "program.pte")
    inputs: list[list[torch.Tensor]] = torch.load(folder / "inputs.pt", weights_only=True)
    for number in range(first, len(inputs)):
        answer: dict[str, Any]
        try:
            method = program.load_method(f"trial_{number}")
            assert method is not None
            answer = {"outputs": [output.clone() for output in method.execute(inputs[number])]}
        except RuntimeError as error:
            answer = {"error": str(error)}
        torch.save(answer, folder / f"answer.{number}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
